"""When a process wants the GPU: bursts as a pure function of a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

SLOTS_PER_SECOND = 100
SLOT_US = 10_000


@dataclass(frozen=True)
class Rhythm:
    """A beat that repeats every `period` slots, and how much of it is busy."""

    period: int
    busy: int
    """Slots of a burst; 0 = never wants anything."""
    vary: int = 0
    """A burst is up to so many slots shorter or longer."""
    chance: int = 100
    """Percent of the beats that happen at all."""
    cycle: int = 0
    rest: int = 0
    """Of every `cycle` beats the last `rest` are a pause."""
    climb: int = 0
    """Beats over which the bursts grow from a tenth to their full length, then start again."""

    def __post_init__(self) -> None:
        """Refuse what would never end: a search for a burst that cannot come."""
        if self.period < 1 or not 0 <= self.busy <= self.period or self.vary < 0:
            raise ValueError(f"a burst of {self.busy}±{self.vary} slots in {self.period}")
        if not 1 <= self.chance <= 100 or self.rest < 0 or (self.rest and self.rest >= self.cycle):
            raise ValueError(f"a rhythm that never beats: {self}")


STEADY = Rhythm(period=100, busy=100)
STEPS = Rhythm(period=90, busy=84, vary=5)
TRAINING = replace(STEPS, cycle=40, rest=7)
INFERENCE = Rhythm(period=20, busy=8, chance=75, cycle=600, rest=90)
BURSTS_10_MS = Rhythm(period=5, busy=1, chance=70, cycle=1600, rest=320)
RAMP = Rhythm(period=50, busy=48, climb=60)
SILENT = Rhythm(period=100, busy=0)


def bursts(
    rhythm: Rhythm, start: int, end: int | None, seed: int, phase: int
) -> Iterator[tuple[int, int, int]]:
    """(first slot, slot after the last, noise) of each burst of a life, none of them before slot 0.

    `phase` is where in its cycle of work and pauses a life begins, in beats.
    """
    if not rhythm.busy:
        return
    period, cycle = rhythm.period, rhythm.cycle
    awake = cycle - rhythm.rest
    for beat in count(max(0, -(start // period))):
        at = start + beat * period
        if end is not None and at >= end:
            return
        if cycle and (beat + phase) % cycle >= awake:
            continue
        noise = scatter(seed + beat)
        if noise % 100 >= rhythm.chance:
            continue
        length = _length(rhythm, beat, noise >> 8)
        first = at + (noise >> 24) % (period - length + 1)
        last = first + length if end is None else min(first + length, end)
        if first < last:
            yield first, last, noise >> 40


def scatter(number: int) -> int:
    """64 bits that look random, the same for the same number (the finalizer of splitmix64)."""
    number = number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    number = (number ^ number >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 31


def _length(rhythm: Rhythm, beat: int, noise: int) -> int:
    length = rhythm.busy
    if rhythm.climb:
        length = length * (1 + 9 * (beat % rhythm.climb) // rhythm.climb) // 10
    if rhythm.vary:
        length += noise % (2 * rhythm.vary + 1) - rhythm.vary
    return min(max(length, 1), rhythm.period)
