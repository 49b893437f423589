"""Lanes: one call at a time, stuck without harm, healed by themselves."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from gputally.lanes import Lane, Turns
from gputally.model import Unreadable


def test_an_answer_comes_back_from_another_thread() -> None:
    async def ask() -> tuple[int, bool]:
        return await Lane("a").ask(threading.get_ident, 5.0), True

    thread, _ = asyncio.run(ask())
    assert thread != threading.get_ident()


def test_a_failure_belongs_to_whoever_asked() -> None:
    def fail() -> None:
        raise Unreadable("no", 15)

    async def ask() -> None:
        lane = Lane("a")
        with pytest.raises(Unreadable, match="no") as caught:
            await lane.ask(fail, 5.0)
        assert caught.value.code == 15
        assert await lane.ask(lambda: 7, 5.0) == 7

    asyncio.run(ask())


def test_a_stuck_lane_answers_at_once_and_heals_when_the_call_returns() -> None:
    async def ask() -> None:
        lane, gate, calls = Lane("gpu0"), threading.Event(), []

        def hang() -> None:
            calls.append(1)
            gate.wait()

        with pytest.raises(Unreadable, match="no answer within"):
            await lane.ask(hang, 0.05)
        assert lane.stuck
        for _ in range(100):
            with pytest.raises(Unreadable, match="has not returned"):
                await lane.ask(hang, 60.0)
        assert len(calls) == 1
        gate.set()
        while lane.busy:
            await asyncio.sleep(0.01)
        assert not lane.stuck
        assert await lane.ask(lambda: "well", 5.0) == "well"

    asyncio.run(ask())


def test_one_stuck_lane_does_not_hold_another() -> None:
    async def ask() -> None:
        gate = threading.Event()
        stuck = asyncio.ensure_future(Lane("a").ask(gate.wait, 3600.0))
        assert await Lane("b").ask(lambda: 1, 60.0) == 1
        assert not stuck.done()
        gate.set()
        assert await stuck

    asyncio.run(ask())


def test_an_ended_lane_leaves_no_thread() -> None:
    async def ask() -> None:
        lane = Lane("short")
        await lane.ask(lambda: None, 5.0)
        lane.end()
        while any(thread.name == "lane short" for thread in threading.enumerate()):
            await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_calls_are_made_in_turn_and_one_that_hangs_holds_nobody_for_long() -> None:
    async def ask() -> None:
        gate, turns = threading.Event(), Turns()
        order: list[str] = []
        first = turns.add(Lane("a"), lambda: order.append("a"), 60.0)
        stuck = turns.add(Lane("b"), gate.wait, 60.0)
        others = [turns.add(Lane(name), partial(order.append, name), 60.0) for name in "cde"]
        await turns.all(0.05)
        await asyncio.wait([first, *others], timeout=30.0)
        assert order == ["a", "c", "d", "e"]
        assert not stuck.done()
        gate.set()
        assert await stuck

    asyncio.run(ask())


def test_what_returned_before_a_call_that_hangs_is_told() -> None:
    async def ask() -> None:
        gate, turns = threading.Event(), Turns()
        first = turns.add(Lane("a"), lambda: 1, 60.0)
        stuck = turns.add(Lane("b"), gate.wait, 60.0)
        await turns.all(0.05)
        assert await asyncio.wait_for(first, 30.0) == 1
        gate.set()
        assert await stuck

    asyncio.run(ask())
