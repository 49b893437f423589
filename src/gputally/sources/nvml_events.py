"""Xids: errors that the driver tells of GPUs, counted in a lane of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gputally.counted import Xid
from gputally.lanes import Lane, Turns
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.sources.nvml_ask import MALFORMED
from gputally.sources.nvml_codes import Meaning, meaning

log = logging.getLogger(__name__)

WAIT_MS = 0
"""How long one question waits: not at all, since the driver keeps what happens between two questions."""
WAIT, FREE = "nvmlEventSetWait", "nvmlEventSetFree"
Event = tuple[str, int]
"""A GPU, and the Xid that it reported."""


class Events:
    """The set of events in which GPUs are registered, and what came out of it since we started."""

    def __init__(self, machine: Machine) -> None:
        self.lane = Lane("events")
        self.set = 0
        """The number of the set: a GPU that is registered in an older one registers anew."""
        self._machine = machine
        self._waiting: asyncio.Future[list[Event]] | None = None
        self._off = False
        self._xids: dict[str, dict[int, Xid]] = {}

    def renew(self) -> None:
        """The driver was loaded: there is a new set, and everybody must register."""
        self._off = False
        self.set += 1

    def ask(self, turns: Turns) -> asyncio.Future[list[Event]] | None:
        """Wait for events in our turn, unless that is under way or cannot be."""
        if self._waiting is None and not self._off and not self.lane.busy:
            self._waiting = turns.add(self.lane, self._wait)
        return self._waiting

    def take(self) -> None:
        """Count what came."""
        if self._waiting is None or not self._waiting.done():
            return
        waiting, self._waiting = self._waiting, None
        try:
            for uuid, xid in waiting.result():
                self._count(uuid, xid)
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._off = True
            elif not self.lane.stuck:
                self.set += 1  # a lost GPU spoils the set for all: those that answer register in a new one

    def xids(self, uuid: str) -> Mapping[int, Xid]:
        """What a GPU reported so far."""
        return self._xids.get(uuid, {})

    def _wait(self) -> list[Event]:
        try:
            return _understood(self._machine.nvml(None, WAIT, WAIT_MS))
        except Unreadable as error:
            if meaning(error.code) is not Meaning.ABSENT:
                with suppress(Unreadable):
                    self._machine.nvml(None, FREE)
            raise

    def _count(self, uuid: str, xid: int) -> None:
        known = self._xids.get(uuid, {})
        before = known.get(xid)
        if before is None:
            log.warning("GPU %s reported Xid %d; more of them are counted, not logged", uuid, xid)
        told = Xid((before.count if before else 0) + 1, self._machine.clock.time())
        self._xids[uuid] = {**known, xid: told}


def _understood(answer: Any) -> list[Event]:
    try:
        return [(str(uuid), int(xid)) for uuid, xid, *_ in answer]
    except MALFORMED:
        raise Unreadable(f"{WAIT}: {answer!r:.40} are no events") from None
