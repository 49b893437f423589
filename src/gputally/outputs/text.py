"""The text that Prometheus reads: format 0.0.4 and OpenMetrics 1.0 from one set of sample lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from operator import is_not, truediv
from typing import Any, cast

from gputally.metrics import COUNTER, INFO, Family, Identity, Metric, Value
from gputally.outputs.rendering import Packers, Part, Text

PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LONGEST_VALUE = 256
MILLION = 1_000_000
NO_PART = Part(b"", b"", b"")
EXACT = 1 << 52
"""Below it, a number of millionths that is divided by a million is off by less than half a millionth."""

# Controls, lone surrogates and marks that turn the direction of text: nothing a name needs.
_UNFIT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Heads:
    """Label sets of a scope's things, as they are written."""

    identities: Sequence[Any]
    written: list[str]


@dataclass(frozen=True, slots=True)
class _Frame:
    """All of a family but its numbers, which stays while they change."""

    metric: Metric
    twofold: bool
    """A family of its name without _total stands beside it."""
    heads: _Heads
    further: Sequence[tuple[Any, ...]] | None
    gaps: list[bool] | None
    """Which values are None, where any is."""
    field: bytes
    plain: bytes
    openmetrics: bytes
    template: bytes
    """The lines, with a field in the place of each number."""
    samples: int
    collisions: int

    def fits(self, heads: _Heads, further: Any, gaps: list[bool] | None, field: bytes) -> bool:
        """Whether numbers of such a family can be put into the template."""
        same = self.heads is heads and self.field == field and self.gaps == gaps
        return same and not self.collisions and self.further == further


@dataclass(frozen=True, slots=True)
class _Page:
    """One family as it was last written."""

    frame: _Frame
    family: Family
    part: Part


class TextWriter:
    """Writes families; of those that were written before only numbers that changed are written anew."""

    def __init__(self) -> None:
        self._families: Sequence[Family] = ()
        self._twofold: list[bool] = []
        self._pages: list[_Page | None] = []
        """Of each of the families, as it was last written."""
        self._parts: list[Part] = []
        """The same."""
        self._samples = self._collisions = 0
        self._heads: dict[str, _Heads] = {}
        """Of each scope."""
        self._packers = Packers()

    def write(self, families: Sequence[Family]) -> Text:
        """Render; what was not in the families is forgotten."""
        changed = self._changed(families)
        if changed is None:
            self._lay_out([family.metric for family in families])
            changed = range(len(families))
        self._families = families
        for place in changed:
            family, before = families[place], self._pages[place]
            if before is not None and before.family is family:
                continue
            frame = None if before is None else before.frame
            page = _page(family, self._heads_of(family), self._twofold[place], frame)
            self._pages[place], self._parts[place] = page, page.part
            if page.frame is not frame:
                self._samples += page.frame.samples - (frame.samples if frame else 0)
                self._collisions += page.frame.collisions - (frame.collisions if frame else 0)
        return Text(tuple(self._parts), self._samples, self._collisions, self._packers)

    def _changed(self, families: Sequence[Family]) -> Sequence[int] | None:
        """Which of them are others than the time before; None if they are of other metrics."""
        before = self._families
        if len(families) != len(before):
            return None
        changed = [*compress(range(len(families)), map(is_not, families, before))]
        if any(families[place].metric is not before[place].metric for place in changed):
            return None
        return changed

    def _lay_out(self, metrics: list[Metric]) -> None:
        """Keep what was written of metrics that are still there."""
        names = {metric.name for metric in metrics}
        known = {page.frame.metric.name: page for page in self._pages if page is not None}
        self._twofold = [metric.stem in names and metric.stem != metric.name for metric in metrics]
        self._pages = [
            page
            if (page := known.get(metric.name)) and page.frame.metric is metric and page.frame.twofold is both
            else None
            for metric, both in zip(metrics, self._twofold, strict=True)
        ]
        self._parts = [NO_PART if page is None else page.part for page in self._pages]
        kept = [page.frame for page in self._pages if page is not None]
        self._samples = sum(frame.samples for frame in kept)
        self._collisions = sum(frame.collisions for frame in kept)
        scopes = {metric.scope.name for metric in metrics}
        self._heads = {name: heads for name, heads in self._heads.items() if name in scopes}

    def _heads_of(self, family: Family) -> _Heads:
        scope = family.metric.scope.name
        heads = self._heads.get(scope)
        if heads is None or heads.identities is not family.identities:
            heads = self._heads[scope] = _heads(family, heads)
        return heads


def _heads(family: Family, before: _Heads | None) -> _Heads:
    if before is not None and before.identities == family.identities:
        return before
    known = {} if before is None else dict(zip(before.identities, before.written, strict=True))
    names, spell = family.metric.scope.labels, family.metric.scope.spell
    written = [known.get(identity) or _labels(names, spell(identity)) for identity in family.identities]
    return _Heads(family.identities, written)


def _labels(names: tuple[str, ...], values: Identity) -> str:
    return ",".join([f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True)])


def _page(family: Family, heads: _Heads, twofold: bool, before: _Frame | None) -> _Page:
    metric, _, values, further = family
    gaps = [value is None for value in values] if None in values else None
    numbers = cast(Sequence[Value], values if gaps is None else [v for v in values if v is not None])
    field, filling = _filling(numbers, metric.millionths)
    if before is not None and before.fits(heads, further, gaps, field):
        return _Page(before, family, Part(before.plain, before.openmetrics, before.template % filling))
    lines = _merged(metric, zip(_series(family, heads, gaps), numbers, strict=True))
    collisions = len(numbers) - len(lines)
    if collisions:
        field, filling = _filling(list(lines.values()), metric.millionths)
    above = _headers(metric, twofold) if before is None else (before.plain, before.openmetrics)
    template = _template(lines, field)
    frame = _Frame(metric, twofold, heads, further, gaps, field, *above, template, len(lines), collisions)
    return _Page(frame, family, Part(*above, template % filling))


def _series(family: Family, heads: _Heads, gaps: list[bool] | None) -> list[str]:
    """Names with labels, of each value that is not None."""
    metric, labels = family.metric, heads.written
    if family.further is not None:
        labels = [
            f"{head}{',' if head else ''}{_labels(metric.by, more if isinstance(more, tuple) else (more,))}"
            for head, told in zip(heads.written, family.further, strict=True)
            for more in told
        ]
    series = [f"{metric.name}{{{written}}}" if written else metric.name for written in labels]
    return series if gaps is None else [name for name, gap in zip(series, gaps, strict=True) if not gap]


def _merged(metric: Metric, samples: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Each label set once: counters with the same labels are summed, of gauges the first is kept."""
    lines: dict[str, Any] = {}
    for series, value in samples:
        if series not in lines:
            lines[series] = value
        elif metric.type == COUNTER:
            lines[series] = type(value)(lines[series] + value)
    return lines


def _template(series: Iterable[str], field: bytes) -> bytes:
    return b"".join([name.replace("%", "%%").encode() + b" " + field + b"\n" for name in series])


def _filling(numbers: Sequence[Value], millionths: bool) -> tuple[bytes, tuple[Any, ...]]:
    """The field that writes every one of the numbers as `number` does, and what is put into the fields."""
    types = set(map(type, numbers))
    if millionths:
        if types == {int} and min(numbers) >= 0:
            if max(numbers) < EXACT:
                return b"%.6f", tuple(map(truediv, numbers, repeat(MILLION)))
            return b"%d.%06d", tuple(chain.from_iterable(map(divmod, numbers, repeat(MILLION))))
    elif types <= {int, bool}:
        return b"%d", tuple(numbers)
    elif types == {float} and math.isfinite(sum(numbers)):
        # Floats are dear to write, and many are alike; but -0.0, which equals 0.0, is not written like it.
        known = {value: b"%a" % value for value in set(numbers)}
        if 0.0 not in known:
            return b"%b", tuple(map(known.__getitem__, numbers))
        return b"%b", tuple([known[value] if value else b"%a" % value for value in numbers])
    return b"%b", tuple([number(value, millionths).encode() for value in numbers])


def number(value: Value, millionths: bool = False) -> str:
    """A number as both formats write it."""
    if millionths:
        whole, rest = divmod(abs(int(value)), MILLION)
        return f"{'-' if value < 0 else ''}{whole}.{rest:06d}"
    if not isinstance(value, float):
        return str(int(value))
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def clean(value: str) -> str:
    """A label value without bytes that a reader could stumble over, and of bounded length."""
    if len(value) > LONGEST_VALUE:
        mark = hashlib.blake2s(value.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        value = f"{value[: LONGEST_VALUE - 9]}~{mark}"
    return _UNFIT.sub("\ufffd", value)


def escape(value: str) -> str:
    """A label value between its quotes; the one place where this is done."""
    return clean(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _headers(metric: Metric, twofold: bool) -> tuple[bytes, bytes]:
    return _plain_header(metric).encode(), _openmetrics_header(metric, twofold).encode()


def _plain_header(metric: Metric) -> str:
    kind = "gauge" if metric.type == INFO else metric.type
    return f"# HELP {metric.name} {_help(metric)}\n# TYPE {metric.name} {kind}\n"


def _openmetrics_header(metric: Metric, twofold: bool) -> str:
    name, kind = metric.name, metric.type
    if kind == COUNTER and (twofold or not name.endswith("_total")):
        kind = "unknown"  # a counter without _total, as some dialects have it, is no OpenMetrics counter
    name = name.removesuffix("_total") if kind == COUNTER else name
    name = name.removesuffix("_info") if kind == INFO else name
    text = _help(metric).replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _help(metric: Metric) -> str:
    return metric.help.replace("\\", "\\\\").replace("\n", "\\n")
