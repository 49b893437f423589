"""Files that we need on the way to somebody else, which may lie on a disk that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gputally.lanes import Lane

T = TypeVar("T")
DEADLINE = 2.0


class Disk:
    """Asks in a lane for each place, so that a disk that hangs holds up only those who need that place."""

    def __init__(self) -> None:
        self._lanes: dict[str, tuple[Lane, asyncio.Lock]] = {}

    async def ask(self, place: str, call: Callable[[], T]) -> T:
        """The answer, or Unreadable once the disk has not given it in time; of one place, one at a time."""
        if place not in self._lanes:
            self._lanes[place] = Lane(place), asyncio.Lock()
        lane, turn = self._lanes[place]
        async with turn:
            return await lane.ask(call, DEADLINE)
