"""The clocks."""

from __future__ import annotations

import asyncio

from gputally.machine.clocks import RealClock, VirtualClock


def test_a_virtual_clock_is_there_at_once_and_never_goes_back() -> None:
    clock = VirtualClock(start=5.0, epoch=100.0)
    asyncio.run(clock.until(3_605.0))
    asyncio.run(clock.until(10.0))
    assert (clock.monotonic(), clock.time()) == (3_605.0, 3_700.0)


def test_the_real_clock_waits() -> None:
    clock = RealClock()
    moment = clock.monotonic() + 0.02
    asyncio.run(clock.until(moment))
    assert clock.monotonic() >= moment - 1e-6
    asyncio.run(clock.until(moment - 1_000))
