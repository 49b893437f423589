"""DCGM beside NVML: real binding, real daemon, fake libraries."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import Daemon, Samples, environment, find, parse
from tests.fakes.dcgm import BLANK, BLANK_FLOAT, OFF, ON, UNSUPPORTED, FakeDcgm, build
from tests.fakes.nvml import FakeNvml

ACTIVITY, PCIE = "gputally_gpu_activity_ratio", "gputally_gpu_pcie_bytes_per_second"
NVLINK, ENERGY = "gputally_gpu_nvlink_bytes_per_second", "gputally_process_dcgm_gpu_energy_joules"
RECORDS = ("--process-metrics", "on", "--process-metrics.min-age", "0s", "--dcgm.window", "60s")
VALUES = "dcgmEntitiesGetLatestValues"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dcgm"))


class Node:
    """Two GPUs, as NVML and DCGM see them, and processes that can be put on them."""

    def __init__(self, folder: Path, nvml_library: Path, library: Path) -> None:
        self.nvml = FakeNvml(folder, gpus=2, library=nvml_library)
        self.dcgm = FakeDcgm(folder, [gpu.uuid for gpu in self.nvml.gpus], library=library)
        self.children: list[subprocess.Popen[bytes]] = []
        for card in self.nvml.gpus:
            card.accounting_mode, card.gpm_supported = 1, 0  # with meters of their own NVML tells the ratios
        for number, gpu in enumerate(self.dcgm.gpus):
            gpu.tell(1002, 0.25 + number / 4)

    @property
    def env(self) -> dict[str, str]:
        return {**self.nvml.env, **self.dcgm.env}

    def flags(self, address: str = "127.0.0.1:5555") -> tuple[str, ...]:
        libraries = ("--nvml.library", str(self.nvml.library), "--dcgm.library", str(self.dcgm.library))
        return (*libraries, "--dcgm", address, "--interval", "1s", "--tick", "500ms")

    def daemon(self, *more: str, address: str = "127.0.0.1:5555") -> Daemon:
        return Daemon(*self.flags(address), *more, env=self.env)

    def process(self, gpu: int = 0) -> int:
        """A process that starts now and uses a GPU."""
        child = subprocess.Popen(["sleep", "300"])
        self.children.append(child)
        self.nvml.gpus[gpu].run(child.pid)
        self.dcgm.gpus[gpu].run(child.pid)
        return child.pid


@pytest.fixture
def node(tmp_path: Path, nvml_library: Path, library: Path) -> Iterator[Node]:
    node = Node(tmp_path, nvml_library, library)
    yield node
    for child in node.children:
        child.kill()
        child.wait()


def up(samples: Samples) -> list[float]:
    return find(samples, "gputally_source_up", source="dcgm")


def sm(samples: Samples, **labels: str) -> list[float]:
    return find(samples, ACTIVITY, part="sm", **labels)


def nvml_goes_on(samples: Samples) -> bool:
    powered = len(find(samples, "gputally_gpu_power_watts")) == 2
    return powered and find(samples, "gputally_source_up", source="nvml") == [1]


def show(node: Node, *more: str, address: str = "127.0.0.1:5555") -> str:
    command = [sys.executable, "-m", "gputally", "show", *node.flags(address), *more]
    result = subprocess.run(command, env=environment(node.env), capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


# ---- Fields ----


def test_profiling_fields_are_on_the_gpu_that_nvml_found(node: Node) -> None:
    node.dcgm.gpus[0].tell(1001, 0.9)
    node.dcgm.gpus[0].tell(1010, 123_456_789)
    node.dcgm.gpus[0].tell(1011, 25_000_000_000)
    samples = parse(show(node))
    first, second = (gpu.uuid for gpu in node.nvml.gpus)
    assert sm(samples, uuid=first, gpu="0", namespace="") == [0.25]
    assert sm(samples, uuid=second, gpu="1") == [0.5]
    assert find(samples, ACTIVITY, part="graphics") == [0.9]
    assert find(samples, PCIE, direction="receive") == [123_456_789]
    assert find(samples, NVLINK, direction="transmit", uuid=first) == [25_000_000_000]
    assert up(samples) == [1]
    assert nvml_goes_on(samples)


def test_what_nvml_tells_is_believed_and_dcgm_tells_the_rest(node: Node) -> None:
    node.nvml.gpus[0].gpm_supported = 1
    node.dcgm.gpus[0].tell(1009, 5)
    own = sm(parse(show(node, address="off")))
    samples = parse(show(node))
    assert sm(samples, gpu="0") == own != [0.25]
    assert sm(samples, gpu="1") == [0.5]
    assert find(samples, PCIE, gpu="0", direction="transmit") == [5]


def test_gpus_are_matched_by_uuid_and_strangers_are_left_out(node: Node) -> None:
    one, other = node.dcgm.gpus
    one.uuid, other.uuid = other.uuid, "GPU-ffffffff-5eed-4a11-8b0b-000000000000"
    assert sm(parse(show(node))) == [0.25]
    assert sm(parse(show(node)), gpu="1") == [0.25]


@pytest.mark.parametrize(
    ("value", "status", "age"),
    [(BLANK_FLOAT, 0, 0), (BLANK_FLOAT + 2, 0, 0), (0.5, -16, 0), (float("nan"), 0, 0), (0.5, 0, 30)],
    ids=["blank", "not supported", "not watched", "no number", "old"],
)
def test_what_is_no_reading_gives_no_sample(node: Node, value: float, status: int, age: float) -> None:
    node.dcgm.gpus[0].tell(1002, value, status=status, age=age)
    node.dcgm.gpus[0].tell(1009, BLANK + 3)
    samples = parse(show(node))
    assert sm(samples) == [0.5], "that of the other GPU"
    assert not find(samples, PCIE)


def test_ratios_are_cut_and_counted(node: Node) -> None:
    """F57: SM_ACTIVE was seen at 1.29."""
    node.dcgm.gpus[0].tell(1002, 1.29)
    node.dcgm.gpus[0].tell(1004, -0.1)
    samples = parse(show(node))
    assert sorted(sm(samples)) == [0.5, 1.0]
    assert find(samples, ACTIVITY, part="tensor") == [0.0]
    assert find(samples, "gputally_samples_dropped_total", reason="profiling_out_of_range") == [4]


def test_a_gpu_that_cannot_be_profiled_gives_the_rest(node: Node) -> None:
    node.dcgm.control.profiling = 0
    with node.daemon() as daemon:
        samples = daemon.wait_for(lambda s: up(s) == [1] and nvml_goes_on(s))
        assert not sm(samples)
        warnings = [line["msg"] for line in daemon.log if line["level"] == "warning"]
        assert [text for text in warnings if "dcgm gives no profiling fields" in text]
        assert len(warnings) == 1
    assert node.dcgm.watches(252)


def test_one_bulk_call_per_interval(node: Node) -> None:
    with node.daemon() as daemon:
        daemon.wait_for(lambda s: sm(s))
        calls, began = node.dcgm.calls(VALUES), time.monotonic()
        time.sleep(3)
        per_second = (node.dcgm.calls(VALUES) - calls) / (time.monotonic() - began)
        assert per_second < 1.5
        assert node.dcgm.calls("dcgmGetDeviceAttributes") == 2
        assert node.dcgm.calls("dcgmGetPidInfo") == 0
        assert node.dcgm.calls("dcgmWatchPidFields") == 0, "without process series nobody wants records"
        assert daemon.terminate() == 0
    assert node.dcgm.control.connected == 0, "it disconnects when it ends"


# ---- Where it is ----


def test_off_loads_nothing_and_has_no_series(node: Node) -> None:
    with node.daemon(address="off") as daemon:
        samples = daemon.wait_for(nvml_goes_on)
        maps = Path(f"/proc/{daemon.pid}/maps").read_text()
        assert "libnvidia-ml" in maps
        assert "libdcgm" not in maps
        assert not up(samples)
        assert "dcgm" not in daemon.get("/metrics").body.decode()


def test_off_imports_nothing(node: Node) -> None:
    command = [sys.executable, "-v", "-m", "gputally", "show", *node.flags("off")]
    result = subprocess.run(command, env=environment(node.env), capture_output=True, text=True, timeout=60)
    assert "gputally.sources.nvml" in result.stderr
    assert not re.search(r"gputally\.(machine|sources)\.dcgm|gputally\.accounting", result.stderr)


def test_auto_is_silent_until_an_engine_answers_and_expects_it_from_then_on(node: Node) -> None:
    node.dcgm.stop()
    with node.daemon(address="auto") as daemon:
        samples = daemon.wait_for(nvml_goes_on)
        daemon.until(lambda: node.dcgm.calls("dcgmConnect_v2") >= 2)
        assert not up(daemon.metrics())
        assert not find(samples, "gputally_stuck_calls", lane="dcgm")
        assert not [line for line in daemon.log if line["level"] == "warning"]
        node.dcgm.start()
        daemon.wait_for(lambda s: up(s) == [1] and sm(s))
        node.dcgm.stop()
        daemon.wait_for(lambda s: up(s) == [0])
    assert node.dcgm.calls("dcgmStartEmbedded_v2") == 0


def test_auto_without_a_library_is_no_fault(node: Node) -> None:
    flags = [flag for flag in node.flags("auto") if flag not in ("--dcgm.library", str(node.dcgm.library))]
    with Daemon(*flags, env=node.env) as daemon:
        assert not up(daemon.wait_for(nvml_goes_on))
        assert not [line for line in daemon.log if line["level"] == "warning"]


def test_the_embedded_engine_is_started_when_asked_for_and_stopped(node: Node) -> None:
    node.dcgm.stop()
    with node.daemon(address="embedded") as daemon:
        daemon.wait_for(lambda s: sm(s))
        assert node.dcgm.control.embedded
        assert daemon.terminate() == 0
    assert not node.dcgm.control.embedded


def test_told_to_let_go_of_the_gpus_the_embedded_engine_lets_go_too(node: Node) -> None:
    node.dcgm.stop()
    with node.daemon(address="embedded") as daemon:
        daemon.wait_for(lambda s: sm(s))
        os.kill(daemon.pid, signal.SIGUSR2)
        resting = daemon.wait_for(lambda s: find(s, "gputally_yielded") == [1] and up(s) == [0])
        assert not sm(resting)
        assert not node.dcgm.control.embedded
        os.kill(daemon.pid, signal.SIGUSR2)
        daemon.wait_for(lambda s: up(s) == [1] and len(sm(s)) == 2)


def test_a_unix_socket(node: Node) -> None:
    node.dcgm.control.address, node.dcgm.control.is_unix = "/run/engine.sock", 1
    assert sm(parse(show(node, address="unix:/run/engine.sock")))


def test_a_library_that_cannot_be_loaded_is_named(node: Node) -> None:
    with node.daemon("--dcgm.library", "/nowhere/libdcgm.so.4") as daemon:
        assert up(daemon.wait_for(nvml_goes_on)) == [0]
        daemon.line("cannot load --dcgm.library /nowhere/libdcgm.so.4")


# ---- Faults ----


def test_a_dead_engine_takes_its_gauges_with_it_and_a_new_one_brings_them_back(node: Node) -> None:
    """F55: old values were served as new."""
    with node.daemon(*RECORDS) as daemon:
        daemon.wait_for(lambda s: sm(s))
        pid = node.process()
        daemon.wait_for(lambda s: find(s, ENERGY, pid=str(pid)))
        node.dcgm.stop()
        samples = daemon.wait_for(lambda s: up(s) == [0])
        assert not sm(samples)
        assert not find(samples, ENERGY)
        assert nvml_goes_on(samples)
        node.dcgm.gpus[0].tell(1002, 0.75)
        node.dcgm.start()
        samples = daemon.wait_for(lambda s: up(s) == [1])
        assert sorted(sm(samples)) == [0.5, 0.75]
        daemon.wait_for(lambda s: find(s, ENERGY, pid=str(pid)))
        told = [line["msg"] for line in daemon.log if "dcgm is" in line["msg"]]
        assert [text.split(":")[0] for text in told] == ["dcgm is down", "dcgm is back"]


def test_attempts_to_reconnect_are_ever_farther_apart(node: Node) -> None:
    node.dcgm.stop()
    with node.daemon() as daemon:
        daemon.wait_for(lambda s: up(s) == [0])
        time.sleep(9)
        assert node.dcgm.calls("dcgmConnect_v2") <= 4
        daemon.until(lambda: node.dcgm.calls("dcgmConnect_v2") >= 2)


def test_a_restart_between_two_readings_is_noticed(node: Node) -> None:
    with node.daemon() as daemon:
        daemon.wait_for(lambda s: sm(s))
        node.dcgm.stop()
        node.dcgm.start()
        daemon.until(lambda: node.dcgm.watches(1002))
        daemon.wait_for(lambda s: up(s) == [1] and len(sm(s)) == 2)


def test_a_login_that_failed_is_no_connection(node: Node) -> None:
    node.dcgm.control.login_fails = 1
    with node.daemon() as daemon:
        samples = daemon.wait_for(lambda s: up(s) == [0] and nvml_goes_on(s))
        assert not sm(samples)
        daemon.line("dcgmHostengineVersionInfo: The connection is not valid")
        node.dcgm.control.login_fails = 0
        daemon.wait_for(lambda s: sm(s))


def test_an_engine_of_another_major_version_is_refused(node: Node) -> None:
    node.dcgm.start("3.3.9")
    with node.daemon() as daemon:
        daemon.wait_for(lambda s: up(s) == [0] and nvml_goes_on(s))
        daemon.line("the host engine is of DCGM 3, the library of DCGM 4")
        node.dcgm.start("4.6.0")
        daemon.wait_for(lambda s: up(s) == [1])


@pytest.mark.parametrize("code", [-12, -3])
def test_an_engine_that_refuses_is_down(node: Node, code: int) -> None:
    node.dcgm.answer("dcgmGetDeviceAttributes", code)
    with node.daemon() as daemon:
        assert not sm(daemon.wait_for(lambda s: up(s) == [0] and nvml_goes_on(s)))


@pytest.mark.parametrize("call", [VALUES, "dcgmConnect_v2", "dcgmGetPidInfo"])
def test_a_call_that_hangs_stops_nobody_else(node: Node, call: str) -> None:
    with node.daemon(*RECORDS, "--dcgm.deadline", "500ms") as daemon:
        if call != "dcgmConnect_v2":
            node.process()
            daemon.wait_for(lambda s: find(s, ENERGY))
        else:
            node.dcgm.stop()
            daemon.wait_for(lambda s: up(s) == [0])
            node.dcgm.start()
        node.dcgm.hang(call)
        stuck = daemon.wait_for(
            lambda s: find(s, "gputally_stuck_calls", lane="dcgm") == [1] and up(s) == [0]
        )
        assert not sm(stuck)
        assert not find(stuck, ENERGY)
        moment = find(stuck, "gputally_snapshot_timestamp_seconds")[0]
        later = daemon.wait_for(
            lambda s: find(s, "gputally_snapshot_timestamp_seconds")[0] >= moment + 3 and nvml_goes_on(s)
        )
        assert up(later) == [0]
        node.dcgm.release()
        daemon.wait_for(lambda s: up(s) == [1] and len(sm(s)) == 2)
        node.dcgm.hang(call)
        assert daemon.terminate() == 0
    node.dcgm.release()


# ---- Records of processes ----


def test_two_processes_that_share_a_gpu_are_each_told_all_of_it(node: Node) -> None:
    """The well-known example: 200 W, two processes, and DCGM says 200 W for each."""
    with node.daemon(*RECORDS) as daemon:
        daemon.wait_for(lambda s: up(s) == [1])
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        began = time.time()
        pids = [str(node.process()), str(node.process())]
        samples = daemon.wait_for(
            lambda s: all(find(s, ENERGY, pid=pid) > [600.0] for pid in pids), seconds=60
        )
        told = [find(samples, ENERGY, pid=pid)[0] for pid in pids]
        lived = time.time() - began
        assert abs(told[0] - told[1]) <= 400, "both the same, a sample or two apart"
        assert sum(told) > 1.5 * 200 * (lived - 3.5)
        assert max(told) <= 200 * lived
        text = daemon.get("/metrics").body.decode()
    (words,) = re.findall(f"# HELP {ENERGY} (.*)", text)
    assert "energy of the whole GPU while the process lived" in words
    assert "do not add up" in words
    assert f"# TYPE {ENERGY} gauge" in text
    assert "dcgm" not in re.sub(f'{ENERGY}|source="dcgm"|lane="dcgm"', "", text).replace("DCGM's", "")


def test_an_ended_process_a_blank_and_a_single_sample_have_no_record(node: Node) -> None:
    single = node.process(1)
    with node.daemon(*RECORDS) as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        lives, ended, blank = node.process(), node.process(), node.process(1)
        node.dcgm.gpus[1].every_us = 10**12
        daemon.wait_for(lambda s: find(s, ENERGY, pid=str(ended)) and find(s, ENERGY, pid=str(lives)))
        samples = daemon.wait_for(lambda s: not find(s, ENERGY, gpu="1"))
        for pid in (single, blank):
            assert find(samples, "gputally_process_memory_used_bytes", pid=str(pid))
        node.dcgm.gpus[0].end(ended)
        samples = daemon.wait_for(lambda s: not find(s, ENERGY, pid=str(ended)))
        assert find(samples, "gputally_process_memory_used_bytes", pid=str(ended)), "NVML still lists it"
        assert find(samples, ENERGY, pid=str(lives))


def test_the_window_is_asked_for_and_a_process_that_outlives_it_has_no_record(node: Node) -> None:
    first = 1  # a process that has lived for longer than this test would wait
    with node.daemon(*RECORDS) as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        assert node.dcgm.gpus[0].retention_us == 60 * 10**6
        node.nvml.gpus[0].run(first)
        node.dcgm.gpus[0].run(first, start=time.time() - 30)
        daemon.wait_for(lambda s: find(s, ENERGY, pid="1"))
        node.dcgm.gpus[0].process_table[0].start_us -= 31 * 10**6
        young = node.process()
        daemon.wait_for(lambda s: find(s, ENERGY, pid=str(young)) and not find(s, ENERGY, pid="1"))


def test_a_day_is_kept_in_samples_of_half_a_minute(node: Node) -> None:
    with node.daemon("--process-metrics", "on") as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
    assert node.dcgm.gpus[0].retention_us == 86_400 * 10**6
    assert node.dcgm.gpus[0].every_us == 30 * 10**6


def test_a_record_of_an_earlier_process_with_this_pid_is_not_taken(node: Node) -> None:
    with node.daemon(*RECORDS) as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        time.sleep(3)
        reused, other = node.process(), node.process()
        node.dcgm.gpus[0].process_table[0].start_us -= 4 * 10**6
        samples = daemon.wait_for(lambda s: find(s, ENERGY, pid=str(other)))
        assert not find(samples, ENERGY, pid=str(reused))


@pytest.mark.parametrize("before", [True, False], ids=["from the start", "later"])
def test_rubbish_that_comes_with_success_is_not_shown(node: Node, before: bool) -> None:
    """MIG was turned on behind our back: rc 0 for every pid, with uninitialised numbers."""
    if before:
        node.dcgm.gpus[1].accounting = UNSUPPORTED
    with node.daemon(*RECORDS) as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        good, bad = node.process(0), node.process(1)
        if not before:
            daemon.wait_for(lambda s: find(s, ENERGY, pid=str(bad)))
            node.dcgm.gpus[1].accounting = UNSUPPORTED
        samples = daemon.wait_for(
            lambda s: find(s, ENERGY, pid=str(good)) and not find(s, ENERGY, pid=str(bad))
        )
        assert len(find(samples, ENERGY)) == 1


def test_rubbish_that_looks_true_is_found_out_by_asking_for_nobody(node: Node) -> None:
    node.dcgm.gpus[1].accounting = UNSUPPORTED
    node.dcgm.control.rubbish_us = round((time.time() + 10) * 1e6)
    with node.daemon(*RECORDS) as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        good, bad = node.process(0), node.process(1)
        samples = daemon.wait_for(lambda s: find(s, ENERGY, pid=str(good)))
        time.sleep(2)
        samples = daemon.metrics()
        assert find(samples, ENERGY, pid=str(good))
        assert not find(samples, ENERGY, pid=str(bad))


def test_accounting_is_never_turned_on_through_dcgm(node: Node) -> None:
    node.dcgm.control.root = 1
    for gpu, mode in zip(node.dcgm.gpus, (OFF, ON), strict=True):
        gpu.accounting = mode
    node.nvml.gpus[0].accounting_mode = 0
    with node.daemon(*RECORDS) as daemon:
        daemon.until(lambda: node.dcgm.gpus[1].watched_us)
        hidden, shown = node.process(0), node.process(1)
        samples = daemon.wait_for(lambda s: find(s, ENERGY, pid=str(shown)))
        assert not find(samples, ENERGY, pid=str(hidden))
        assert node.dcgm.gpus[0].accounting == OFF
        assert node.dcgm.gpus[0].watched_us == 0
        node.nvml.gpus[0].accounting_mode = node.dcgm.gpus[0].accounting = ON
        daemon.wait_for(lambda s: find(s, ENERGY, pid=str(hidden)))
    assert node.nvml.calls(0, "nvmlDeviceSetAccountingMode") == 0


def test_an_engine_that_may_not_keep_records_gives_the_rest(node: Node) -> None:
    node.dcgm.gpus[0].accounting = OFF
    with node.daemon(*RECORDS) as daemon:
        node.process(0)
        daemon.line("dcgm gives no records of processes: dcgmWatchPidFields: Operation requires root")
        samples = daemon.wait_for(lambda s: sm(s))
        assert up(samples) == [1]
        assert not find(samples, ENERGY)


def test_records_that_are_slow_to_come_take_turns_and_hold_up_nothing(node: Node) -> None:
    """Over TCP a record takes 90 ms: those of thirty processes take longer than some intervals."""
    node.dcgm.delay("dcgmGetPidInfo", 0.09)
    with node.daemon(*RECORDS, "--process-metrics.top", "100") as daemon:
        daemon.until(lambda: node.dcgm.gpus[0].watched_us)
        pids = [node.process() for _ in range(30)]
        samples = daemon.wait_for(lambda s: len(find(s, ENERGY)) == len(pids))
        assert up(samples) == [1]
        assert len(sm(samples)) == 2
        calls, records = node.dcgm.calls(VALUES), node.dcgm.calls("dcgmGetPidInfo")
        daemon.until(lambda: node.dcgm.calls(VALUES) >= calls + 3)
        records = node.dcgm.calls("dcgmGetPidInfo") - records
        assert records < 2 * len(pids), "the fields are read at every interval all the same"


# ---- Recording ----


def test_a_recording_shows_what_dcgm_told(node: Node, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    command = [sys.executable, "-m", "gputally"]
    run = {"env": environment(node.env) | {"PYTHONWARNINGS": "error"}, "timeout": 60, "check": True}
    subprocess.run([*command, "record", str(folder), *node.flags()], stdout=subprocess.DEVNULL, **run)  # type: ignore[call-overload]
    node.dcgm.stop()
    os.unlink(node.nvml.env["FAKE_NVML_CONTROL"])
    replay = ("show", "--machine", f"recorded:{folder}", "--dcgm", "127.0.0.1:5555")
    text = subprocess.run([*command, *replay], capture_output=True, text=True, env=environment(), timeout=60)
    assert sorted(sm(parse(text.stdout))) == [0.25, 0.5]


def test_there_is_no_dcgm_on_a_simulated_machine(node: Node) -> None:
    flags = ("show", "--machine", "simulated", "--dcgm", "auto")
    result = subprocess.run(
        [sys.executable, "-m", "gputally", *flags], capture_output=True, text=True, timeout=60
    )
    assert not up(parse(result.stdout))
