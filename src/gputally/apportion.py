"""Dividing a whole number fairly: parts add up exactly, and nobody is favoured in the long run; pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def apportion(
    amount: int, weights: Sequence[tuple[K, int]], owed: Mapping[K, float]
) -> tuple[list[int], dict[K, float]]:
    """Parts of the amount by weight, in whole units; what rounding owes each is carried to the next time.

    Weights are whole numbers and at least one is positive. The units that rounding down leaves go to
    those who are owed most, so that over time everyone is within two units of the exact share.
    """
    total = sum(weight for _, weight in weights)
    parts, debts = [], []
    for key, weight in weights:
        part, rest = divmod(amount * weight, total)
        parts.append(part)
        debts.append(owed.get(key, 0.0) + rest / total if weight else float("-inf"))
    left = amount - sum(parts)
    for place in sorted(range(len(parts)), key=lambda i: (-debts[i], i))[:left]:
        parts[place] += 1
        debts[place] -= 1.0
    carried = {key: debt for (key, weight), debt in zip(weights, debts, strict=True) if weight}
    return parts, carried
