"""Real and hostile /proc/PID/cgroup contents with the identity they stand for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent.parent / "data" / "cgroup_corpus.jsonl"


@dataclass(frozen=True)
class Case:
    """One row of the corpus."""

    id: str
    content: str
    expect: dict[str, Any]


CASES = tuple(
    Case(row["id"], row["content"], row["expect"])
    for row in map(json.loads, PATH.read_text(encoding="utf-8").splitlines())
)


def paths(content: str) -> list[str]:
    """The paths of the lines that are well formed."""
    return [parts[2] for line in content.splitlines() if len(parts := line.split(":", 2)) == 3]
