"""A lane: a daemon thread with one outstanding call, so that a call that never returns stops nobody."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
        self._calls: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def ask(self, call: Callable[[], T], deadline: float) -> T:
        """Answer of the call, or Unreadable once the deadline has passed or while an older call is out."""
        if self.busy:
            raise Unreadable(f"{self.name}: an earlier call has not returned")
        turns = Turns()
        answer = turns.add(self, call, deadline)
        turns.next()
        return await answer

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
            try:
                asked.value = asked.call()
            except BaseException as failure:  # noqa: BLE001  it belongs to whoever asked
                asked.error = failure
            try:
                asked.turns.returned(asked)
            except RuntimeError:
                return  # the loop is closed: nobody is left to be told

    def _returned(self, asked: _Asked) -> None:
        self.busy = self.stuck = False
        if self._alarm is not None:
            self._alarm.cancel()
        if asked.answer.done():
            return
        if asked.error is None:
            asked.answer.set_result(asked.value)
        else:
            asked.answer.set_exception(asked.error)


@dataclass(eq=False, slots=True)
class _Asked:
    """A call on its way through a lane."""

    turns: Turns
    lane: Lane
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    value: Any = None
    error: BaseException | None = None


class Turns:
    """Calls of several lanes, one after the other: each thread wakes the next, and only the last the loop.

    Threads that want the interpreter all at once cost twice the time, and so does a loop that wakes for each.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Asked] = deque()
        self._returned: deque[_Asked] = deque()

    def add(self, lane: Lane, call: Callable[[], T], deadline: float) -> asyncio.Future[T]:
        """Have an idle lane make the call when its turn comes; Unreadable once the deadline has passed."""
        answer: asyncio.Future[T] = self._loop.create_future()
        lane.busy = True
        lane._start()
        lane._alarm = self._loop.call_later(deadline, lane._give_up, answer, deadline)
        self._waiting.append(_Asked(self, lane, call, answer))
        return answer

    def next(self) -> None:
        """Begin the next call, if there is one, beside those that are out."""
        with suppress(IndexError):  # another thread may have taken the last one meanwhile
            asked = self._waiting.popleft()
            asked.lane._calls.put(asked)

    async def all(self, turn: float) -> None:
        """Begin every call: when the one before returned, or did not within its turn."""
        answers = [asked.answer for asked in self._waiting]
        self.next()
        while self._waiting:
            await asyncio.wait(answers, timeout=turn)
            if not self._tell():
                self.next()

    def returned(self, asked: _Asked) -> None:
        """In the lane's thread: pass on; the loop is told when nobody waits for a turn any more."""
        self._returned.append(asked)
        self.next()
        if not self._waiting:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> int:
        """Hand out what has returned; tells how many calls that were."""
        told = 0
        while self._returned:
            asked = self._returned.popleft()
            asked.lane._returned(asked)
            told += 1
        return told
