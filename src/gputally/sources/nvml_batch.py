"""Calls that GPUs are asked again and again, one after the other, and what they took."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import sub
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

MOST_MADE = 4096
"""Batches of which the times are kept before they are added up."""


class Spent:
    """How often each call was made so far, and how long that took together.

    Every lane appends to it, and only the loop adds up: not before somebody wants to know, since then all
    GPUs are added in one go.
    """

    def __init__(self) -> None:
        self.made: deque[tuple[tuple[str, ...], Sequence[float]]] = deque()
        """Calls, with the times before the first and after each of them; the last of them may not be made."""
        self._counts: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def so_far(self) -> dict[str, CallTime]:
        """All calls until now."""
        self._add_up()
        return {
            name: CallTime(self._counts[name], seconds) for name, seconds in sorted(self._seconds.items())
        }

    def tidy(self) -> None:
        """Let it not grow for ever if nobody wants to know."""
        if len(self.made) > MOST_MADE:
            self._add_up()

    def _add_up(self) -> None:
        batches: dict[tuple[str, ...], list[Sequence[float]]] = {}
        while self.made:
            names, times = self.made.popleft()
            batches.setdefault(names[: len(times) - 1], []).append(times)
        for names, made in batches.items():
            moments = pairwise(zip(*made, strict=True))
            for name, (began, ended) in zip(names, moments, strict=True):
                self._counts[name] += len(made)
                self._seconds[name] = self._seconds.get(name, 0.0) + sum(map(sub, ended, began))


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
