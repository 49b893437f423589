"""The text that Prometheus reads: format 0.0.4 and OpenMetrics 1.0 from one set of sample lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gputally.metrics import COUNTER, INFO, Family, Metric, Micro, Value

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
    """Writes families; remembers the head of each line, which seldom changes."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, tuple[str, ...]], str] = {}

    def write(self, families: Iterable[Family]) -> Text:
        """Render; heads that are no longer used are forgotten."""
        used: dict[tuple[str, tuple[str, ...]], str] = {}
        plain: list[str] = []
        open_metrics: list[str] = []
        count = collisions = 0
        for family in families:
            lines = self._lines(family, used)
            count += len(family.samples)
            collisions += len(family.samples) - len(lines)
            body = "".join([f"{head}{number(value)}\n" for head, value in lines.items()])
            plain += (_plain_header(family.metric), body)
            open_metrics += (_openmetrics_header(family.metric), body)
        self._heads = used
        return Text(
            "".join(plain).encode(),
            ("".join(open_metrics) + "# EOF\n").encode(),
            count - collisions,
            collisions,
        )

    def _lines(self, family: Family, used: dict[tuple[str, tuple[str, ...]], str]) -> dict[str, Value]:
        """Head of line -> number; counters with the same labels are summed, of gauges the first is kept."""
        metric, lines = family.metric, dict[str, Value]()
        for labels, value in family.samples:
            key = (metric.name, labels)
            head = self._heads.get(key) or _head(metric, labels)
            used[key] = head
            if head not in lines:
                lines[head] = value
            elif metric.type == COUNTER:
                lines[head] = type(value)(lines[head] + value)
        return lines


def number(value: Value) -> str:
    """A number as both formats write it."""
    if isinstance(value, Micro):
        whole, millionths = divmod(abs(int(value)), 1_000_000)
        return f"{'-' if value < 0 else ''}{whole}.{millionths:06d}"
    if isinstance(value, int):
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


def _head(metric: Metric, values: tuple[str, ...]) -> str:
    pairs = ",".join([f'{name}="{escape(value)}"' for name, value in zip(metric.labels, values, strict=True)])
    return f"{metric.name}{{{pairs}}} " if pairs else f"{metric.name} "


def _plain_header(metric: Metric) -> str:
    kind = "gauge" if metric.type == INFO else metric.type
    return f"# HELP {metric.name} {_help(metric)}\n# TYPE {metric.name} {kind}\n"


def _openmetrics_header(metric: Metric) -> str:
    name, kind = metric.name, metric.type
    if kind == COUNTER and not name.endswith("_total"):
        kind = "unknown"  # a counter without _total, as some dialects have it, is no OpenMetrics counter
    name = name.removesuffix("_total") if kind == COUNTER else name
    name = name.removesuffix("_info") if kind == INFO else name
    text = _help(metric).replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _help(metric: Metric) -> str:
    return metric.help.replace("\\", "\\\\").replace("\n", "\\n")
