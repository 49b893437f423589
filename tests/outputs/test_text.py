"""The text writer, read back by parsers that are not ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from gputally.metrics import COUNTER, GAUGE, INFO, Family, Metric, Micro, Scope, Value
from gputally.outputs.text import LONGEST_VALUE, Text, TextWriter, clean, number

THING = Scope("thing", ("a", "b"), lambda tally: (), lambda item: ())
BARE = Scope("bare", (), lambda tally: (), lambda item: ())
HELP = 'What "it" is, with a \\ and\na second line.'


def metric(name: str, kind: str, scope: Scope = THING, by: tuple[str, ...] = ()) -> Metric:
    return Metric(scope, name, kind, HELP, lambda item: item, by=by)


def family(metric: Metric, samples: Sequence[tuple[tuple[str, ...], Value]]) -> Family:
    return Family(metric, [labels for labels, _ in samples], [value for _, value in samples])


def write(*families: Family) -> Text:
    return TextWriter().write(families)


raw_bytes = st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
any_text = st.text(max_size=600) | raw_bytes
any_labels = st.lists(st.tuples(any_text, any_text), max_size=8, unique=True)


@given(any_labels, st.sampled_from([GAUGE, COUNTER, INFO]))
def test_whatever_labels_hold_both_parsers_read_them_back(labels: list[tuple[str, str]], kind: str) -> None:
    name = {GAUGE: "x_bytes", COUNTER: "x_total", INFO: "x_info"}[kind]
    samples = [(pair, 1) for pair in labels]
    text = write(family(metric(name, kind), samples))
    expected = {(clean(a), clean(b)) for a, b in labels}
    for parse, body in ((parse_plain, text.plain), (parse_openmetrics, text.openmetrics)):
        found = [s for parsed in parse(body.decode()) for s in parsed.samples]
        assert {(s.labels["a"], s.labels["b"]) for s in found} == expected
        assert {s.name for s in found} <= {name}
    assert text.samples == len(expected)
    assert text.collisions == len(labels) - len(expected)


@given(any_text)
def test_a_clean_value_is_short_printable_and_stays_as_it_is(value: str) -> None:
    once = clean(value)
    assert len(once) <= LONGEST_VALUE
    assert clean(once) == once
    once.encode("utf-8")
    assert not any(ord(c) < 32 and c != "\n" for c in once)


def test_long_values_that_differ_at_the_end_stay_different() -> None:
    assert clean("x" * 1000 + "a") != clean("x" * 1000 + "b")


def test_a_forged_label_cannot_make_a_second_series() -> None:
    forged = 'x"} 1\nx_bytes{a="victim",b="'
    text = write(family(metric("x_bytes", GAUGE), [((forged, ""), 7)]))
    (parsed,) = parse_plain(text.plain.decode())
    assert [sample.labels["a"] for sample in parsed.samples] == [forged]


@given(st.integers(min_value=0, max_value=2**80))
def test_millionths_are_written_without_loss(value: int) -> None:
    whole, _, part = number(Micro(value)).partition(".")
    assert len(part) == 6
    assert int(whole + part) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (True, "1"), (1.5, "1.5"), (2**63, str(2**63)), (math.inf, "+Inf"), (-math.inf, "-Inf"),
     (math.nan, "NaN"), (Micro(-1), "-0.000001"), (1e-9, "1e-09")],
)  # fmt: skip
def test_numbers(value: Value, text: str) -> None:
    assert number(value) == text


@given(st.floats(allow_nan=False))
def test_every_float_is_read_back_as_itself(value: float) -> None:
    text = write(family(metric("x", GAUGE, BARE), [((), value)]))
    (parsed,) = parse_plain(text.plain.decode())
    assert parsed.samples[0].value == value


def test_counters_that_collide_are_summed_and_counted() -> None:
    text = write(family(metric("x_total", COUNTER), [(("1", "2"), Micro(3)), (("1", "2"), Micro(4))]))
    assert b'x_total{a="1",b="2"} 0.000007\n' in text.plain
    assert (text.samples, text.collisions) == (1, 1)


def test_headers_of_both_formats() -> None:
    text = write(
        family(metric("c_total", COUNTER, BARE), [((), 1)]),
        family(metric("i_info", INFO, BARE, by=("v",)), [(("1",), 1)]),
        family(metric("old_counter", COUNTER, BARE), [((), 1)]),
    )
    assert b"# TYPE c_total counter\n" in text.plain
    assert b"# TYPE i_info gauge\n" in text.plain
    assert b'# HELP c_total What "it" is, with a \\\\ and\\na second line.\n' in text.plain
    assert b"# TYPE c counter\n" in text.openmetrics
    assert b"# TYPE i info\n" in text.openmetrics
    assert b"# TYPE old_counter unknown\n" in text.openmetrics
    assert text.openmetrics.endswith(b"# EOF\n")
    assert b"# EOF" not in text.plain


def test_what_is_no_longer_written_is_forgotten() -> None:
    writer, row = TextWriter(), metric("x", GAUGE)
    for number_ in range(100):
        writer.write([family(row, [((str(number_), ""), 1)])])
    assert [len(page.heads.written) for page in writer._pages.values()] == [1]
    writer.write([])
    assert not writer._pages


def test_a_family_is_written_anew_when_its_numbers_or_its_labels_changed() -> None:
    writer, row = TextWriter(), metric("x", GAUGE)
    for samples in ([(("a", ""), 1), (("b", ""), 2)], [(("a", ""), 1), (("b", ""), 3)], [(("b", ""), 3)]):
        for _ in range(2):
            assert writer.write([family(row, samples)]) == write(family(row, samples))
