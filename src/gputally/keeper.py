"""Keeps the state while the program runs: saved at every publication, and once more at the end."""

from __future__ import annotations

from gputally.accounts import Books
from gputally.attribute import Memory
from gputally.ledger import Ledger
from gputally.loop import Followed, Outlet
from gputally.machine import Clock, Machine
from gputally.state import State
from gputally.writing import Writer


class Keeper:
    """Saves what the ledger knows."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._writer = Writer(state.file, "a restart would lose what comes now")

    def load(self) -> tuple[Books, Memory]:
        """What the exporter before this one knew."""
        return self._state.load(self._clock.monotonic(), self._clock.time())

    def behind(self, outlet: Outlet, ledger: Ledger) -> Outlet:
        """The outlet, with a save after each publication."""
        return Followed(outlet, lambda: self._begin(ledger))

    async def end(self, ledger: Ledger) -> None:
        """Save what came last."""
        sealed = self._state.seal(ledger, self._clock.time())
        await self._writer.write(lambda: self._state.save(sealed))

    def _begin(self, ledger: Ledger) -> None:
        if not self._writer.busy:  # sealing costs more than the rest
            sealed = self._state.seal(ledger, self._clock.time())
            self._writer.begin(lambda: self._state.save(sealed))


def boot_id(machine: Machine) -> str:
    """What tells one start of the computer from another."""
    if machine.name != "local":
        return machine.name
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
