"""What a metric row is, and how rows over a Tally become families of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


def families(metrics: Iterable[Metric], tally: Tally) -> list[Family]:
    """Every row over the Tally; rows without a sample are left out."""
    scopes: dict[str, tuple[list[Any], list[Any]]] = {}
    found = []
    for metric in metrics:
        scope = metric.scope
        if scope.name not in scopes:
            things = list(scope.items(tally))
            scopes[scope.name] = (things, list(map(scope.identity, things)))
        things, identities = scopes[scope.name]
        values, further = list(map(metric.read, things)), None
        if metric.by:
            if not any(values):
                continue
            further = [tuple(told) if told else () for told in values]
            values = list(chain.from_iterable([told.values() for told in values if told]))
        if values.count(None) < len(values):
            found.append(Family(metric, identities, values, further))
    return found
