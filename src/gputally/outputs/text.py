"""The text that Prometheus reads: format 0.0.4 and OpenMetrics 1.0 from one set of sample lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
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


class TextWriter:
    """Writes families; remembers label sets as they are written, since they seldom change."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], Identity], str] = {}
        self._used: dict[tuple[tuple[str, ...], Identity], str] = {}

    def write(self, families: Iterable[Family]) -> Text:
        """Render; label sets that are no longer used are forgotten."""
        self._used = {}
        shared: dict[tuple[int, tuple[str, ...]], tuple[list[str], bool]] = {}
        plain: list[str] = []
        open_metrics: list[str] = []
        count = collisions = 0
        families = list(families)
        names = {family.metric.name for family in families}
        for family in families:
            key = (id(family.identities), family.metric.labels)
            if key not in shared:
                written = [self._labels(family.metric.labels, identity) for identity in family.identities]
                shared[key] = (written, len(set(written)) == len(written))
            labels, distinct = shared[key]
            samples = [pair for pair in zip(labels, family.values, strict=True) if pair[1] is not None]
            lines = samples if distinct else _merged(family.metric, samples)
            count += len(lines)
            collisions += len(samples) - len(lines)
            name = family.metric.name
            body = "".join([f"{name}{head} {_WRITERS[type(value)](value)}\n" for head, value in lines])
            plain += (_plain_header(family.metric), body)
            open_metrics += (_openmetrics_header(family.metric, names), body)
        self._known = self._used
        return Text("".join(plain).encode(), ("".join(open_metrics) + "# EOF\n").encode(), count, collisions)

    def _labels(self, names: tuple[str, ...], identity: Identity) -> str:
        key = (names, identity)
        text = self._used.get(key) or self._known.get(key)
        if text is None:
            pairs = [f'{name}="{escape(value)}"' for name, value in zip(names, identity, strict=True)]
            text = "{" + ",".join(pairs) + "}" if pairs else ""
        self._used[key] = text
        return text


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


def _plain_header(metric: Metric) -> str:
    kind = "gauge" if metric.type == INFO else metric.type
    return f"# HELP {metric.name} {_help(metric)}\n# TYPE {metric.name} {kind}\n"


def _openmetrics_header(metric: Metric, others: Collection[str]) -> str:
    name, kind = metric.name, metric.type
    if kind == COUNTER and (not name.endswith("_total") or name.removesuffix("_total") in others):
        kind = "unknown"  # a counter without _total, as some dialects have it, is no OpenMetrics counter
    name = name.removesuffix("_total") if kind == COUNTER else name
    name = name.removesuffix("_info") if kind == INFO else name
    text = _help(metric).replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _help(metric: Metric) -> str:
    return metric.help.replace("\\", "\\\\").replace("\n", "\\n")
