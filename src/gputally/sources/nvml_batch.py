"""Calls that one GPU is asked again and again, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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
