"""The driver under the GPUs: started, counted, lost, given up, and let go of when we are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import LIBRARY_MISMATCH, YIELDED, Unreadable
from gputally.sources.nvml_ask import MALFORMED
from gputally.sources.nvml_codes import LIBRARY_NOT_FOUND, OPERATING_SYSTEM, UNINITIALIZED, UNKNOWN
from gputally.sources.nvml_rights import DEVICE, Rights

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
MOST_GPUS = 256
"""More than any computer has: each costs memory and calls."""
FIX = (
    "is the NVIDIA driver loaded and its library visible here (in a container: the nvidia runtime or CDI)? "
    "--nvml.library names another library; --machine simulated shows gputally without a GPU"
)
MISMATCH = "the driver was replaced under this process, whose library is of the old one"
DEPRIVED = f"every GPU refuses and {DEVICE} may no longer be opened: our container lost its device rules"


class Doom:
    """Why this process cannot get at the GPUs again, and since when; only a restart helps."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        """Seconds to go on serving; 0 = for ever."""
        self._since: dict[str, float] = {}

    def note(self, reason: str, holds: bool, now: float) -> None:
        """Whether a reason holds now."""
        if holds:
            self._since.setdefault(reason, now)
        else:
            self._since.pop(reason, None)

    def due(self, now: float) -> str | None:
        """The reason for which the process should end now."""
        for reason, patience in ((MISMATCH, self._grace), (DEPRIVED, 2 * self._grace)):
            since = self._since.get(reason)
            if since is not None and patience and now - since >= patience:
                return reason
        return None


class Driver:
    """The library's state; all of it on the loop, its calls in a lane."""

    def __init__(
        self, machine: Machine, *, deadline: float, patience: float, grace: float, count_every: float
    ) -> None:
        self.lane = Lane("driver")
        self.doom = Doom(grace)
        self.up = False
        self.loads = 0
        """How often the library was started: counters of two loads cannot be compared."""
        self.count = 0
        self.versions: Mapping[str, Any] = {}
        self.answered = False
        """Whether any GPU ever answered this process."""
        self._machine = machine
        self._rights = Rights(
            machine, deadline, lambda gone: self.doom.note(DEPRIVED, gone, machine.clock.monotonic())
        )
        self._deadline = deadline
        self._patience = patience
        self._count_every = count_every
        self._initialised = False
        self._started: asyncio.Task[tuple[int, Mapping[str, Any]]] | None = None
        self._retry_after, self._retry_at = FIRST_RETRY, 0.0
        self._enumerate_at = 0.0
        self._error = Unreadable("nvml: not started")
        self._resting_until: float | None = None

    async def enumerate(self, now: float) -> bool:
        """Start the library if need be and count the GPUs; tells whether they were counted anew."""
        if self.up and now < self._enumerate_at:
            return False
        if not self.up and now < self._retry_at:
            raise self._error
        if self._started is None:
            self._started = asyncio.ensure_future(self.lane.ask(self._start, max(self._deadline, 5.0)))
        await asyncio.wait((self._started,), timeout=self._patience)
        if not self._started.done():
            if not self.up:
                raise Unreadable("nvml: the driver has not answered yet")
            return False
        task, self._started = self._started, None
        try:
            self.count, self.versions = task.result()
        except Unreadable as error:
            raise self._down(error, now) from None
        self.doom.note(MISMATCH, False, now)
        self.loads += not self.up
        self.up = True
        self._retry_after, self._retry_at = FIRST_RETRY, 0.0
        self._enumerate_at = now + self._count_every
        return True

    def recount(self) -> None:
        """A GPU went or came back: indexes may have shifted."""
        self._enumerate_at = 0.0

    def lost(self, code: int | None, now: float) -> None:
        """A GPU said that its driver is gone."""
        self.up = False
        self.doom.note(MISMATCH, code == LIBRARY_MISMATCH, now)

    def heed(self, codes: Sequence[int | None]) -> None:
        """How the GPUs answered: if all refuse alike, who had answered before, it may be our own access."""
        refused = bool(codes) and all(code in (OPERATING_SYSTEM, UNKNOWN) for code in codes)
        self.answered |= None in codes
        if refused and self.answered:
            self._rights.doubt()
        else:
            self._rights.trust()

    @property
    def cannot_load(self) -> bool:
        """There is no library to ask."""
        return not self.up and self._error.code == LIBRARY_NOT_FOUND

    @property
    def rests(self) -> bool:
        """Whether it was told to hold nothing."""
        until = self._resting_until
        return until is not None and self._machine.clock.monotonic() < until

    def rest(self, until: float | None) -> None:
        """Let go of all GPUs until that time; None ends the rest."""
        self._resting_until = until

    async def resting(self, now: float, lanes: Sequence[Lane]) -> None:
        """While it rests, hold nothing, and say so."""
        if self._resting_until is not None and now >= self._resting_until:
            self._resting_until = None
        if self._resting_until is None:
            return
        await self.close(lanes)
        held = "; a call that has not returned still holds them" if self._initialised else ""
        raise Unreadable(f"nvml: told to let go of the GPUs{held}", YIELDED)

    async def close(self, lanes: Sequence[Lane]) -> None:
        """Shut the library down, unless a call that never returns holds it."""
        self.up = False
        if not self._initialised or self.lane.busy or any(lane.busy for lane in lanes):
            return
        try:
            await self.lane.ask(lambda: self._machine.nvml(None, "nvmlShutdown"), deadline=1.0)
        except Unreadable as error:
            if error.code != UNINITIALIZED:  # else there is nothing to shut down any more
                return
        self._initialised = False

    def _start(self) -> tuple[int, Mapping[str, Any]]:
        ask = self._machine.nvml
        if not self.up:
            if self._initialised:  # by a driver that went
                _or_none(lambda: ask(None, "nvmlShutdown"))
                self._initialised = False
            ask(None, "nvmlInit")
            self._initialised = True
        count = ask(None, "nvmlDeviceGetCount")
        if type(count) is not int or not 0 <= count <= MOST_GPUS:
            raise Unreadable(f"nvml: nvmlDeviceGetCount says {count!r:.40}, which is no number of GPUs")
        versions = {"driver_version": _or_none(lambda: str(ask(None, "nvmlSystemGetDriverVersion")))}
        cuda = _or_none(lambda: int(ask(None, "nvmlSystemGetCudaDriverVersion")))
        if cuda is not None:
            versions["cuda_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        return count, versions

    def _down(self, error: Unreadable, now: float) -> Unreadable:
        """The whole source is down: try again after a pause that grows."""
        self.up = False
        self.doom.note(MISMATCH, error.code == LIBRARY_MISMATCH, now)
        self.heed([error.code])
        self._retry_at = now + self._retry_after
        self._retry_after = min(2 * self._retry_after, LAST_RETRY)
        self._error = Unreadable(f"{error}; {FIX}", error.code)
        return self._error


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (Unreadable, *MALFORMED):
        return None
