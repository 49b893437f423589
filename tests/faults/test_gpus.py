"""GPUs that hang, fall off the bus, want a reset, move, are slow, or not there (F01 to F03, F07, F19)."""

import subprocess
from pathlib import Path

import pytest

from tests.daemon import GPUTALLY, PATIENCE, environment, find
from tests.fakes.nvml import FakeNvml
from tests.faults.nodes import daemon, of, state, well

STRANGER = "GPU-ffffffff-5eed-4a11-8b0b-ffffffffffff"
POWER, THROUGHPUT = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetPcieThroughput"


def test_F01_a_gpu_that_hangs_stops_nobody_and_heals(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        fake.hang(1, POWER)
        node.wait_for(lambda s: state(s, fake, 1) == "hung")
        asked, others = fake.calls(1, "*"), fake.calls(0, POWER)
        hung = node.wait_for(lambda s: fake.calls(0, POWER) > others + 2 and well(s, fake, 0, 2, 3))
        assert fake.calls(1, "*") == asked, "a second call on a GPU that hangs"
        assert of(hung, fake, 1, "up") == 0
        assert of(hung, fake, 1, "power_watts") is None
        assert of(hung, fake, 1, "energy_joules_total") is not None
        assert find(hung, "gputally_stuck_calls", lane="gpu1") == [1]
        assert node.get("/-/healthy").status == node.get("/-/ready").status == 200
        fake.release(1)
        back = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert find(back, "gputally_stuck_calls", lane="gpu1") == [0]
        assert fake.overlaps == 0


def test_F02_a_lost_gpu_keeps_its_name_and_counters_and_comes_back(fake: FakeNvml) -> None:
    fake.gpus[2].pcie_bytes[0] = 4711
    with daemon(fake) as node:
        before = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        fake.lose(2, handles=True)
        lost = node.wait_for(lambda s: state(s, fake, 2) == "lost")
        assert of(lost, fake, 2, "up") == 0
        assert find(lost, "gputally_gpu_info", uuid=fake.gpus[2].uuid, model="NVIDIA H100 80GB HBM3") == [1]
        assert of(lost, fake, 2, "temperature_celsius", sensor="gpu") is None
        assert of(lost, fake, 2, "pcie_transmit_bytes_total") == 4711
        total = of(lost, fake, 2, "energy_joules_total")
        assert total is not None
        assert total >= (of(before, fake, 2, "energy_joules_total") or 0)
        fake.find(2)
        back = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert (of(back, fake, 2, "energy_joules_total") or 0) >= total


def test_F03_a_gpu_that_wants_a_reset_says_so(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1))
        fake.answer(1, "*", 16)
        wants = node.wait_for(lambda s: state(s, fake, 1) == "reset_required")
        assert well(wants, fake, 0)
        fake.gpus[1].recovery_action = 1
        fake.answer(1, "*", 0)
        after = node.wait_for(lambda s: well(s, fake, 1))
        assert of(after, fake, 1, "recovery_action", action="gpu_reset") == 1
        assert of(after, fake, 1, "recovery_action", action="none") == 0


def test_F07_indexes_shift_and_no_series_changes_its_owner(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        before = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        fake.arrange([3, 1, 2])
        after = node.wait_for(
            lambda s: (
                state(s, fake, 0) == "lost"
                and well(s, fake, 1, 2, 3)
                and of(s, fake, 3, "power_watts", gpu="0") is not None
            )
        )
        assert len(find(after, "gputally_gpu_power_watts")) == 3
        for place in (1, 2, 3):
            total = of(after, fake, place, "energy_joules_total") or 0
            assert total >= (of(before, fake, place, "energy_joules_total") or 0)
            assert of(after, fake, place, "energy_resets_total") == 0
            assert of(after, fake, place, "energy_discarded_joules_total") == 0
        fake.arrange([0, 1, 2, 3])
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3) and of(s, fake, 3, "up", gpu="3") == 1)


def test_F19_what_costs_is_asked_on_demand_and_a_slow_gpu_less_often(fake: FakeNvml) -> None:
    fake.delay(0, POWER, 0.4)
    with daemon(fake) as node:
        slow = node.wait_for(lambda s: fake.calls(1, POWER) >= 14 and well(s, fake, 0, 1))
        assert fake.calls(0, POWER) <= 10 < fake.calls(1, POWER)
        assert fake.calls(0, THROUGHPUT) == fake.calls(1, THROUGHPUT) == 0
        [seconds] = find(slow, "gputally_nvml_call_seconds_total", call=POWER)
        [calls] = find(slow, "gputally_nvml_calls_total", call=POWER)
        assert seconds >= 0.4
        assert calls >= 14


def test_F19_pcie_throughput_comes_when_it_is_asked_for(fake: FakeNvml, tmp_path: Path) -> None:
    fake.gpus[0].pcie_throughput_kb[1] = 2500
    with daemon(fake, "--nvml.pcie-throughput") as node:
        samples = node.wait_for(lambda s: well(s, fake, 0))
        assert of(samples, fake, 0, "pcie_bytes_per_second", direction="receive") == 2_500_000


def test_a_driver_without_gpus_is_down_and_one_line_says_what_would_help(fake: FakeNvml) -> None:
    fake.arrange([])
    with daemon(fake) as node:
        none = node.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [0])
        assert find(none, "gputally_up") == [0]
        asked = find(none, "gputally_snapshot_timestamp_seconds")[0]
        node.wait_for(lambda s: find(s, "gputally_snapshot_timestamp_seconds")[0] > asked + 2)
        said = [line["msg"] for line in node.log if line["level"] == "warning"]
        assert len(said) == 1, said
        assert "NVIDIA_VISIBLE_DEVICES" in said[0]
        fake.arrange([0, 1])
        back = node.wait_for(lambda s: well(s, fake, 0, 1))
        assert find(back, "gputally_up") == [1]


def test_gpus_that_are_chosen_and_not_there_are_named_once(fake: FakeNvml) -> None:
    with daemon(fake, "--gpus", f"0,9,{STRANGER},{fake.gpus[2].uuid}") as node:
        samples = node.wait_for(lambda s: well(s, fake, 0, 2))
        assert len(find(samples, "gputally_gpu_up")) == 2
        asked = fake.calls(0, POWER)
        node.wait_for(lambda s: fake.calls(0, POWER) > asked + 2)
        said = [line["msg"] for line in node.log if line["level"] == "warning"]
        assert len(said) == 1, said
        assert f"--gpus 9,{STRANGER}" in said[0]
        assert find(samples, "gputally_source_up", source="nvml") == [1]


@pytest.mark.parametrize("gpus", ["9", STRANGER, f"9,{STRANGER}"])
def test_without_any_of_the_chosen_gpus_nothing_answers(fake: FakeNvml, gpus: str) -> None:
    words = [*GPUTALLY, "show", "--nvml.library", str(fake.library), "--gpus", gpus, "--tick", "100ms"]
    done = subprocess.run(words, env=environment(fake.env), capture_output=True, timeout=PATIENCE, text=True)
    assert done.returncode == 1
    assert "gputally_up 0" in done.stdout.splitlines()
    assert done.stderr.count(f"--gpus {gpus}: not there") == 1
