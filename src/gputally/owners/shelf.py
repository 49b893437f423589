"""Small files for resolvers, who must answer at once: read by a thread, since the disk may hang."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue

from gputally.machine import Machine
from gputally.model import Unreadable

log = logging.getLogger(__name__)

MOMENT = 0.05
"""Seconds for which a file is waited for; most take a thousandth of that."""
DEADLINE = 2.0
"""Seconds after which a disk counts as hung."""
FRESH = 5.0
"""Seconds for which what came too late for one question may answer the next."""


class Late(Exception):
    """The file has not been read yet: ask again a little later."""


@dataclass(eq=False)
class _Read:
    path: str
    asked_at: float
    done: threading.Event = field(default_factory=threading.Event)
    content: bytes | None = None
    error: BaseException | None = None

    def answer(self) -> bytes | None:
        if self.error is not None:
            raise self.error
        return self.content


class Shelf:
    """Reads one file at a time; while the disk hangs nobody waits for it, and it heals by itself."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name
        self._calls: SimpleQueue[_Read] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._newest: _Read | None = None
        self._late: dict[str, _Read] = {}
        self._hung = False

    def file(self, path: str) -> bytes | None:
        """What it holds, None if it is not there; Late, and then Unreadable, while the disk hangs."""
        if self._machine.name != "local":  # answers out of a recording or a model cannot hang
            return self._machine.file(path)
        now = self._machine.clock.monotonic()
        self._late = {p: r for p, r in self._late.items() if now - r.asked_at < FRESH or not r.done.is_set()}
        late = self._late.get(path)
        if late is not None and late.done.is_set():
            return late.answer()
        if self._newest is None or self._newest.done.is_set():
            self._newest = self._ask(path, now)
            if self._newest.done.wait(MOMENT):
                return self._newest.answer()
            self._late[path] = self._newest
        self._wait_no_longer(now - self._newest.asked_at > DEADLINE)
        raise Late

    def _ask(self, path: str, now: float) -> _Read:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"shelf {self._name}", daemon=True)
            self._thread.start()
        self._hung = False
        read = _Read(path, now)
        self._calls.put(read)
        return read

    def _wait_no_longer(self, hung: bool) -> None:
        if hung and not self._hung:
            log.warning("%s: the disk does not answer; names that it has are left out", self._name)
        self._hung = hung
        if hung:
            raise Unreadable(f"{self._name}: no answer within {DEADLINE:g} s")

    def _work(self) -> None:
        while True:
            read = self._calls.get()
            try:
                read.content = self._machine.file(read.path)
            except BaseException as failure:  # noqa: BLE001  it belongs to whoever asked
                read.error = failure
            read.done.set()
