"""docs/MIGRATING.md: every query that it sets side by side answers with data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.conftest import Fleet

PAGE = Path(__file__).parent.parent.parent / "docs" / "MIGRATING.md"
ELSEWHERE = "gputally_workload_memory_limit_bytes"
"""Only where a ratio, an annotation or MIG says how much memory is meant for a workload."""


def queries() -> list[str]:
    table = PAGE.read_text().partition("## Going native")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    found = [query for row in rows for query in re.findall(r"`([^`]+)`", row)]
    return [
        query.replace('pod="x"', 'pod="llm-pretrain-worker-0"') for query in found if ELSEWHERE not in query
    ]


@pytest.mark.parametrize("query", queries())
def test_both_sides_answer(fleet: Fleet, query: str) -> None:
    assert fleet.prometheus.wait_for(query, bool)


def test_there_are_queries() -> None:
    assert len(queries()) > 20
