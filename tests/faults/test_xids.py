"""Xids: counted, never sticky, and told even after a GPU of the set was lost (F21)."""

import pytest

from tests.daemon import Samples, find
from tests.fakes.nvml import FakeNvml
from tests.faults.nodes import daemon, of, state, well

REGISTER = "nvmlDeviceRegisterEvents"


def test_F21_xids_are_counted_with_the_time_of_the_last(fake: FakeNvml) -> None:
    fake.xid(0, 62)
    with daemon(fake) as node:
        before = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert find(before, "gputally_gpu_xid_errors_total") == []
        fake.xid(0, 31)
        fake.xid(1, 13)
        fake.xid(0, 31)
        told = node.wait_for(lambda s: xids(s, fake, 0, 31) == 2 and xids(s, fake, 1, 13) == 1)
        assert len(find(told, "gputally_gpu_xid_errors_total")) == 2
        [now] = find(told, "gputally_snapshot_timestamp_seconds")
        assert 0 <= now - (of(told, fake, 0, "xid_last_timestamp_seconds", xid="31") or 0) < 60


def test_F21_a_lost_gpu_does_not_silence_the_others(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        fake.xid(2, 79)
        fake.lose(2, handles=True)
        lost = node.wait_for(lambda s: state(s, fake, 2) == "lost" and xids(s, fake, 2, 79) == 1)
        assert well(lost, fake, 0, 1, 3)
        sets = fake.calls(None, "nvmlEventSetCreate")
        node.wait_for(lambda s: fake.calls(None, "nvmlEventSetCreate") > sets or sets > 1)
        node.wait_for(lambda s: tell(fake, 0, 31) and (xids(s, fake, 0, 31) or 0) > 0)
        fake.find(2)
        node.wait_for(lambda s: well(s, fake, 2))
        node.wait_for(lambda s: tell(fake, 2, 94) and (xids(s, fake, 2, 94) or 0) > 0)
        assert fake.control.event_sets == 1


@pytest.mark.parametrize("code", [999, 17])
def test_F21_a_gpu_that_could_not_be_registered_is_tried_again(fake: FakeNvml, code: int) -> None:
    fake.answer(0, REGISTER, code, times=2)
    with daemon(fake) as node:
        node.wait_for(lambda s: tell(fake, 0, 31) and (xids(s, fake, 0, 31) or 0) > 0)
        assert fake.calls(0, REGISTER) == 3
        assert fake.calls(1, REGISTER) == 1
        assert find(node.metrics(), "gputally_nvml_errors_total", call=REGISTER) == [2]


@pytest.mark.parametrize("code", [3, 4])
def test_F21_a_gpu_that_cannot_be_registered_is_let_alone(fake: FakeNvml, code: int) -> None:
    fake.answer(0, REGISTER, code)
    with daemon(fake) as node:
        node.wait_for(lambda s: fake.calls(0, "nvmlDeviceGetPowerUsage") > 3 and well(s, fake, 0, 1))
        assert fake.calls(0, REGISTER) == 1


def test_F21_a_gpu_that_was_not_well_is_registered_anew(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1))
        fake.answer(1, "*", 16)
        node.wait_for(lambda s: state(s, fake, 1) == "reset_required")
        assert fake.calls(1, REGISTER) == 1
        fake.answer(1, "*", 0)
        node.wait_for(lambda s: well(s, fake, 1))
        assert fake.calls(1, REGISTER) == 2
        assert fake.calls(0, REGISTER) == 1
        node.wait_for(lambda s: tell(fake, 1, 94) and (xids(s, fake, 1, 94) or 0) > 0)


def test_F21_a_wait_that_hangs_stops_nobody(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1))
        fake.hang(None, "nvmlEventSetWait_v2")
        hung = node.wait_for(lambda s: find(s, "gputally_stuck_calls", lane="events") == [1])
        assert well(hung, fake, 0, 1, 2, 3)
        fake.release(None)
        node.wait_for(lambda s: find(s, "gputally_stuck_calls", lane="events") == [0])
        node.wait_for(lambda s: tell(fake, 0, 43) and (xids(s, fake, 0, 43) or 0) > 0)


def xids(samples: Samples, fake: FakeNvml, place: int, xid: int) -> float | None:
    return of(samples, fake, place, "xid_errors_total", xid=str(xid))


def tell(fake: FakeNvml, place: int, xid: int) -> bool:
    """One more; what happens while nobody is registered is not told to anybody."""
    fake.xid(place, xid)
    return True
