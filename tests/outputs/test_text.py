"""The text writer, read back by parsers that are not ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from gputally.metrics import COUNTER, GAUGE, INFO, Family, Metric, Scope, Value
from gputally.outputs.rendering import Packers, Text, together
from gputally.outputs.text import EXACT, LONGEST_VALUE, TextWriter, clean, number

THING = Scope("thing", ("a", "b"), lambda tally: (), lambda item: item)
BARE = Scope("bare", (), lambda tally: (), lambda item: item)
HELP = 'What "it" is, with a \\ and\na second line.'


def metric(
    name: str, kind: str, scope: Scope = THING, by: tuple[str, ...] = (), millionths: bool = False
) -> Metric:
    return Metric(scope, name, kind, HELP, lambda item: item, by=by, millionths=millionths)


def family(metric: Metric, samples: Sequence[tuple[tuple[str, ...], Value | None]]) -> Family:
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
    whole, _, part = number(value, millionths=True).partition(".")
    assert len(part) == 6
    assert int(whole + part) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (True, "1"), (1.5, "1.5"), (2**63, str(2**63)), (math.inf, "+Inf"), (-math.inf, "-Inf"),
     (math.nan, "NaN"), (1e-9, "1e-09"), (-0.0, "-0.0"), (-7, "-7"), (False, "0")],
)  # fmt: skip
def test_numbers(value: Value, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.000000"), (1, "0.000001"), (-1, "-0.000001"), (-1_000_000, "-1.000000"),
     (-1_500_000, "-1.500000"), (12_345_678, "12.345678")],
)  # fmt: skip
def test_millionths(value: int, text: str) -> None:
    assert number(value, millionths=True) == text


def check_lines(writer: TextWriter, row: Metric, values: Sequence[Value | None]) -> None:
    text = writer.write([family(row, [((str(i), ""), value) for i, value in enumerate(values)])])
    told = [(i, value) for i, value in enumerate(values) if value is not None]
    expected = [f'x{{a="{i}",b=""}} {number(value, row.millionths)}' for i, value in told]
    assert text.plain.decode().splitlines()[2:] == expected
    assert text.samples == len(told)


any_whole = st.integers() | st.none()
few_floats = st.sampled_from([0.0, 0.1, 1.0, math.nan, math.inf, -math.inf, None])
any_float = st.floats().map(lambda value: value + 0.0) | st.none()  # -0.0 equals 0.0: not written anew for it


@given(
    st.sampled_from([any_whole, st.booleans() | st.none(), any_float, few_floats]).flatmap(
        lambda kind: st.lists(st.lists(kind), min_size=1, max_size=4)
    )
)
def test_numbers_that_change_are_written_as_each_would_be_alone(rounds: list[list[Value | None]]) -> None:
    writer, row = TextWriter(), metric("x", GAUGE)
    for values in rounds:
        check_lines(writer, row, values)


around_exact = st.integers(EXACT - 1000, EXACT + 1000) | st.integers(0, 2 * EXACT)


@given(
    st.sampled_from([any_whole, around_exact, st.integers(0, EXACT)]).flatmap(
        lambda kind: st.lists(st.lists(kind), min_size=1, max_size=4)
    )
)
def test_millionths_that_change_are_written_as_each_would_be_alone(rounds: list[list[Value | None]]) -> None:
    writer, row = TextWriter(), metric("x", GAUGE, millionths=True)
    for values in rounds:
        check_lines(writer, row, values)


@given(st.lists(st.floats() | st.integers() | st.booleans() | st.sampled_from([0.0, -0.0, 0, False, 1.0, 1])))
def test_numbers_of_several_types_are_each_written_as_they_are(values: list[Value]) -> None:
    check_lines(TextWriter(), metric("x", GAUGE), values)


@given(st.floats(allow_nan=False))
def test_every_float_is_read_back_as_itself(value: float) -> None:
    text = write(family(metric("x", GAUGE, BARE), [((), value)]))
    (parsed,) = parse_plain(text.plain.decode())
    assert parsed.samples[0].value == value


def test_counters_that_collide_are_summed_and_counted() -> None:
    writer, row = TextWriter(), metric("x_total", COUNTER, millionths=True)
    for first in (3, 5):
        text = writer.write([family(row, [(("1", "2"), first), (("1", "2"), 4), (("1", "3"), None)])])
        assert b'x_total{a="1",b="2"} 0.00000%d\n' % (first + 4) in text.plain
        assert (text.samples, text.collisions) == (1, 1)


def test_of_gauges_that_collide_the_first_is_kept() -> None:
    text = write(family(metric("x", GAUGE), [(("1", "2"), None), (("1", "2"), 3), (("1", "2"), 4)]))
    assert text.plain.endswith(b'x{a="1",b="2"} 3\n')
    assert (text.samples, text.collisions) == (1, 1)


def test_samples_that_no_longer_collide_are_all_written() -> None:
    writer, row = TextWriter(), metric("x", GAUGE)
    identities = [("1", "2"), ("1", "2")]
    assert writer.write([Family(row, identities, [3, 4])]).collisions == 1
    text = writer.write([Family(row, identities, [None, 4])])
    assert text.plain.endswith(b'x{a="1",b="2"} 4\n')
    assert (text.samples, text.collisions) == (1, 0)


def test_labels_that_look_like_fields_are_written_as_they_are() -> None:
    writer, row = TextWriter(), metric("x", GAUGE)
    for value in (1, 2):
        text = writer.write([family(row, [(("%d %s %%", "{0} {{}} \\ %"), value)])])
        assert text.plain.endswith(b'x{a="%%d %%s %%%%",b="{0} {{}} \\\\ %%"} %d\n' % value)


def test_further_labels_of_each_thing() -> None:
    writer, row = TextWriter(), metric("x", GAUGE, by=("c", "d"))
    bare = metric("y", GAUGE, BARE, by=("c",))
    for more in (("p", "q"), ("p", 'r"')):
        written = more[1].replace('"', '\\"')
        identities = [("1", "2"), ("3", "4"), ("5", "6")]
        text = writer.write(
            [
                Family(row, identities, [1, None, 3], [(more, ("s", "t")), (), (("u", "v"),)]),
                Family(bare, [()], [5, 6], [("e", "f")]),
            ]
        )
        assert [line for line in text.plain.decode().splitlines() if line[0] != "#"] == [
            f'x{{a="1",b="2",c="p",d="{written}"}} 1',
            'x{a="5",b="6",c="u",d="v"} 3',
            'y{c="e"} 5',
            'y{c="f"} 6',
        ]


def test_a_counter_beside_its_name_without_total_is_unknown_to_openmetrics_as_long_as_both_are_there() -> (
    None
):
    writer, old, new = TextWriter(), metric("x", COUNTER, BARE), metric("x_total", COUNTER, BARE)
    for both in (True, False, True):
        text = writer.write([*([family(old, [((), 1)])] if both else []), family(new, [((), 1)])])
        assert (b"# TYPE x_total unknown\n" in text.openmetrics) is both
        assert (b"# TYPE x counter\n" in text.openmetrics) is not both


def test_both_formats_have_the_same_lines_and_are_joined_once() -> None:
    text = write(family(metric("x_total", COUNTER), [(("1", "2"), 3)]), family(metric("y", GAUGE), []))
    assert text.plain is text.plain
    assert text.openmetrics is text.openmetrics
    lines = [line for line in text.plain.splitlines() if not line.startswith(b"#")]
    assert lines == [line for line in text.openmetrics.splitlines() if not line.startswith(b"#")]
    packers = Packers()
    twice = together([text, text], packers)
    assert twice.plain == text.plain * 2
    assert twice.openmetrics == text.openmetrics.removesuffix(b"# EOF\n") + text.openmetrics
    assert (twice.samples, together([text], packers).parts) == (2, text.parts)


def test_headers_of_both_formats() -> None:
    text = write(
        family(metric("c_total", COUNTER, BARE), [((), 1)]),
        Family(metric("i_info", INFO, BARE, by=("v",)), [()], [1], [("1",)]),
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
    assert [len(heads.written) for heads in writer._heads.values()] == [1]
    assert [page.frame.samples for page in writer._pages if page] == [1]
    writer.write([])
    assert not writer._pages
    assert not writer._heads


def test_a_family_is_written_anew_when_its_numbers_or_its_labels_changed() -> None:
    writer, row = TextWriter(), metric("x", GAUGE)
    for samples in ([(("a", ""), 1), (("b", ""), 2)], [(("a", ""), 1), (("b", ""), 3)], [(("b", ""), 3)]):
        for _ in range(2):
            assert writer.write([family(row, samples)]) == write(family(row, samples))


def test_labels_are_spelled_once_as_long_as_a_thing_is_there() -> None:
    spelled: list[tuple[int, str]] = []

    def spell(identity: tuple[int, str]) -> tuple[str, str]:
        spelled.append(identity)
        return (str(identity[0]), identity[1])

    scope = Scope("numbered", ("a", "b"), lambda tally: (), lambda item: item, spell)
    writer, rows = TextWriter(), (metric("x", GAUGE, scope), metric("y", GAUGE, scope))
    for numbers in ((1, 2), (1, 2), (2, 3), (3,), (1,)):
        identities = [(number, "%") for number in numbers]
        text = writer.write([Family(row, identities, [7 for _ in numbers]) for row in rows])
        assert text.plain.decode().count('y{a="') == len(numbers)
        assert text.plain.endswith(b'y{a="%d",b="%%"} 7\n' % numbers[-1])
    assert spelled == [(1, "%"), (2, "%"), (3, "%"), (1, "%")]
