"""What a metric row is, and how rows over a Tally become families of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputally.tally import Tally

GAUGE, COUNTER, INFO = "gauge", "counter", "info"


class Micro(int):
    """A whole number of millionths, written with six decimals and so without loss."""


Value = float | int | bool | Micro


@dataclass(frozen=True)
class Scope:
    """What a row speaks of: the things in a Tally, and the labels that tell them apart."""

    name: str
    labels: tuple[str, ...]
    items: Callable[[Tally], Iterable[Any]]
    identity: Callable[[Any], tuple[str, ...]]


@dataclass(frozen=True)
class Metric:
    """One row; `value` gives a number, None for no sample, or with `by` a number per set of labels."""

    scope: Scope
    name: str
    type: str
    help: str
    value: Callable[[Any], Any]
    by: tuple[str, ...] = ()
    source: str = ""
    """The call or field that it comes from, for the reference page."""
    since: str = ""
    """The architecture or driver from which on there is such a reading."""
    absent: str = ""
    """What it means that there is no sample."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All label names, in the order they are written."""
        return self.scope.labels + self.by


@dataclass(frozen=True)
class Family:
    """A metric with its samples: label values and number."""

    metric: Metric
    samples: Sequence[tuple[tuple[str, ...], Value]]


def families(metrics: Iterable[Metric], tally: Tally) -> list[Family]:
    """Every row over the Tally; rows without a sample are left out."""
    items: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    found = []
    for metric in metrics:
        scope = metric.scope
        if scope.name not in items:
            items[scope.name] = [(scope.identity(item), item) for item in scope.items(tally)]
        samples = list(_samples(metric, items[scope.name]))
        if samples:
            found.append(Family(metric, samples))
    return found


def _samples(
    metric: Metric, items: Iterable[tuple[tuple[str, ...], Any]]
) -> Iterable[tuple[tuple[str, ...], Value]]:
    for identity, item in items:
        value = metric.value(item)
        if value is None:
            continue
        if not metric.by:
            yield identity, value
            continue
        parts: Mapping[Any, Value | None] = value
        for extra, number in parts.items():
            if number is not None:
                yield identity + (extra if isinstance(extra, tuple) else (extra,)), number
