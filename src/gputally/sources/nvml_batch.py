"""Calls that GPUs are asked again and again, one after the other, and what they took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import Any

from gputally.counted import CallTime
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.sources.nvml_codes import CODES, Meaning

Call = tuple[Any, ...]
Answers = tuple[list[Any], list[float]]
"""What calls were answered, and the times before the first and after each of them.

The answer of a call that failed is the Unreadable, and after one of ENDS there is no other.
"""
Batch = Callable[[], Answers]

ENDS = frozenset(code for code, row in CODES.items() if row.meaning in (Meaning.STATE, Meaning.DRIVER))
"""Codes after which a GPU need not be asked anything more."""

MOST_MADE = 512
"""Times that a call was made before what that took is added up."""
TOLD_EVERY = 30.0
"""Seconds after which it is added up anew for who wants to know; at first more often."""


NEVER = CallTime()


class Spent:
    """How often each call was made so far, and how long that took together.

    Lanes only append, and the loop adds up when somebody wants to know: all GPUs in one go.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], list[Sequence[float]]] = {}
        self._totals: dict[str, CallTime] = {}
        self._told: Mapping[str, CallTime] = {}
        self._began: float | None = None
        self._told_at = 0.0

    def on(self, *calls: str) -> list[Sequence[float]]:
        """Where to append the times before the first of those calls and after each that was made."""
        return self._made.get(calls) or self._made.setdefault(calls, [])

    def so_far(self, now: float) -> Mapping[str, CallTime]:
        """All calls until now, or until a little while ago: the longer we run, the less that changes."""
        if self._began is None:
            self._began = self._told_at = now
        if now - self._told_at >= min(TOLD_EVERY, (now - self._began) / 2):
            self._add_up()
            self._told, self._told_at = self._totals.copy(), now
        return self._told

    def tidy(self) -> None:
        """Let it not grow for ever if nobody wants to know."""
        if any(len(made) > MOST_MADE for made in list(self._made.values())):
            self._add_up()

    def _add_up(self) -> None:
        known = len(self._totals)
        for calls, made in list(self._made.items()):
            if not made:
                continue
            new = made[:]
            del made[: len(new)]  # a lane may have appended more meanwhile
            whole = [times for times in new if len(times) > len(calls)]
            self._add(calls, whole)
            if len(whole) < len(new):
                for times in new:
                    if len(times) <= len(calls):  # the GPU was lost, and not asked the rest
                        self._add(calls[: len(times) - 1], [times])
        if len(self._totals) > known:
            self._totals = dict(sorted(self._totals.items()))

    def _add(self, calls: Sequence[str], made: list[Sequence[float]]) -> None:
        moments = list(map(fsum, zip(*made, strict=True)))
        for call, began, ended in zip(calls, moments, moments[1:], strict=False):
            before = self._totals.get(call, NEVER)
            self._totals[call] = CallTime(before.count + len(made), before.seconds + ended - began)


def batch(machine: Machine, gpu: str, calls: Sequence[Call]) -> Batch:
    """Those calls on that GPU; some machines can make them ready, so that they cost less from then on."""
    make = getattr(machine.nvml, "batch", None)
    ready: Batch | None = None if make is None else make(gpu, calls, ENDS)
    return ready or partial(_one_by_one, machine, gpu, calls)


def _one_by_one(machine: Machine, gpu: str, calls: Sequence[Call]) -> Answers:
    answers: list[Any] = []
    times = [machine.clock.monotonic()]
    for call in calls:
        try:
            answers.append(machine.nvml(gpu, *call))
        except Unreadable as error:
            answers.append(error)
        times.append(machine.clock.monotonic())
        if isinstance(answers[-1], Unreadable) and answers[-1].code in ENDS:
            break
    return answers, times
