"""A container whose device rules were taken away, and GPUs that only look like it (F06)."""

import errno
from pathlib import Path

import pytest

from tests.daemon import Daemon, Samples, find
from tests.fakes.nvidiactl import NEVER, FakeNvidiactl
from tests.fakes.nvml import FakeNvml
from tests.faults.nodes import daemon, ended, of, state, well

UNKNOWN, OPERATING_SYSTEM = 999, 17
SHORT = ("--nvml.grace", "1s")
"""After twice of it, the process ends."""


@pytest.fixture
def nvidiactl(tmp_path: Path) -> FakeNvidiactl:
    return FakeNvidiactl(tmp_path)


def refuse(fake: FakeNvml, *places: int, code: int = UNKNOWN) -> None:
    for place in places:
        fake.answer(place, "*", code)


def failing(samples: Samples, fake: FakeNvml, *places: int) -> bool:
    return all(state(samples, fake, place) == "failing" for place in places)


def lives_on(node: Daemon, seconds: float = 5.0) -> bool:
    return ended(node, seconds) is None


@pytest.mark.parametrize("code", [UNKNOWN, OPERATING_SYSTEM])
def test_F06_without_the_right_to_its_devices_it_ends_to_be_started_anew(
    fake: FakeNvml, nvidiactl: FakeNvidiactl, code: int
) -> None:
    with daemon(fake, *SHORT, env=nvidiactl.env) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        nvidiactl.answer(errno.EPERM)
        refuse(fake, 0, 1, 2, 3, code=code)
        assert ended(node) == 78
        assert any("/dev/nvidiactl" in line["msg"] for line in node.log if line["level"] == "error")


@pytest.mark.parametrize("error", [0, errno.EACCES, errno.ENOENT])
def test_F06_all_gpus_refuse_and_the_device_does_not(
    fake: FakeNvml, nvidiactl: FakeNvidiactl, error: int
) -> None:
    with daemon(fake, *SHORT, env=nvidiactl.env) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        nvidiactl.answer(error)
        refuse(fake, 0, 1, 2, 3)
        node.wait_for(lambda s: failing(s, fake, 0, 1, 2, 3))
        assert lives_on(node)


def test_F06_a_device_that_never_opens_is_no_refusal_and_delays_nobody(
    fake: FakeNvml, nvidiactl: FakeNvidiactl
) -> None:
    with daemon(fake, *SHORT, env=nvidiactl.env) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        nvidiactl.answer(NEVER)
        refuse(fake, 0, 1, 2, 3)
        node.wait_for(lambda s: failing(s, fake, 0, 1, 2, 3))
        assert lives_on(node)
        asked = find(node.metrics(), "gputally_snapshot_timestamp_seconds")
        node.wait_for(lambda s: find(s, "gputally_snapshot_timestamp_seconds") > asked)
        assert node.terminate() == 0


def test_F06_one_gpu_that_refuses_is_lost_alone(fake: FakeNvml, nvidiactl: FakeNvidiactl) -> None:
    with daemon(fake, *SHORT, env=nvidiactl.env) as node:
        before = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3) and of(s, fake, 0, "energy_joules_total"))
        nvidiactl.answer(errno.EPERM)
        refuse(fake, 0)
        without = node.wait_for(lambda s: failing(s, fake, 0))
        assert of(without, fake, 0, "up") == 0
        assert of(without, fake, 0, "power_watts") is None
        assert find(without, "gputally_gpu_info", uuid=fake.gpus[0].uuid) == [1]
        kept, was = (of(s, fake, 0, "energy_joules_total") or 0 for s in (without, before))
        assert kept >= was
        assert lives_on(node), "one GPU that answers is reason enough to stay"
        assert well(node.metrics(), fake, 1, 2, 3)
        asked = fake.calls(0, "*")
        fake.answer(0, "*", 0)
        back = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert fake.calls(0, "*") > asked
        assert (of(back, fake, 0, "energy_joules_total") or 0) >= kept


def test_F06_who_never_had_the_right_is_not_started_again_and_again(
    fake: FakeNvml, nvidiactl: FakeNvidiactl
) -> None:
    nvidiactl.answer(errno.EPERM)
    refuse(fake, 0, 1, 2, 3)
    with daemon(fake, *SHORT, env=nvidiactl.env) as node:
        node.wait_for(lambda s: find(s, "gputally_source_up", source="nvml"))
        assert lives_on(node)
