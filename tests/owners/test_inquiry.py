"""When a party is asked again, on a loop whose clock goes at once to whatever comes next."""

from __future__ import annotations

import asyncio
import selectors

import pytest

from gputally.owners.inquiry import SPREAD, pause

SECONDS = 30.0
PARTIES = 20


class Leaping(selectors.DefaultSelector):
    """Does not wait for what it was to wait for."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed += timeout or 0.0
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """Time passes only in its selector."""

    def __init__(self) -> None:
        self.selector = Leaping()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.passed


async def paused(hurried_after: float | None = None, seconds: float = SECONDS, least: float = 5.0) -> float:
    hurry, loop = asyncio.Event(), asyncio.get_running_loop()
    if hurried_after is not None:
        loop.call_later(hurried_after, hurry.set)
    began = loop.time()
    await pause(seconds, hurry, least)
    return loop.time() - began


def run(*pauses: float | None, seconds: float = SECONDS) -> list[float]:
    async def all_at_once() -> list[float]:
        return await asyncio.gather(*[paused(after, seconds) for after in pauses])

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(all_at_once())


def test_parties_that_were_asked_together_are_not_asked_together_again() -> None:
    ended = run(*[None] * PARTIES)
    assert all(SECONDS * (1 - SPREAD) <= end <= SECONDS * (1 + SPREAD) + 0.01 for end in ended)
    assert max(ended) - min(ended) > SECONDS * SPREAD / 2


@pytest.mark.parametrize(("after", "waited"), [(0.0, 5.0), (1.0, 5.0), (12.0, 12.0)])
def test_who_is_in_a_hurry_waits_no_longer_than_must_be(after: float, waited: float) -> None:
    assert run(after) == [pytest.approx(waited, abs=0.01)]


def test_the_least_pause_is_never_shorter() -> None:
    assert all(5.0 <= end <= 5.0 * (1 + SPREAD) + 0.01 for end in run(*[None] * PARTIES, seconds=5.0))
