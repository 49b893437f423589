"""The two extremes of what the driver's utilization samples can mean; only hardware could tell which."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gputally.machine.simulation import Sampler
from gputally.machine.simulation.gpu import Account, Window

Seen = dict[Account, int]
"""Slots in which each process was seen running."""


def fraction(windows: Iterable[Window]) -> Seen:
    """Each process its true share of the windows."""
    seen: Seen = {}
    for window in windows:
        for account, slots in window.ran.items():
            seen[account] = seen.get(account, 0) + slots
    return seen


def one_owner(windows: Iterable[Window]) -> Seen:
    """The whole window to whoever ran at its end."""
    seen: Seen = {}
    for window in windows:
        if window.owner is not None:
            seen[window.owner] = seen.get(window.owner, 0) + window.end - window.start
    return seen


SAMPLERS: dict[Sampler, Callable[[Iterable[Window]], Seen]] = {"fraction": fraction, "one-owner": one_owner}
