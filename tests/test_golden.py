"""Every recorded machine in every dialect gives the committed bytes; `make golden` rewrites them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from gputally.dialects import DIALECTS
from tests.golden_files import HERE, cases, collisions, expected_path, render


@pytest.mark.parametrize(("machine", "dialect"), cases(), ids="-".join)
def test_bytes_are_as_committed(machine: str, dialect: str) -> None:
    assert render(machine, dialect).decode() == expected_path(machine, dialect).read_text()


def test_no_golden_file_is_left_over() -> None:
    assert set((HERE / "golden").iterdir()) == {expected_path(*case) for case in cases()}


@pytest.mark.parametrize(("machine", "dialect"), cases(), ids="-".join)
def test_no_series_stands_twice_and_none_is_without_a_number(machine: str, dialect: str) -> None:
    text = expected_path(machine, dialect).read_text()
    samples = [sample for family in parse_plain(text) for sample in family.samples]
    # As they are written: the parser adds _total to the name of a counter that has none.
    keys = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) == len(set(keys)) == len(samples)
    assert all(sample.value == sample.value for sample in samples)


@pytest.mark.parametrize(("machine", "dialect"), cases(), ids="-".join)
def test_no_series_is_published_that_another_has_already(machine: str, dialect: str) -> None:
    assert collisions(machine, dialect) == 0


@pytest.mark.parametrize("machine", sorted({machine for machine, _ in cases()}))
def test_dialects_beside_each_other_have_no_series_in_common(machine: str) -> None:
    assert collisions(machine, ",".join(DIALECTS)) == 0
