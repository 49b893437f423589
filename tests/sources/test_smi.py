"""nvidia-smi where NVML cannot be loaded: by the names of its columns, and never in anybody's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gputally.model import Unreadable
from gputally.sources.smi_table import GPU_COLUMNS, read_table, values
from tests.daemon import GPUTALLY, Daemon, Samples, environment, find
from tests.fakes.nvml import FakeNvml
from tests.fakes.smi import APPS, GPUS, UUIDS, FakeSmi

FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path / "smi")


def daemon(smi: FakeSmi, *flags: str, library: str = "/nowhere/libnvidia-ml.so.1") -> Daemon:
    own = ("--nvml.library", library, "--interval", "1s", "--tick", "1s", "--smi.deadline", "1s")
    return Daemon(*own, *flags, env=smi.env)


def up(samples: Samples, state: float = 1) -> bool:
    return find(samples, "gputally_source_up", source="smi") == [state]


def test_gpus_and_their_processes(smi: FakeSmi) -> None:
    smi.apps = APPS + f"{UUIDS[0]}, {os.getpid()}, 512\n{UUIDS[1]}, {os.getppid()}, [N/A]\n"
    with daemon(smi) as server:
        samples = server.wait_for(up)
        assert find(samples, "gputally_source_up", source="nvml") == [0]
        assert find(samples, "gputally_up") == [1]
        first = {"uuid": UUIDS[0], "gpu": "0"}
        assert find(samples, "gputally_gpu_utilization_ratio", **first) == [0.87]
        assert find(samples, "gputally_gpu_memory_total_bytes", **first) == [40960 * 2**20]
        assert find(samples, "gputally_gpu_power_watts", **first) == [62.31]
        assert find(samples, "gputally_gpu_clock_hertz", clock="sm", **first) == [1.41e9]
        assert find(samples, "gputally_gpu_temperature_celsius", **first) == [31]
        assert find(samples, "gputally_gpu_performance_state", **first) == [0]
        assert find(samples, "gputally_gpu_fan_speed_ratio", **first) == [0.3]
        assert find(samples, "gputally_gpu_fan_speed_ratio", uuid=UUIDS[1]) == []
        assert find(samples, "gputally_gpu_info", model="Tesla T4", driver_version="550.54.15") == [1]
        grown = server.wait_for(lambda s: sum(find(s, "gputally_gpu_energy_joules_total", **first)) > 50)
        if find(grown, "gputally_host_pid", mode="no") != [1]:
            assert find(grown, "gputally_workload_memory_used_bytes", **first) == [512 * 2**20]


def test_it_is_never_started_while_nvml_works(smi: FakeSmi, tmp_path: Path, nvml_library: Path) -> None:
    (tmp_path / "nvml").mkdir()
    fake = FakeNvml(tmp_path / "nvml", 1, library=nvml_library)
    flags = ("--nvml.library", str(fake.library), "--interval", "1s")
    with Daemon(*flags, env={**fake.env, **smi.env}) as server:
        before = server.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [1])
        start = find(before, "gputally_snapshot_timestamp_seconds")[0]
        after = server.wait_for(lambda s: find(s, "gputally_snapshot_timestamp_seconds")[0] > start + 2)
        assert find(after, "gputally_source_up", source="smi") == []
    assert smi.started == []


def test_it_is_let_go_when_nvml_comes(smi: FakeSmi, tmp_path: Path, nvml_library: Path) -> None:
    (tmp_path / "nvml").mkdir()
    fake = FakeNvml(tmp_path / "nvml", 1, library=nvml_library)
    late = tmp_path / "late" / "libnvidia-ml.so.1"
    late.parent.mkdir()
    flags = ("--nvml.library", str(late), "--interval", "1s")
    with Daemon(*flags, env={**fake.env, **smi.env}) as server:
        server.wait_for(up)
        shutil.copy(fake.library, late)
        samples = server.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [1])
        samples = server.wait_for(lambda s: not find(s, "gputally_source_up", source="smi"))
        assert find(samples, "gputally_gpu_up", uuid=UUIDS[0]) == []
        started = len(smi.started)
        time.sleep(2.5)
        assert len(smi.started) == started


def test_off_and_on(smi: FakeSmi) -> None:
    with daemon(smi, "--smi", "off") as server:
        samples = server.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [0])
        assert find(samples, "gputally_source_up", source="smi") == []
    assert smi.started == []
    with daemon(smi, "--smi", "on") as server:
        assert find(server.wait_for(up), "gputally_source_up", source="nvml") == []


def test_without_it_nothing_more_is_said(smi: FakeSmi) -> None:
    (smi.folder / "nvidia-smi").unlink()
    with daemon(smi) as server:
        samples = server.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [0])
        assert find(samples, "gputally_source_up", source="smi") == []


@pytest.mark.parametrize(
    "mark",
    [
        "[N/A]",
        "[Not Supported]",
        "[Insufficient Permissions]",
        "ERR!",
        "[Unknown Error]",
        "N/A",
        "",
        "[GPU is lost]",
    ],
)
def test_f11_an_absent_field_is_absent_alone(mark: str) -> None:
    table = read_table(GPUS.replace(" 62.31,", f" {mark},").encode(), ("uuid",))
    found = values(table, table.rows[0], info=False)
    assert "power_watts" not in found
    assert found["utilization_ratio"] == 0.87
    assert values(table, table.rows[1], info=False)["power_watts"] == 9.5
    nameless = read_table(GPUS.replace(" NVIDIA A100,", f" {mark},").encode(), ("uuid",))
    assert "model" not in values(nameless, nameless.rows[0], info=True)
    assert values(nameless, nameless.rows[1], info=True)["model"] == "Tesla T4"


def test_columns_are_found_by_name_in_any_order() -> None:
    lines = [line.split(", ") for line in GPUS.splitlines()]
    turned = "\n".join(", ".join(reversed(line)) for line in lines) + "\n"
    one, other = read_table(GPUS.encode(), ()), read_table(turned.encode(), ())
    for row, twin in zip(one.rows, other.rows, strict=True):
        assert values(one, row, info=False) == values(other, twin, info=False)
        assert values(one, row, info=True) == values(other, twin, info=True)


@pytest.mark.parametrize(
    ("header", "cell", "expected"),
    [
        ("memory.total [MiB]", "2", 2 * 2**20),
        ("memory.total [KiB]", "2", 2 * 2**10),
        ("memory.total [GiB]", "2", 2 * 2**30),
        ("memory.total [MiB]", "2 MiB", 2 * 2**20),
        ("memory.total", "2 MiB", 2 * 2**20),
        ("memory.total [furlongs]", "2", None),
        ("memory.total [MiB]", "two", None),
        ("memory.total [MiB]", "nan", None),
    ],
)
def test_units_are_those_of_the_header(header: str, cell: str, expected: int | None) -> None:
    table = read_table(f"uuid, {header}\nx, {cell}\n".encode(), ())
    assert values(table, table.rows[0], info=False).get("memory_total_bytes") == expected


def test_a_table_with_one_column_will_do() -> None:
    table = read_table(f"uuid\n{UUIDS[0]}\n".encode(), ("uuid",))
    assert values(table, table.rows[0], info=False) == {}


@pytest.mark.parametrize(
    "text", ["", "\x00\xff\n", "NVIDIA-SMI has failed\n", "index\n0\n", "uuid, uuid\n", "<html>\n"]
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        read_table(text.encode("latin-1"), ("uuid",))


def test_rows_that_were_cut_short_are_dropped() -> None:
    for end in range(len(GPUS) - 1, GPUS.index("\n") + 1, -1):
        table = read_table(GPUS[:end].encode(), ("uuid",))
        assert len(table.rows) <= 1
        for row in table.rows:
            assert table.number(row, "power.draw") == 62.31


def test_rows_that_make_no_sense_are_counted_and_the_rest_is_shown(smi: FakeSmi) -> None:
    smi.gpus = GPUS + "2, not-a-uuid" + ", 0" * 12 + "\n3, too, few\n"
    smi.apps = APPS + f"{UUIDS[0]}, -7, 1\n{UUIDS[0]}, {2**80}, 1\n"
    with daemon(smi) as server:
        samples = server.wait_for(up)
        assert len(find(samples, "gputally_gpu_power_watts")) == 2
        assert find(samples, "gputally_samples_dropped_total", reason="smi_malformed")[0] >= 4


def test_an_old_one_is_not_asked_again_for_columns_it_does_not_know(smi: FakeSmi) -> None:
    refused = "memory.reserved", "utilization.encoder"
    lines = [
        f'case "$1" in *{name}*) echo "Field \\"{name}\\" is not a valid field to query."; exit 2 ;; esac'
        for name in refused
    ]
    smi.first("\n".join(lines))
    assert all(any(column.name == name for column in GPU_COLUMNS) for name in refused)
    with daemon(smi) as server:
        server.wait_for(up)
        started = len(smi.started)
        time.sleep(3.2)
        assert len(smi.started) - started <= 2 * 4 + 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            'echo "NVIDIA-SMI has failed because it could not communicate with the driver"; exit 9',
            "has failed because",
        ),
        ("exec yes 0123456789", "wrote more than"),
        ("head -c 100000 /dev/urandom; exit 0", "not a table|column"),
        ("trap '' TERM; while :; do sleep 1; done", "had not ended"),
        ("(trap '' TERM HUP; exec sleep 600) & echo $! >> $here/started; exit 0", "had not ended"),
        ("exec >&-; sleep 600", "had not ended"),
        ("kill -9 $$", "ended with -9"),
        ("exit 0", "not a table"),
    ],
    ids=["driver", "huge", "garbage", "hangs", "leaves-a-child", "closes-its-output", "killed", "nothing"],
)
def test_a_bad_one_is_down_for_a_reason_and_comes_back(smi: FakeSmi, script: str, reason: str) -> None:
    smi.first(script)
    with daemon(smi) as server:
        server.line(f"smi is down: nvidia-smi: .*({reason})")
        samples = server.wait_for(lambda s: up(s, 0))
        assert find(samples, "gputally_gpu_power_watts") == []
        smi.first("")
        assert find(server.wait_for(up), "gputally_gpu_up") == [1, 1]
        children = [pid for pid in smi.started if Path(f"/proc/{pid}").exists()]
        assert len(children) <= 1, "children that were killed are still there"


def test_gauges_are_withdrawn_when_it_begins_to_hang(smi: FakeSmi) -> None:
    with daemon(smi) as server:
        server.wait_for(up)
        smi.first("sleep 600")
        samples = server.wait_for(lambda s: up(s, 0))
        assert find(samples, "gputally_gpu_power_watts") == []
        assert find(samples, "gputally_gpu_state", state="hung") == [1, 1]
        assert server.terminate() == 0


@pytest.fixture
def freezer() -> Iterator[Path]:
    group = FREEZER / f"gputally-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("this machine has no cgroup-v1 freezer for us")
    yield group
    (group / "freezer.state").write_text("THAWED")
    for _ in range(100):
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


def test_f01_a_child_in_d_state_is_left_alone_and_no_other_is_started(smi: FakeSmi, freezer: Path) -> None:
    smi.first(f"echo $$ > {freezer}/cgroup.procs; echo FROZEN > {freezer}/freezer.state; sleep 0.01")
    with daemon(smi) as server:
        server.line("smi is down: .*no other is started")
        assert Path(f"/proc/{smi.started[0]}/stat").read_text().split(") ")[1][0] == "D"
        for _ in range(5):
            server.metrics()
            time.sleep(0.5)
        assert len(smi.started) == 1
        smi.first("")
        (freezer / "freezer.state").write_text("THAWED")
        server.wait_for(up)
        assert not Path(f"/proc/{smi.started[0]}").exists(), "it was not reaped"


def test_f01_a_child_in_d_state_does_not_keep_us_from_ending(smi: FakeSmi, freezer: Path) -> None:
    smi.first(f"echo $$ > {freezer}/cgroup.procs; echo FROZEN > {freezer}/freezer.state; sleep 0.01")
    with daemon(smi) as server:
        server.line("smi is down: .*had not ended")
        assert server.terminate() == 0


def test_a_recording_has_what_it_wrote(smi: FakeSmi, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    flags = ["--nvml.library", "/nowhere", "--log.level", "error"]
    env = environment(smi.env)
    subprocess.run([*GPUTALLY, "record", str(folder), *flags], env=env, check=True, timeout=60)
    shown = subprocess.run(
        [*GPUTALLY, "show", "--machine", f"recorded:{folder}"],
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert shown.returncode == 0
    assert b'gputally_source_up{source="smi"} 1\n' in shown.stdout
    assert b"gputally_gpu_power_watts" in shown.stdout


def test_a_simulated_machine_has_one_too() -> None:
    command = [*GPUTALLY, "show", "--machine", "simulated", "--smi", "on"]
    shown = subprocess.run(command, env=environment(), capture_output=True, timeout=60)
    assert shown.returncode == 0
    assert b'gputally_source_up{source="smi"} 1\n' in shown.stdout
    assert b"gputally_workload_memory_used_bytes{" in shown.stdout
