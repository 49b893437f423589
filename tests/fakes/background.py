"""An event loop on a thread of its own, for servers that tests run beside the program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")
PATIENCE = 60.0


class Background:
    """Runs coroutines for those who have no loop."""

    def __enter__(self) -> Self:
        self.at_end: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What ends the servers that were started here."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.at_end:
            self.run(end())
        self.run(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that must run on the loop."""

        async def work() -> T:
            return function()

        return self.run(work())


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0.01)  # what was closed is let go of
