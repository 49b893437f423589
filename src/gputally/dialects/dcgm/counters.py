"""dcgm-exporter's file of counters: a DCGM field, a metric type and a help text on each line."""

from __future__ import annotations

import re
from typing import NamedTuple

TYPES = ("gauge", "counter", "histogram", "summary", "label")
LARGEST = 1 << 20


class Counter(NamedTuple):
    """One line."""

    field: str
    """The name of the DCGM field, and so of the metric."""
    type: str
    help: str


def parse(text: str) -> tuple[Counter, ...]:
    """The lines that are no comments; a ValueError says which cannot be understood."""
    found: dict[str, Counter] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) != 3 or not re.fullmatch(r"DCGM_(FI|EXP)_[A-Z0-9_]{1,100}", parts[0]):
            raise ValueError(f"lines such as `DCGM_FI_DEV_GPU_TEMP, gauge, text`, and line {number} is not")
        if parts[1] not in TYPES:
            raise ValueError(f"of types {', '.join(TYPES)}, and line {number} has {parts[1][:40]!r}")
        if parts[0] in found:
            raise ValueError(f"each field once, and line {number} has {parts[0]} again")
        found[parts[0]] = Counter(*parts)
    if not found:
        raise ValueError("a file with at least one counter")
    return tuple(found.values())
