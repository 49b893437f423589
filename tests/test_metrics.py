"""Rows over a Tally: what is a family, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from gputally.metrics import GAUGE, Family, Metric, Scope, Table, families
from gputally.model import Snapshot
from gputally.tally import NamespaceUse, Tally

TALLY = Tally(Snapshot(1.0, 2.0), "test")
NUMBER = Scope("number", ("n",), lambda tally: (-1, 0, 1), lambda number: (str(number),))


def test_a_row_without_a_sample_is_no_family() -> None:
    assert not families([Metric(NUMBER, "x", GAUGE, "", lambda _: None)], TALLY)
    assert not families([Metric(NUMBER, "x", GAUGE, "", lambda _: None, by=("b",))], TALLY)
    assert not families([Metric(NUMBER, "x", GAUGE, "", lambda _: {}, by=("b",))], TALLY)
    assert not families([Metric(NUMBER, "x", GAUGE, "", lambda _: {"a": None}, by=("b",))], TALLY)


def test_zero_is_a_sample() -> None:
    (family,) = families([Metric(NUMBER, "x", GAUGE, "", lambda number: 0 if number else None)], TALLY)
    assert (family.values, family.further) == ([0, None, 0], None)


def test_a_row_may_name_the_attribute_that_it_shows() -> None:
    rows = [Metric(NUMBER, "x", GAUGE, "", "real"), Metric(NUMBER, "y", GAUGE, "", "real.imag")]
    assert [list(family.values) for family in families(rows, TALLY)] == [[-1, 0, 1], [0, 0, 0]]


class Pair(NamedTuple):
    """A thing whose fields are numbers."""

    n: int
    twice: int | None


def test_rows_over_named_tuples_may_name_a_field_or_have_a_function() -> None:
    pairs = Scope("pair", ("n",), lambda tally: (Pair(1, None), Pair(2, 4)), lambda pair: (str(pair.n),))
    named = replace(pairs, fields=Pair._fields)
    for scope in (pairs, named):
        rows = [
            Metric(scope, "x", GAUGE, "", "n"),
            Metric(scope, "y", GAUGE, "", "twice"),
            Metric(scope, "z", GAUGE, "", lambda pair: -pair.n),
            Metric(scope, "none", GAUGE, "", lambda pair: None),
        ]
        told = families(rows, TALLY)
        assert [list(family.values) for family in told] == [[1, 2], [None, 4], [-1, -2]]
        assert told[0].identities == [("1",), ("2",)]
    assert not families([replace(rows[0], scope=replace(named, items=lambda tally: ()))], TALLY)


def test_further_labels_are_told_of_each_thing() -> None:
    told: Mapping[int, Mapping[object, int | None] | None] = {-1: None, 0: {}, 1: {"a": 0, ("b",): None}}
    (family,) = families([Metric(NUMBER, "x", GAUGE, "", lambda number: told[number], by=("b",))], TALLY)
    assert family.identities == [("-1",), ("0",), ("1",)]
    assert (family.values, family.further) == ([0, None], [(), (), ("a", ("b",))])


def test_families_of_one_scope_share_their_identities() -> None:
    first, second = families([Metric(NUMBER, name, GAUGE, "", "real") for name in "xy"], TALLY)
    assert first.identities is second.identities


def test_a_family_that_tells_the_same_again_is_the_very_same_and_one_that_does_not_is_another() -> None:
    scope = Scope(
        "use",
        ("namespace", "gpu"),
        lambda tally: tally.namespaces,
        lambda use: use[:3],
        lambda identity: identity[1:],
        NamespaceUse._fields,
        3,
    )
    table = Table([Metric(scope, name, GAUGE, "", name) for name in ("energy_uj", "idle_uj")])
    use, other = NamespaceUse("pod", "ml", 0, "GPU-0", 5, 7, None), NamespaceUse("pod", "b", 1, "u", 5, 7, 1)

    def told(*uses: NamespaceUse) -> list[Family]:
        return table.families(replace(TALLY, namespaces=uses))

    energy, idle = told(use)
    assert [again is before for again, before in zip(told(use), (energy, idle), strict=True)] == [True, True]
    grown, same = told(use._replace(energy_uj=6))
    assert (list(grown.values), same is idle) == ([6], True)
    elsewhere, _ = told(use._replace(gpu=1, energy_uj=6))
    assert (elsewhere is grown, elsewhere.identities) == (False, [("pod", "ml", 1)])
    assert [list(family.values) for family in told(use, other)] == [[5, 5], [7, 7]]
    assert told() == []
    assert [list(family.values) for family in told(other)] == [[5], [7]]


def test_things_that_are_the_very_same_are_not_asked_again() -> None:
    asked = list[int]()

    def read(number: int) -> int:
        asked.append(number)
        return number

    numbers: tuple[int, ...] = (1, 2)
    scope = Scope("number", ("n",), lambda tally: numbers, lambda number: (str(number),))
    table = Table([Metric(scope, "x", GAUGE, "", read)])
    assert table.families(TALLY) == table.families(TALLY)
    assert asked == [1, 2]
    numbers = (3,)
    assert [family.values for family in table.families(TALLY)] == [[3]]
