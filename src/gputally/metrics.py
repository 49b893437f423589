"""What a metric row is, and how rows over a Tally become families of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from gputally.tally import Tally

GAUGE, COUNTER, INFO = "gauge", "counter", "info"


Value = float | int | bool
Identity = tuple[str, ...]
"""Label values, in the order of the metric's labels."""


@dataclass(frozen=True)
class Scope:
    """What a row speaks of: the things in a Tally, and the labels that tell them apart."""

    name: str
    labels: tuple[str, ...]
    items: Callable[[Tally], Iterable[Any]]
    identity: Callable[[Any], Any]
    """What tells a thing apart: its label values, or what they are spelled from."""
    spell: Callable[[Any], Identity] = tuple
    """An identity's label values; asked only of things that were not there the time before."""
    fields: tuple[str, ...] = ()
    """Where all things are named tuples: what they are tuples of."""


@dataclass(frozen=True)
class Metric:
    """One row; its value is a number, None for no sample, or with `by` a number per set of labels."""

    scope: Scope
    name: str
    type: str
    help: str
    value: str | Callable[[Any], Any]
    """The attribute that has it (`device.power_watts`), or a function."""
    by: tuple[str, ...] = ()
    source: str = ""
    """The call or field that it comes from, for the reference page."""
    since: str = ""
    """The architecture or driver from which on there is such a reading."""
    absent: str = ""
    """What it means that there is no sample."""
    millionths: bool = False
    """Its numbers are whole millionths of the unit, written with six decimals and so without loss."""

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All label names, in the order they are written."""
        return self.scope.labels + self.by

    @cached_property
    def stem(self) -> str:
        """What must differ between two families of one page: OpenMetrics leaves the _total out."""
        return self.name.removesuffix("_total")

    @cached_property
    def read(self) -> Callable[[Any], Any]:
        """What gives the value of a thing."""
        return attrgetter(self.value) if isinstance(self.value, str) else self.value


class Family(NamedTuple):
    """A metric with its numbers; families of one scope share one list of identities."""

    metric: Metric
    identities: Sequence[Any]
    values: Sequence[Value | None]
    """None is no sample."""
    further: Sequence[tuple[Any, ...]] | None = None
    """With `by`: the further labels of each thing's numbers; one further label may be given bare."""


class _Things(NamedTuple):
    """The things of a scope in one Tally."""

    things: list[Any]
    identities: list[Any]
    columns: Mapping[Any, tuple[Any, ...]]
    """Field -> its value for each thing, where they are named tuples."""


def families(metrics: Iterable[Metric], tally: Tally) -> list[Family]:
    """Every row over the Tally; rows without a sample are left out."""
    scopes: dict[str, _Things] = {}
    found = []
    scope = None
    for metric in metrics:
        if metric.scope is not scope:
            scope = metric.scope
            if scope.name not in scopes:
                scopes[scope.name] = _things(scope, tally)
            things, identities, columns = scopes[scope.name]
        if not things:
            continue
        values = (columns and columns.get(metric.value)) or list(map(metric.read, things))
        further = None
        if metric.by:
            if not any(values):
                continue
            further = [tuple(told) if told else () for told in values]
            values = list(chain.from_iterable([told.values() for told in values if told]))
        if values[0] is not None or values.count(None) < len(values):
            found.append(Family(metric, identities, values, further))
    return found


def _things(scope: Scope, tally: Tally) -> _Things:
    things = list(scope.items(tally))
    # All tuples are turned at once: to ask each of them for each of its fields takes three times as long.
    columns = (
        dict(zip(scope.fields, zip(*things, strict=True), strict=True)) if scope.fields and things else {}
    )
    return _Things(things, list(map(scope.identity, things)), columns)
