"""Asking one party outside again and again, off the path of collecting, and knowing how that goes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from gputally.machine import Clock
from gputally.model import Health, Unreadable

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
SHORTEST_PAUSE = 1.0
SHORTEST_WATCH = 1.0
SPREAD = 0.1
"""The part by which a pause may be longer or shorter: parties that were all asked when a pod came would else
be asked in one moment for ever, and that the moment of a publication."""


class Party(Protocol):
    """Somebody outside who knows something, and holds the latest answer."""

    name: str

    async def ask(self) -> None:
        """Get a whole new answer, or raise Unreadable and keep the one before."""

    async def follow(self, hurry: asyncio.Event) -> None:
        """Keep the answer fresh until it is time to ask again, at the latest when somebody is in a hurry."""


async def pause(seconds: float, hurry: asyncio.Event, least: float = 1.0) -> None:
    """Wait about so long; at least a little, so that whoever is in a hurry does not become a nuisance."""
    now = asyncio.get_running_loop().time
    soonest = now() + min(least, seconds)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds * random.uniform(1 - SPREAD, 1 + SPREAD)):  # noqa: S311
            await hurry.wait()
    if (left := soonest - now()) > 0:
        await asyncio.sleep(left)
    hurry.clear()


def check_watch(seconds: float) -> None:
    """A watch that ended well goes on at once, unless it ended as soon as it began, and would do so again."""
    if seconds < SHORTEST_WATCH:
        raise Unreadable("the watch ended as soon as it began")


def always() -> bool:
    """It is a fault if the party is not there."""
    return True


class Inquiry:
    """The task of one party."""

    def __init__(self, clock: Clock, party: Party, *, expected: Callable[[], bool] = always) -> None:
        self._clock = clock
        self._party = party
        self._expected = expected
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._health: Health | None = None
        self._down_since = 0.0
        self._is_over = False
        """Nobody will ask again."""
        self._warned = False

    @property
    def name(self) -> str:
        """Whom it asks."""
        return self._party.name

    @property
    def health(self) -> Health | None:
        """How it goes; None for somebody who need not be there and never was."""
        health = self._health
        return None if health is None or (health.succeeded_at is None and not self._expected()) else health

    @property
    def is_up(self) -> bool:
        """It answered when it was last asked."""
        return self._health is not None and self._health.up

    def may_come(self, within: float) -> bool:
        """It answers, or may yet: nobody asked, or it did before, or it is down for less than that."""
        if self._health is None or self._health.up:
            return True
        if self._is_over or self.health is None:
            return False
        return self._health.succeeded_at is not None or self._clock.monotonic() - self._down_since < within

    def start(self) -> None:
        """Begin asking."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._party.name)

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def hurry(self) -> None:
        """Somebody waits for a new answer."""
        self._hurry.set()

    async def only(self) -> None:
        """Ask now, and never again."""
        self._is_over = True
        await self.once()

    async def once(self) -> bool:
        """Ask now; tells whether there was an answer."""
        began = self._clock.monotonic()
        try:
            await self._party.ask()
        except Unreadable as error:
            self._note(Health(self.name, up=False, reason=str(error), about="owners"), began)
            return False
        self._note(Health(self.name, up=True, about="owners"), began)
        return True

    async def _run(self) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                if await self.once():
                    await self._party.follow(self._hurry)
                    failures = 0
                    continue
            except Unreadable as error:
                log.debug("%s: %s", self.name, error)  # what was followed ended; the next question tells
                # A list that is answered and a watch that is refused must not be asked for in turns.
                failures = 0 if self._clock.monotonic() - began > LONGEST_PAUSE else failures
            except Exception as error:  # the outermost loop of this task: whatever it is, ask again
                log.exception("%s failed", self.name)
                fault = Health(self.name, up=False, reason=repr(error), about="owners")
                self._note(fault, self._clock.monotonic())
            failures += 1
            longest = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(failures - 1, 10))
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311

    def _note(self, health: Health, began: float) -> None:
        now, before = self._clock.monotonic(), self._health
        succeeded_at = now if health.up else before.succeeded_at if before else None
        place = getattr(self._party, "place", "")
        self._health = replace(health, duration_seconds=now - began, succeeded_at=succeeded_at, place=place)
        changed = before is None or before.up != health.up
        self._down_since = now if changed else self._down_since
        if health.up and changed:
            log.log(logging.INFO if self._warned else logging.DEBUG, "%s answers", self.name)
            self._warned = False
        elif not health.up and self.health is not None and not self._warned:
            log.warning("%s is down: %s", self.name, health.reason)
            self._warned = True
        elif changed:
            log.debug("%s is down: %s", self.name, health.reason)
