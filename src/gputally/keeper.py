"""Keeps the state while the program runs: saved in a lane at every publication, so no disk holds us up."""

from __future__ import annotations

import asyncio
import logging

from gputally.accounts import Books
from gputally.attribute import Memory
from gputally.lanes import Lane
from gputally.ledger import Ledger
from gputally.loop import Followed, Outlet
from gputally.machine import Clock, Machine
from gputally.model import Unreadable
from gputally.state import State

log = logging.getLogger(__name__)

DEADLINE = 10.0


class Keeper:
    """Saves what the ledger knows, and says once when it cannot."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._lane = Lane("state")
        self._failing = False
        self._saving: asyncio.Task[None] | None = None

    def load(self) -> tuple[Books, Memory]:
        """What the exporter before this one knew."""
        return self._state.load(self._clock.monotonic(), self._clock.time())

    async def save(self, ledger: Ledger) -> None:
        """Save now; while an older save is under way there is nothing to do."""
        if self._lane.busy:
            return
        sealed = self._state.seal(ledger, self._clock.time())
        try:
            await self._lane.ask(lambda: self._state.save(sealed), DEADLINE)
        except (OSError, Unreadable) as error:
            if not self._failing:
                log.warning("totals cannot be saved, and a restart would lose what comes now: %s", error)
            self._failing = True
        else:
            if self._failing:
                log.info("totals are saved again")
            self._failing = False

    def behind(self, outlet: Outlet, ledger: Ledger) -> Outlet:
        """The outlet, with a save after each publication."""
        return Followed(outlet, lambda: self._begin(ledger))

    def _begin(self, ledger: Ledger) -> None:
        self._saving = asyncio.ensure_future(self.save(ledger))


def boot_id(machine: Machine) -> str:
    """What tells one start of the computer from another."""
    if machine.name != "local":
        return machine.name
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
