"""Dividing a whole number fairly: parts add up exactly, and nobody is favoured in the long run; pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def apportion(
    amount: int, keys: Sequence[K], weights: Sequence[int], owed: Mapping[K, float]
) -> tuple[list[int], dict[K, float]]:
    """Parts of the amount by weight, in whole units; what rounding owes each is carried to the next time.

    Weights are whole numbers and at least one is positive. The units that rounding down leaves go to
    those who are owed most, so that over time everyone is within two units of the exact share.
    """
    total = sum(weights)
    divided = [divmod(amount * weight, total) for weight in weights]
    parts = [part for part, _ in divided]
    debts = [owed.get(key, 0.0) + rest / total for key, (_, rest) in zip(keys, divided, strict=True)]
    if 0 in weights:
        debts = [debt if weight else NOTHING for debt, weight in zip(debts, weights, strict=True)]
    left = amount - sum(parts)
    if left:
        for place in sorted(range(len(parts)), key=debts.__getitem__, reverse=True)[:left]:
            parts[place] += 1
            debts[place] -= 1.0
    return parts, {key: debt for key, debt in zip(keys, debts, strict=True) if debt != NOTHING}


NOTHING = float("-inf")
"""What nobody can be owed: it keeps those who weigh nothing from getting any."""
