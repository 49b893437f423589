"""Lanes: one call at a time, stuck without harm, healed by themselves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest

from gputally.lanes import SPARE, Lane, Turns
from gputally.model import Unreadable


def test_an_answer_comes_back_from_another_thread() -> None:
    async def ask() -> tuple[int, bool]:
        return await Lane("a").ask(threading.get_ident, 60.0), True

    thread, _ = asyncio.run(ask())
    assert thread != threading.get_ident()


def test_a_failure_belongs_to_whoever_asked() -> None:
    def fail() -> None:
        raise Unreadable("no", 15)

    async def ask() -> None:
        lane = Lane("a")
        with pytest.raises(Unreadable, match="no") as caught:
            await lane.ask(fail, 60.0)
        assert caught.value.code == 15
        assert await lane.ask(lambda: 7, 60.0) == 7

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
        assert await lane.ask(lambda: "well", 60.0) == "well"

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


def test_threads_that_were_needed_once_do_not_stay() -> None:
    async def ask() -> None:
        gate = threading.Event()
        stuck = [asyncio.ensure_future(Lane(str(n)).ask(gate.wait, 60.0)) for n in range(20)]
        await asyncio.sleep(0)
        assert _crew() >= 20
        gate.set()
        await asyncio.gather(*stuck)
        while _crew() > SPARE:
            await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_many_lanes_are_asked_by_one_thread() -> None:
    async def ask() -> set[int]:
        turns = Turns(60.0)
        answers = [turns.add(Lane(str(n)), threading.get_ident) for n in range(50)]
        await turns.all(60.0)
        return {answer.result() for answer in answers}

    assert len(asyncio.run(ask())) == 1


WITHOUT_THREADS = """
import asyncio, resource, threading
from gputally.lanes import Lane
from gputally.model import Unreadable

async def ask():
    lane = Lane("gpu0")
    threading.stack_size(2**30)  # more than there is room for
    resource.setrlimit(resource.RLIMIT_AS, (2**30, resource.RLIM_INFINITY))
    try:
        await lane.ask(lambda: 1, 60.0)
    except Unreadable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    threading.stack_size(0)
    print(await lane.ask(lambda: "well", 60.0), lane.stuck)

asyncio.run(ask())
"""


def test_a_lane_that_gets_no_thread_says_so_and_heals() -> None:
    command = [sys.executable, "-c", WITHOUT_THREADS]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert told.splitlines() == ["gpu0: can't start new thread", "well False"]


def _crew() -> int:
    return sum(thread.name == "lane" for thread in threading.enumerate())


def test_calls_are_made_in_turn_and_one_that_hangs_holds_nobody_for_long() -> None:
    async def ask() -> None:
        gate, turns = threading.Event(), Turns(60.0)
        order: list[str] = []
        first = turns.add(Lane("a"), lambda: order.append("a"))
        stuck = turns.add(Lane("b"), gate.wait)
        others = [turns.add(Lane(name), partial(order.append, name)) for name in "cde"]
        await turns.all(0.05)
        await asyncio.wait([first, *others], timeout=60.0)
        assert order == ["a", "c", "d", "e"]
        assert not stuck.done()
        gate.set()
        assert await stuck

    asyncio.run(ask())


def test_what_returned_before_a_call_that_hangs_is_told() -> None:
    async def ask() -> None:
        gate, turns = threading.Event(), Turns(60.0)
        first = turns.add(Lane("a"), lambda: 1)
        stuck = turns.add(Lane("b"), gate.wait)
        await turns.all(0.05)
        assert await asyncio.wait_for(first, 60.0) == 1
        gate.set()
        assert await stuck

    asyncio.run(ask())
