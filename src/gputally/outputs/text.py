"""The text that Prometheus reads: format 0.0.4 and OpenMetrics 1.0 from one set of sample lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputally.metrics import COUNTER, INFO, Family, Identity, Metric, Micro, Value

PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LONGEST_VALUE = 256

# Controls, lone surrogates and marks that turn the direction of text: nothing a name needs.
_UNFIT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Text:
    """One rendering, in both formats."""

    plain: bytes
    openmetrics: bytes
    samples: int
    collisions: int
    """Samples that had the labels of another one in their family."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """Label sets as they are written."""

    identities: Sequence[Identity]
    written: list[str]
    distinct: bool


@dataclass(frozen=True, slots=True)
class _Page:
    """One family as it was last written."""

    metric: Metric
    headers: tuple[bytes, bytes]
    """Plain and OpenMetrics."""
    twofold: bool
    """A family of its name without _total stands beside it."""
    heads: _Heads
    values: Sequence[Value | None]
    body: bytes
    samples: int
    collisions: int


class TextWriter:
    """Writes families; what is as it was the time before is not written again."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    def write(self, families: Iterable[Family]) -> Text:
        """Render; what was not in the families is forgotten."""
        families = list(families)
        names = {family.metric.name for family in families}
        shared: dict[tuple[int, tuple[str, ...]], _Heads] = {}
        pages: list[_Page] = []
        for family in families:
            before = self._pages.get(family.metric.name)
            if before is not None and before.metric is not family.metric:
                before = None
            key = (id(family.identities), family.metric.labels)
            heads = shared.get(key)
            if heads is None:
                heads = shared[key] = _heads(family, before)
            pages.append(_page(family, heads, before, names))
        self._pages = {page.metric.name: page for page in pages}
        return Text(
            b"".join([part for page in pages for part in (page.headers[0], page.body)]),
            b"".join([part for page in pages for part in (page.headers[1], page.body)]) + b"# EOF\n",
            sum(page.samples for page in pages),
            sum(page.collisions for page in pages),
        )


def _heads(family: Family, before: _Page | None) -> _Heads:
    if before is not None and before.heads.identities == family.identities:
        return before.heads
    known = {} if before is None else dict(zip(before.heads.identities, before.heads.written, strict=True))
    names = family.metric.labels
    written = [known.get(identity) or _labels(names, identity) for identity in family.identities]
    return _Heads(family.identities, written, len(set(written)) == len(written))


def _labels(names: tuple[str, ...], identity: Identity) -> str:
    pairs = [f'{name}="{escape(value)}"' for name, value in zip(names, identity, strict=True)]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _page(family: Family, heads: _Heads, before: _Page | None, names: Collection[str]) -> _Page:
    metric, name = family.metric, family.metric.name
    twofold = name.endswith("_total") and name.removesuffix("_total") in names
    if before is not None and before.twofold != twofold:
        before = None
    # A metric's numbers are all of one type, so equal ones are written alike.
    if before is not None and before.heads is heads and before.values == family.values:
        return before
    samples = [pair for pair in zip(heads.written, family.values, strict=True) if pair[1] is not None]
    lines = samples if heads.distinct else _merged(metric, samples)
    body = "".join([f"{name}{head} {_WRITERS[type(value)](value)}\n" for head, value in lines])
    return _Page(
        metric,
        _headers(metric, twofold) if before is None else before.headers,
        twofold,
        heads,
        family.values,
        body.encode(),
        len(lines),
        len(samples) - len(lines),
    )


def _merged(metric: Metric, samples: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Each label set once: counters with the same labels are summed, of gauges the first is kept."""
    lines: dict[str, Any] = {}
    for head, value in samples:
        if head not in lines:
            lines[head] = value
        elif metric.type == COUNTER:
            lines[head] = type(value)(lines[head] + value)
    return list(lines.items())


def number(value: Value) -> str:
    """A number as both formats write it."""
    return _WRITERS[type(value)](value)


def _micro(value: int) -> str:
    digits = f"{value:07d}" if value >= 0 else f"{value:08d}"
    return f"{digits[:-6]}.{digits[-6:]}"


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    Micro: _micro,
    int: int.__repr__,
    bool: lambda value: "1" if value else "0",
    float: _float,
}


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
