"""What a GPU draws when nobody holds a context on it, learned while it is empty; pure."""

from __future__ import annotations

from dataclasses import dataclass

SETTLE = 30.0
"""Seconds after the last context went before a GPU counts as at rest: clocks and fans take their time."""
SPAN = 10.0
"""Seconds that one sample of the floor covers, so that the counter's own steps do not matter."""
KEPT = 30


@dataclass(frozen=True)
class Floor:
    """The idle power of a GPU, as far as it was seen."""

    samples: tuple[float, ...] = ()
    empty_since: float | None = None
    _energy_uj: int = 0
    _seconds: float = 0.0

    @property
    def watts(self) -> float | None:
        """A low percentile of what was seen, or None before anything was."""
        return sorted(self.samples)[len(self.samples) // 4] if self.samples else None


def learn(floor: Floor, now: float, empty: bool, energy_uj: int, seconds: float) -> Floor:
    """The floor after one more reading; only time at rest teaches anything."""
    if not empty:
        return floor if floor.empty_since is None else Floor(floor.samples)
    if floor.empty_since is None:
        return Floor(floor.samples, now)
    if now - floor.empty_since < SETTLE:
        return floor
    energy_uj, seconds = floor._energy_uj + energy_uj, floor._seconds + seconds
    if seconds < SPAN:
        return Floor(floor.samples, floor.empty_since, energy_uj, seconds)
    return Floor((*floor.samples, energy_uj / seconds / 1e6)[-KEPT:], floor.empty_since)
