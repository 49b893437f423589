"""A lane: one thing that is asked one question at a time, so that a call that never returns stops nobody."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gputally.model import Unreadable

T = TypeVar("T")

SPARE = 2
"""Threads that are kept while there is nothing to ask."""
AT_ONCE = 0.005
"""Seconds for which the loop itself waits for calls: most return sooner than it could be woken."""


class Lane:
    """Asks one blocking thing at a time; stuck past a deadline, and healed when the call returns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy = False
        self.stuck = False

    async def ask(self, call: Callable[[], T], deadline: float) -> T:
        """Answer of the call, or Unreadable once the deadline has passed or while an older call is out."""
        if self.busy:
            raise Unreadable(f"{self.name}: an earlier call has not returned")
        turns = Turns(deadline)
        answer = turns.add(self, call)
        turns.begin()
        return await answer

    def end(self) -> None:
        """Nothing is asked after this."""
        self.busy = True


class Turns:
    """Calls of several lanes, made by one thread one after the other; it wakes the loop once, at the end.

    A call that does not return keeps its thread, and those that wait behind it get another one. With a thread
    for each lane, waking them all would cost more than most calls.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._out: list[_Asked] = []
        self._waiting: deque[_Asked] = deque()
        self._returned: deque[_Asked] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._news: asyncio.Future[None] | None = None
        self._done = threading.Lock()
        self._done.acquire()
        self._watched = False
        """The loop waits for just this to be done."""

    def add(self, lane: Lane, call: Callable[[], T]) -> asyncio.Future[T]:
        """Have an idle lane make the call when its turn comes; Unreadable once the deadline has passed."""
        answer: asyncio.Future[T] = self._loop.create_future()
        lane.busy = True
        asked = _Asked(lane, call, answer)
        self._out.append(asked)
        self._waiting.append(asked)
        return answer

    def begin(self) -> None:
        """Let a thread make the calls that wait, beside those that are out."""
        self._begin(self._work)

    def _begin(self, work: Callable[[], None]) -> None:
        if self._alarm is None:
            self._alarm = self._loop.call_later(self._deadline, self._give_up)
        try:
            _CREW.do(work)
        except RuntimeError as error:  # the system lets us have no more threads
            while self._waiting:
                asked = self._waiting.popleft()
                asked.error = Unreadable(f"{asked.lane.name}: {error}")
                self._returned.append(asked)
            self._loop.call_soon(self._hear)

    async def all(self, turn: float) -> None:
        """Have every call begun: when the one before returned, or did not within its turn."""
        if not self._waiting or self._at_once():
            return
        told = await self._told(turn)
        while self._waiting:
            told = await self._told(turn, begin=not told)

    def _at_once(self) -> bool:
        """Have the calls made, and wait for a moment; tells whether all have returned."""
        self._watched = True
        self._begin(self._work_watched)
        done = self._done.acquire(timeout=AT_ONCE)
        self._watched = False
        # Who has not seen that nobody watches any more has let go before.
        done = done or self._done.acquire(blocking=False)
        if done:
            self._tell()
        return done

    async def _told(self, turn: float, *, begin: bool = False) -> int:
        """How many calls have returned, once that is all of them or the turn is over."""
        news = self._news = self._loop.create_future()
        over = self._loop.call_later(turn, _set, news)
        if begin:  # as the last thing: until we wait, the thread that is woken cannot run
            self.begin()
        await news
        over.cancel()
        return self._tell()

    def _work(self) -> None:
        """In a thread of the crew: make calls until none waits, and say so."""
        self._make_calls()
        self._say_so()

    def _work_watched(self) -> None:
        """The same for a loop that watches: it need not be woken."""
        self._make_calls()
        self._done.release()
        if not self._watched:
            self._say_so()

    def _make_calls(self) -> None:
        while self._waiting:
            try:
                asked = self._waiting.popleft()
            except IndexError:
                return  # another thread has taken the last one meanwhile
            try:
                asked.value = asked.call()
            except BaseException as failure:  # noqa: BLE001  it belongs to whoever asked
                asked.error = failure
            self._returned.append(asked)

    def _say_so(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:
            return  # the loop is closed: nobody is left to be told

    def _hear(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        else:
            self._tell()

    def _tell(self) -> int:
        """Hand out what has returned; tells how many calls that were."""
        told = 0
        while self._returned:
            asked = self._returned.popleft()
            self._out.remove(asked)
            asked.hand_out()
            told += 1
        if not self._out and self._alarm is not None:
            self._alarm.cancel()
        return told

    def _give_up(self) -> None:
        self._tell()
        for asked in self._out:
            if not asked.answer.done():
                asked.lane.stuck = True
                late = f"{asked.lane.name}: no answer within {self._deadline:g} s"
                asked.answer.set_exception(Unreadable(late))


@dataclass(eq=False, slots=True)
class _Asked:
    """A call on its way through a lane."""

    lane: Lane
    call: Callable[[], Any]
    answer: asyncio.Future[Any]
    value: Any = None
    error: BaseException | None = None

    def hand_out(self) -> None:
        """In the loop: the call has returned."""
        self.lane.busy = self.lane.stuck = False
        if self.answer.done():
            return
        if self.error is None:
            self.answer.set_result(self.value)
        else:
            self.answer.set_exception(self.error)


class _Crew:
    """Daemon threads: as many as there are calls out, and a few to spare."""

    def __init__(self) -> None:
        self._idle: list[_Hand] = []

    def do(self, work: Callable[[], None]) -> None:
        """Have a thread do this at once, whatever the others are stuck in."""
        try:
            hand = self._idle.pop()
        except IndexError:
            hand = _Hand(self._idle)
            threading.Thread(target=hand.serve, name="lane", daemon=True).start()
        hand.work = work
        hand.go.release()


class _Hand:
    """One of the crew: each waits for itself, so that no other is woken in vain."""

    work: Callable[[], None]

    def __init__(self, idle: list[_Hand]) -> None:
        self._idle = idle
        self.go = threading.Lock()
        self.go.acquire()

    def serve(self) -> None:
        """In its thread: do what there is to do, until there are hands enough without it."""
        while True:
            self.go.acquire()
            self.work()
            if len(self._idle) >= SPARE:
                return
            self._idle.append(self)


_CREW = _Crew()


def _set(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)
