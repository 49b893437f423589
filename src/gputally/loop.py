"""The two paces on one loop: every tick is collected and posted, every interval is published."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from gputally.collect import Collector
from gputally.ledger import Ledger
from gputally.machine import Clock
from gputally.model import Pace
from gputally.tally import Tally

log = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where Tallies go."""

    @property
    def served(self) -> bool:
        """Whether somebody has read the newest Tally."""

    def publish(self, tally: Tally) -> int:
        """Show this Tally from now on; tells how many series had to be left out."""

    def failed(self, faults: int) -> None:
        """A tick failed, and this many have so far."""


class Followed:
    """An outlet, with something done after each publication."""

    def __init__(self, outlet: Outlet, after: Callable[[], None]) -> None:
        self._outlet = outlet
        self._after = after

    @property
    def served(self) -> bool:
        """Whether somebody has read the newest Tally."""
        return self._outlet.served

    def publish(self, tally: Tally) -> int:
        """Publish, and then do it."""
        dropped = self._outlet.publish(tally)
        self._after()
        return dropped

    def failed(self, faults: int) -> None:
        """A tick failed, and this many have so far."""
        self._outlet.failed(faults)


async def run(
    clock: Clock,
    collector: Collector,
    ledger: Ledger,
    outlet: Outlet,
    *,
    tick: float,
    interval: float,
    stop: asyncio.Event,
    over: Callable[[], object] = lambda: None,
) -> None:
    """Tick until told to stop, or until it is over; a tick that is late does not make the next one early."""
    ticks = max(1, round(interval / tick))
    number, due = 0, clock.monotonic()
    fault: str | None = None
    up = False  # until something answers, every tick is an interval, so that nothing is shown late
    stopped = asyncio.ensure_future(stop.wait())
    while not stop.is_set() and not over():
        try:
            if outlet.served:
                ledger.was_scraped(clock.monotonic())
            tally = await once(collector, ledger, Pace.TICK if number % ticks and up else Pace.INTERVAL)
            if tally is not None:
                up = any(health.up for health in tally.snapshot.health)
                ledger.count_dropped("collision", outlet.publish(tally))
            fault = None
        except Exception as error:  # the outermost loop: whatever it is, the next tick is tried
            ledger.faults += 1
            outlet.failed(ledger.faults)
            if repr(error) != fault:
                log.exception("this tick failed, and so may the next; gputally_faults_total counts them")
            fault = repr(error)
        number += 1
        due = max(due + tick, clock.monotonic())
        await clock.until(due, unless=stopped)


async def once(collector: Collector, ledger: Ledger, pace: Pace) -> Tally | None:
    """One tick; at the interval's pace everything is read and a Tally is made."""
    snapshot = await collector.collect(pace)
    ledger.post(snapshot)
    return ledger.tally(snapshot) if pace is Pace.INTERVAL else None
