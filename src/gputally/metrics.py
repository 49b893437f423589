"""What a metric row is, and how rows over a Tally become families of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, groupby
from operator import attrgetter, ne
from typing import Any, NamedTuple

from gputally.columns import Columns, picker
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
    """What it has in a Tally, of a mapping its pairs; the very same object says that nothing has changed."""
    identity: Callable[[Any], Any]
    """What tells a thing apart: its label values, or what they are spelled from."""
    spell: Callable[[Any], Identity] = tuple
    """An identity's label values; asked only of things that were not there the time before."""
    fields: tuple[str, ...] = ()
    """Where all things are named tuples: what they are tuples of."""
    leading: int = 0
    """Where `identity` takes just the first so many of the fields: how many."""


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

    items: Iterable[Any]
    things: Sequence[Any]
    leading: Sequence[Any]
    """The columns that tell them apart, where those are known."""
    identities: list[Any]
    columns: Mapping[Any, Sequence[Any]]
    """Field -> its value for each thing, where they are named tuples."""


def families(metrics: Iterable[Metric], tally: Tally) -> list[Family]:
    """Every row over one Tally; rows without a sample are left out."""
    return Table(metrics).families(tally)


class Table:
    """Rows over one Tally after the other; a family that tells the same again is the very same one."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._blocks = [_Block(scope, tuple(rows)) for scope, rows in groupby(metrics, attrgetter("scope"))]
        self._scopes: dict[str, _Things] = {}

    def families(self, tally: Tally) -> list[Family]:
        """Every row; rows without a sample are left out."""
        before, self._scopes = self._scopes, {}
        found: list[Family] = []
        for block in self._blocks:
            name = block.scope.name
            last = before.get(name)
            here = self._scopes.get(name) or _things(block.scope, tally, last)
            self._scopes[name] = here
            if here.things:
                found += block.families(here, same=here is last)
        return found


class _Block:
    """Rows of one scope that stand together, and what was told the time before."""

    def __init__(self, scope: Scope, metrics: tuple[Metric, ...]) -> None:
        self.scope = scope
        self._metrics = metrics
        named = [m.value for m in metrics if isinstance(m.value, str) and m.value not in scope.fields]
        # All attributes of a thing in one go; the first once more, because one alone would not be a tuple.
        self._ask = attrgetter(*named, named[0]) if named else None
        self._fields = [m.value for m in metrics if m.value in scope.fields]
        self._functions = [m.value for m in metrics if not isinstance(m.value, str)]
        sources = [*named, *named[:1], *self._fields, *self._functions]
        self._in_order = picker([sources.index(metric.value) for metric in metrics])
        self._identities: list[Any] = []
        self._told: Sequence[Sequence[Any]] = ()
        """Of each row what every thing told."""
        self._families: list[Family | None] = [None] * len(metrics)
        self._shown: list[Family] = []

    def families(self, here: _Things, *, same: bool) -> list[Family]:
        """What these rows tell of the things; `same` = nothing can be another than the time before."""
        if same and self._told:
            return self._shown
        before, self._told = self._told, self._in_order(self._columns(here))
        rows: Iterable[int] = range(len(self._metrics))
        if here.identities is self._identities:
            rows = compress(rows, map(ne, before, self._told))
        self._identities = here.identities
        for row in rows:
            self._families[row] = _family(self._metrics[row], here.identities, self._told[row])
        self._shown = [family for family in self._families if family is not None]
        return self._shown

    def _columns(self, here: _Things) -> list[Sequence[Any]]:
        """What every thing tells of each attribute, then of each field, then to each function."""
        asked = [] if self._ask is None else zip(*map(self._ask, here.things), strict=True)
        fields = [here.columns[field] for field in self._fields]
        return [*asked, *fields, *[list(map(function, here.things)) for function in self._functions]]


def _things(scope: Scope, tally: Tally, before: _Things | None) -> _Things:
    """The things as they are now: what was known before, as far as it is still true."""
    items = scope.items(tally)
    if before is not None and before.items is items:
        return before
    things: Sequence[Any]
    if isinstance(items, Columns):
        things, turned = items, items.columns
    else:
        things = list(items.items() if isinstance(items, Mapping) else items)
        # All tuples are turned at once: to ask each of them for each of its fields takes three times as long.
        turned = tuple(zip(*things, strict=True)) if scope.fields and things else ()
    leading, columns = turned[: scope.leading], dict(zip(scope.fields, turned, strict=bool(turned)))
    if before is not None and leading and leading == before.leading:
        return _Things(items, things, leading, before.identities, columns)
    identities = list(map(scope.identity, things))
    if before is not None and identities == before.identities:
        identities = before.identities
    return _Things(items, things, leading, identities, columns)


def _family(metric: Metric, identities: list[Any], told: Sequence[Any]) -> Family | None:
    values, further = told, None
    if metric.by:
        further = [tuple(numbers) if numbers else () for numbers in told]
        values = list(chain.from_iterable([numbers.values() for numbers in told if numbers]))
    return Family(metric, identities, values, further) if values.count(None) < len(values) else None
