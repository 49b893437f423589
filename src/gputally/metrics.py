"""What a metric row is, and how rows over a Tally become families of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gputally.tally import Tally

GAUGE, COUNTER, INFO = "gauge", "counter", "info"


class Micro(int):
    """A whole number of millionths, written with six decimals and so without loss."""


Value = float | int | bool | Micro
Identity = tuple[str, ...]
"""Label values, in the order of the metric's labels."""


@dataclass(frozen=True)
class Scope:
    """What a row speaks of: the things in a Tally, and the labels that tell them apart."""

    name: str
    labels: tuple[str, ...]
    items: Callable[[Tally], Iterable[Any]]
    identity: Callable[[Any], Identity]


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

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All label names, in the order they are written."""
        return self.scope.labels + self.by


@dataclass(frozen=True)
class Family:
    """A metric with its numbers; families of one scope share one list of identities, so None is no sample."""

    metric: Metric
    identities: Sequence[Identity]
    values: Sequence[Value | None]


def families(metrics: Iterable[Metric], tally: Tally) -> list[Family]:
    """Every row over the Tally; rows without a sample are left out."""
    scopes: dict[str, tuple[list[Any], list[Identity]]] = {}
    found = []
    for metric in metrics:
        scope = metric.scope
        if scope.name not in scopes:
            things = list(scope.items(tally))
            scopes[scope.name] = (things, [scope.identity(thing) for thing in things])
        things, identities = scopes[scope.name]
        value = metric.value
        values = [value(thing) for thing in things]
        family = _spread(metric, identities, values) if metric.by else Family(metric, identities, values)
        if family.values.count(None) < len(family.values):
            found.append(family)
    return found


def _spread(
    metric: Metric, identities: Sequence[Identity], values: Iterable[Mapping[Any, Any] | None]
) -> Family:
    """A sample for each set of further labels; one further label may be given bare."""
    every: list[Identity] = []
    numbers: list[Value | None] = []
    for identity, told in zip(identities, values, strict=True):
        if told:
            every += [identity + (extra if isinstance(extra, tuple) else (extra,)) for extra in told]
            numbers += told.values()
    return Family(metric, every, numbers)
