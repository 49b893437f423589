"""Writing of files while the program runs: in a lane, so that no disk holds anybody up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gputally.files import Unsafe
from gputally.lanes import Lane
from gputally.model import Unreadable

log = logging.getLogger(__name__)

DEADLINE = 10.0
FAILURES = (OSError, Unsafe, Unreadable)


class Writer:
    """Writes one file again and again, and says once when it cannot and once when it can again."""

    def __init__(
        self,
        file: str,
        meanwhile: str,
        failed: Callable[[], None] = lambda: None,
        deadline: float = DEADLINE,
    ) -> None:
        self._file = file
        self._meanwhile = meanwhile
        self._failed = failed
        self._deadline = deadline
        self._failing = False
        self._lane = Lane(file)
        self._newest: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether an older write is under way; it is not waited for, since a newer one will follow."""
        return self._lane.busy and not self._lane.stuck

    def begin(self, write: Callable[[], None]) -> None:
        """Have it written, and do not wait for that."""
        if not self.busy:
            self._newest = asyncio.ensure_future(self._try(write))

    async def write(self, write: Callable[[], None]) -> None:
        """Write it once more, after what is under way."""
        await self._settle()
        await self._try(write)

    async def remove(self, remove: Callable[[], None]) -> None:
        """Take the file away, after what is under way; where that cannot be done it stays."""
        await self._settle()
        try:
            await self._lane.ask(remove, self._deadline)
        except FAILURES as error:
            log.info("%s is left as it is: %s", self._file, error)

    async def _settle(self) -> None:
        if self._newest is not None:
            await self._newest

    async def _try(self, write: Callable[[], None]) -> None:
        try:
            await self._lane.ask(write, self._deadline)
        except FAILURES as error:
            self._failed()
            if not self._failing:
                log.warning("%s cannot be written; %s: %s", self._file, self._meanwhile, error)
            self._failing = True
        else:
            if self._failing:
                log.info("%s is written again", self._file)
            self._failing = False
