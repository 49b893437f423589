"""The clocks: the real one, and one that moves only when it is waited for."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from typing import Any


async def sleep(seconds: float, unless: Future[Any] | None) -> None:
    """Wait so long, but not once the other thing is done."""
    await (asyncio.sleep(seconds) if unless is None else asyncio.wait((unless,), timeout=seconds))


class RealClock:
    """The time of the computer we run on."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    async def until(self, monotonic: float, unless: Future[Any] | None = None) -> None:
        left = monotonic - time.monotonic()
        if left > 0:
            await sleep(left, unless)


class VirtualClock:
    """A time that stands still until somebody waits for a later one, and is there at once."""

    def __init__(self, start: float = 0.0, epoch: float = 1_760_000_000.0) -> None:
        self._start = start
        self._now = start
        self._epoch = epoch

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._epoch + (self._now - self._start)

    async def until(self, monotonic: float, unless: Future[Any] | None = None) -> None:
        await asyncio.sleep(0)
        self.jump(monotonic)

    def jump(self, monotonic: float) -> None:
        """Move to that moment, never back."""
        self._now = max(self._now, monotonic)

    def set(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative; monotonic time does not notice."""
        self._epoch += seconds
