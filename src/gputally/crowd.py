"""Who was busy on a GPU, as consumers of its energy, and what a busy second of each costs; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import truediv
from typing import NamedTuple

from gputally.intensity import Consumer, Intensity
from gputally.model import PENDING, Owner, ProcessKey
from gputally.weights import Seat


class Crowd(NamedTuple):
    """The consumers behind some seats; true for as long as the same sit there and have the same owners."""

    seats: tuple[Seat, ...] = ()
    owners: Mapping[ProcessKey, Owner] | None = None
    consumers: tuple[Consumer, ...] = ()
    """By owner, each once; a process whose owner is not known yet is its own consumer."""
    of: tuple[int, ...] = ()
    """Which of them each seat is."""
    learned: tuple[Mapping[Consumer, float] | None, float, float] = (None, 0.0, 0.0)
    """What the prices follow from."""
    prices: Sequence[float] = ()
    """Watts of a busy second of each seat, as far as they are believed."""

    def seconds(self, busy_us: Sequence[int]) -> list[float]:
        """Busy seconds of each consumer."""
        if len(self.of) == len(self.consumers):
            return [*map(truediv, busy_us, repeat(1e6))]
        seconds = [0.0] * len(self.consumers)
        for consumer, time in zip(self.of, busy_us, strict=True):
            seconds[consumer] += time / 1e6
        return seconds


def meet(seats: tuple[Seat, ...], owners: Mapping[ProcessKey, Owner], before: Crowd) -> Crowd:
    """The consumers behind those seats; worked out anew only when they are others."""
    if before.owners is owners and before.seats == seats:
        return before
    found = [owners.get(key, PENDING) for key, _ in seats]
    each: list[Consumer] = [key if o is PENDING else o for (key, _), o in zip(seats, found, strict=True)]
    consumers = {consumer: place for place, consumer in enumerate(dict.fromkeys(each))}
    return Crowd(seats, owners, tuple(consumers), tuple([consumers[consumer] for consumer in each]))


def price(crowd: Crowd, known: Intensity) -> Crowd:
    """The crowd with what a busy second of each costs; worked out anew only when more was learned."""
    watts, mean, trust = crowd.learned
    if watts is known.watts and (mean, trust) == (known.mean_watts, known.trust):
        return crowd
    prices = [*map(known.weight, crowd.consumers)]
    learned = (known.watts, known.mean_watts, known.trust)
    return crowd._replace(learned=learned, prices=[prices[consumer] for consumer in crowd.of])
