"""Series of another exporter as text: its names, types, HELP and values as it wrote them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gputally.foreign import ForeignFamily, ForeignSample
from gputally.outputs.rendering import Part, Text
from gputally.outputs.text import escape

Line = tuple[str, str]
"""A sample's name, and the whole line."""


def write(families: Iterable[ForeignFamily], taken: Collection[str] = ()) -> Text:
    """Both formats; families whose name is taken are left out, and of two equal series the first is kept."""
    parts: list[Part] = []
    count = collisions = 0
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for family in families:
        lines: list[Line] = []
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels))
            if key in seen or not taken_by_none(sample, family, taken):
                collisions += 1
            else:
                seen.add(key)
                lines.append((sample.name, _line(sample)))
        if lines:
            count += len(lines)
            plain, openmetrics = "".join(_plain(family, lines)), "".join(_openmetrics(family, lines))
            parts.append(Part(plain.encode(), openmetrics.encode(), b""))
    return Text(tuple(parts), count, collisions)


def taken_by_none(sample: ForeignSample, family: ForeignFamily, taken: Collection[str]) -> bool:
    """Neither the sample nor its family has a name of ours."""
    return sample.name not in taken and family.name not in taken


def _line(sample: ForeignSample) -> str:
    labels = ",".join(f'{name}="{escape(value)}"' for name, value in sample.labels)
    return f"{sample.name}{{{labels}}} {sample.value}\n"


def _plain(family: ForeignFamily, lines: list[Line]) -> Iterable[str]:
    if family.help is not None:
        yield f"# HELP {family.name} {family.help}\n"
    if family.type is not None:
        yield f"# TYPE {family.name} {family.type}\n"
    yield from (line for _, line in lines)


def _openmetrics(family: ForeignFamily, lines: list[Line]) -> Iterable[str]:
    """OpenMetrics asks more of counters, histograms and summaries than was written: the rest is unknown."""
    for name in dict.fromkeys(name for name, _ in lines):
        base, kind = name, "unknown"
        if family.type == "counter" and name.endswith("_total"):
            base, kind = name.removesuffix("_total"), "counter"
        elif family.type == "gauge":
            kind = "gauge"
        if family.help is not None:
            yield f"# HELP {base} " + family.help.replace('"', '\\"') + "\n"
        yield f"# TYPE {base} {kind}\n"
        yield from (line for own, line in lines if own == name)
