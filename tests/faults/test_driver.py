"""A driver that comes late, hangs, is replaced, counts anew (F01, F04, F05, F17)."""

import shutil
from pathlib import Path

from tests.daemon import Daemon, find
from tests.fakes.nvml import FakeNvml
from tests.faults.nodes import QUICK, US, daemon, ended, of, state, well

INIT, MISMATCH = "nvmlInit_v2", 18
WORK_ENERGY = "gputally_workload_energy_joules_total"


def test_F04_the_library_and_the_driver_come_late(fake: FakeNvml, tmp_path: Path) -> None:
    late = tmp_path / "late" / "libnvidia-ml.so.1"
    late.parent.mkdir()
    fake.answer(None, INIT, 9, times=2)
    with Daemon("--nvml.library", str(late), *QUICK, env=fake.env) as node:
        down = node.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [0])
        assert find(down, "gputally_up") == [0]
        assert find(down, "gputally_gpu_up") == []
        assert node.get("/-/healthy").status == 200
        shutil.copy(fake.library, late)
        up = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert find(up, "gputally_up") == [1]
        assert fake.calls(None, INIT) == 3


def test_F01_a_driver_that_hangs_at_the_start_is_told_and_heals(fake: FakeNvml) -> None:
    fake.hang(None, INIT)
    with daemon(fake) as node:
        hung = node.wait_for(lambda s: find(s, "gputally_stuck_calls", lane="driver") == [1])
        assert find(hung, "gputally_source_up", source="nvml") == [0]
        assert node.get("/-/healthy").status == node.get("/-/ready").status == 200
        assert fake.calls(None, INIT) == 1
        fake.release(None)
        back = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert find(back, "gputally_stuck_calls", lane="driver") == [0]


def test_F05_a_replaced_driver_is_served_for_a_while_and_then_ends_us(fake: FakeNvml) -> None:
    fake.gpus[1].run(US)
    fake.gpus[1].busy({US: 50})
    fake.gpus[2].pcie_bytes[0] = 4711
    with daemon(fake, "--nvml.grace", "5s") as node:
        before = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3) and sum(find(s, WORK_ENERGY)))
        replace_driver(fake)
        mismatch = node.wait_for(lambda s: find(s, "gputally_nvml_library_mismatch") == [1])
        assert find(mismatch, "gputally_source_up", source="nvml") == [0]
        assert find(mismatch, "gputally_up") == [0]
        assert [state(mismatch, fake, place) for place in range(4)] == ["unread"] * 4
        assert find(mismatch, "gputally_gpu_up") == [0, 0, 0, 0]
        assert len(find(mismatch, "gputally_gpu_info", model="NVIDIA H100 80GB HBM3")) == 4
        assert find(mismatch, "gputally_gpu_power_watts") == find(mismatch, "gputally_gpu_processes") == []
        assert of(mismatch, fake, 2, "pcie_transmit_bytes_total") == 4711
        for name in (
            "gputally_gpu_energy_joules_total",
            WORK_ENERGY,
            "gputally_namespace_energy_joules_total",
        ):
            assert len(find(mismatch, name)) == len(find(before, name))
            assert sum(find(mismatch, name)) >= sum(find(before, name)) > 0
        assert ended(node) == 78
        assert any("restart" in line["msg"] for line in node.log if line["level"] == "error")
        assert not any(" is unread" in line["msg"] for line in node.log)


def test_F05_nobody_is_ended_who_does_not_want_it(fake: FakeNvml) -> None:
    with daemon(fake, "--nvml.grace", "0s") as node:
        node.wait_for(lambda s: well(s, fake, 0))
        replace_driver(fake)
        node.wait_for(lambda s: find(s, "gputally_nvml_library_mismatch") == [1])
        tried = fake.calls(None, INIT)
        node.wait_for(lambda s: fake.calls(None, INIT) > tried + 1)
        fake.arrange([0, 1, 2])
        fake.answer(None, INIT, 0)
        for place in range(4):
            fake.answer(place, "*", 0)
        back = node.wait_for(
            lambda s: well(s, fake, 0, 1, 2) and find(s, "gputally_nvml_library_mismatch") == [0]
        )
        assert state(back, fake, 3) == "lost"
        assert of(back, fake, 3, "energy_joules_total") is not None


def replace_driver(fake: FakeNvml) -> None:
    fake.answer(None, INIT, MISMATCH)
    for place in range(4):
        fake.answer(place, "*", MISMATCH)


def test_F17_a_counter_that_starts_again_or_leaps_takes_nothing_back(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        before = node.wait_for(lambda s: well(s, fake, 0, 1) and of(s, fake, 0, "energy_joules_total"))
        fake.gpus[0].reset()
        fake.gpus[1].jump(56_000_000_000_000)
        after = node.wait_for(
            lambda s: (
                of(s, fake, 0, "energy_resets_total") == 1 and of(s, fake, 1, "energy_discarded_joules_total")
            )
        )
        total = of(after, fake, 0, "energy_joules_total") or 0
        assert total >= (of(before, fake, 0, "energy_joules_total") or 0)
        assert (of(after, fake, 1, "energy_joules_total") or 0) < 1_000_000


def test_F17_a_counter_that_stands_still_is_stood_in_for_by_power(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1) and of(s, fake, 0, "energy_joules_total"))
        fake.gpus[0].freeze()
        frozen = node.wait_for(lambda s: of(s, fake, 0, "energy_integrated") == 1)
        assert of(frozen, fake, 1, "energy_integrated") == 0
        total = of(frozen, fake, 0, "energy_joules_total") or 0
        later = node.wait_for(lambda s: (of(s, fake, 0, "energy_joules_total") or 0) > total + 100)
        assert of(later, fake, 0, "energy_discarded_joules_total") == 0
        fake.gpus[0].thaw()
        moving = node.wait_for(lambda s: of(s, fake, 0, "energy_integrated") == 0)
        assert (of(moving, fake, 0, "energy_joules_total") or 0) > total
        assert of(moving, fake, 0, "energy_resets_total") == 0
