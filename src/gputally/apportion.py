"""Dividing a whole number fairly: parts add up exactly, and nobody is favoured in the long run; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import add, mul, truediv


def apportion(
    amount: int, weights: Sequence[int], owed: Sequence[float] = ()
) -> tuple[list[int], list[float]]:
    """Parts of the amount by weight, in whole units; what rounding owes each is carried to the next time.

    Weights are whole numbers and at least one is positive. The units that rounding down leaves go to
    those who are owed most, so that over time everyone is within two units of the exact share.
    """
    total = sum(weights)
    divided = map(divmod, map(mul, weights, repeat(amount)), repeat(total))
    parts, rests = map(list, zip(*divided, strict=True))
    debts = [*map(truediv, rests, repeat(total))]
    if owed:
        debts = [*map(add, debts, owed)]
    left = amount - sum(parts)
    if left:
        weighty = [place for place, weight in enumerate(weights) if weight]
        for place in sorted(weighty, key=debts.__getitem__, reverse=True)[:left]:
            parts[place] += 1
            debts[place] -= 1.0
    return parts, debts
