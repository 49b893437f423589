"""A lane: a daemon thread with one outstanding call, so that a call that never returns stops nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from gputally.model import Unreadable

T = TypeVar("T")


class Lane:
    """Asks one blocking thing at a time; stuck past a deadline, and healed when the call returns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy = False
        self.stuck = False
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def ask(self, call: Callable[[], T], deadline: float) -> T:
        """Answer of the call, or Unreadable once the deadline has passed or while an older call is out."""
        if self.busy:
            raise Unreadable(f"{self.name}: an earlier call has not returned")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self.busy = True
        self._start()
        self._calls.put((call, answer))
        alarm = loop.call_later(deadline, self._give_up, answer, deadline)
        try:
            return await answer
        finally:
            alarm.cancel()

    def end(self) -> None:
        """Let the thread go once its call has returned; nothing is asked after this."""
        self.busy = True
        self._calls.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"lane {self.name}", daemon=True)
            self._thread.start()

    def _give_up(self, answer: asyncio.Future[Any], deadline: float) -> None:
        if not answer.done():
            self.stuck = True
            answer.set_exception(Unreadable(f"{self.name}: no answer within {deadline:g} s"))

    def _work(self) -> None:
        while True:
            asked = self._calls.get()
            if asked is None:
                return
            call, answer = asked
            value: Any = None
            error: BaseException | None = None
            try:
                value = call()
            except BaseException as failure:  # noqa: BLE001  it belongs to whoever asked
                error = failure
            loop = answer.get_loop()
            try:
                loop.call_soon_threadsafe(self._returned, answer, value, error)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told

    def _returned(self, answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self.busy = self.stuck = False
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)
