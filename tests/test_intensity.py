"""What a busy second costs: learned, cheap, pure, and kept over restarts."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from operator import mul

import pytest

from gputally import intensity
from gputally.intensity import MOST_CONSUMERS, Consumer, Intensity, freeze, learn, thaw

Reading = tuple[tuple[Consumer, ...], list[float], float, float]


def readings(watts: Mapping[Consumer, float], seed: int = 1) -> Iterator[Reading]:
    """Ticks of one second, in which everybody is busy for another part of it."""
    dice = random.Random(seed)
    while True:
        parts = [dice.random() for _ in watts]
        whole = sum(parts) / 0.9
        busy = [part / whole for part in parts]
        yield tuple(watts), busy, sum(map(mul, watts.values(), busy)), 1.0


def taught(ticks: Iterator[Reading], seconds: int, known: Intensity = Intensity()) -> Intensity:
    for _ in range(seconds):
        known = learn(known, *next(ticks))
    return known


def crowd(size: int) -> dict[Consumer, float]:
    return {f"user{n}": 80.0 + 20.0 * n for n in range(size)}


@pytest.mark.parametrize("size", [2, 5, 8])
def test_watts_are_found(size: int) -> None:
    watts = crowd(size)
    known = taught(readings(watts), 300)
    assert known.trust > 0.8
    assert known.watts == pytest.approx(watts, rel=0.1)


def test_a_newcomer_is_known_within_half_a_minute() -> None:
    known = taught(readings(crowd(3)), 200)
    known = taught(readings({**crowd(3), "new": 400.0}), 30, known)
    assert known.weight("new") == pytest.approx(400.0, rel=0.2)


def test_nobody_is_believed_before_there_are_more_equations_than_consumers() -> None:
    assert taught(readings(crowd(8)), 24).trust == 0.0
    assert taught(readings(crowd(1)), 300).trust == 0.0


def test_only_so_many_are_learned_and_the_others_cost_the_mean() -> None:
    known = taught(readings(crowd(25)), 300)
    assert len(known.watts) == MOST_CONSUMERS
    assert known.weight("user24") == known.mean_watts


def test_who_left_makes_room() -> None:
    known = taught(readings(crowd(MOST_CONSUMERS)), 60)
    known = taught(readings({"new": 100.0, "newer": 300.0}), 20_000, known)
    assert known.watts.keys() == {"new", "newer"}


def test_what_was_known_is_left_as_it_was() -> None:
    ticks = readings(crowd(5))
    known = taught(ticks, 100)
    for _ in range(30):
        before, reading = copy.deepcopy(known), next(ticks)
        given = copy.deepcopy(reading)
        after = learn(known, *reading)
        assert known == before
        assert reading == given
        assert learn(known, *reading) == after
        known = after


def test_gpus_that_start_together_are_not_solved_together() -> None:
    gpus = [readings(crowd(20), seed) for seed in range(8)]
    known = [Intensity()] * len(gpus)
    at_once, solved = [], 0
    for _ in range(390):
        after = [learn(one, *next(ticks)) for one, ticks in zip(known, gpus, strict=True)]
        at_once.append(sum(now.watts is not one.watts for now, one in zip(after, known, strict=True)))
        known = after
    solved = sum(at_once)
    assert max(at_once) <= len(gpus) / 2
    assert 8 * 5 <= solved <= 8 * 15


def frozen(known: Intensity) -> dict[str, object]:
    data: dict[str, object] = json.loads(json.dumps(freeze(known, str)))
    return data


def test_what_was_learned_is_the_same_after_a_restart() -> None:
    ticks = readings(crowd(5))
    known = taught(ticks, 200)
    again = thaw(frozen(known), str)
    assert [again.weight(name) for name in crowd(5)] == [known.weight(name) for name in crowd(5)]
    assert frozen(again) == frozen(known)
    assert taught(ticks, 100, again).weight("user4") == pytest.approx(160.0, rel=0.1)


@pytest.mark.parametrize("seconds", range(8))
def test_it_can_be_kept_at_any_time(seconds: int) -> None:
    known = taught(readings(crowd(20)), seconds)
    again = thaw(frozen(known), str)
    assert taught(readings(crowd(20)), 100, again).watts.keys() <= crowd(20).keys()


def test_only_consumers_that_mean_something_after_a_restart_are_kept() -> None:
    known = taught(readings({"named": 100.0, 17: 300.0, "other": 200.0}), 200)
    again = thaw(frozen(known), str)
    assert again.watts.keys() == {"named", "other"}
    assert again.weight("other") == known.weight("other")


def test_a_file_that_still_has_all_of_the_noise_is_read() -> None:
    blocks: Sequence[tuple[float, float]] = [(1.0, 1.5), (2.0, 0.5), (0.5, 2.0), (1.5, 1.0)]
    products = [[sum(b[i] * b[j] for b in blocks) for j in (0, 1)] for i in (0, 1)]
    noises = [
        [((i == j) * sum(b[i] for b in blocks) - products[i][j] / 3) / 6 for j in (0, 1)] for i in (0, 1)
    ]
    old = {
        "names": ["a", "b"],
        "products": products,
        "noises": noises,
        "energies": [sum(b[i] * (100 * b[0] + 200 * b[1]) for b in blocks) for i in (0, 1)],
        "squared": sum((100 * a + 200 * b) ** 2 for a, b in blocks),
        "blocks": 4.0,
        "watts": [100.0, 200.0],
        "mean_watts": 150.0,
        "trust": 0.5,
        "noise": 0.1,
    }
    known = thaw(old, str)
    assert known.weight("b") == 175.0
    assert known.past.sums.times == pytest.approx([5.0, 5.0])
    assert known.past.sums.seconds == 12.0
    later = taught(readings({"a": 100.0, "b": 200.0}), 60, known)
    assert later.weight("b") == pytest.approx(200.0, rel=0.05)


def test_a_gap_between_readings_is_a_block_of_its_own() -> None:
    known = Intensity()
    for n in range(30):
        busy = [4.0 + n % 3, 2.0 - n % 2]
        known = learn(known, ("a", "b"), busy, 100.0 * busy[0] + 50.0 * busy[1], 40.0)
    assert known.watts["a"] / known.watts["b"] == pytest.approx(2.0, rel=0.2)


def test_no_energy_and_no_time_teach_nothing() -> None:
    known = Intensity()
    for _ in range(100):
        known = learn(known, ("a", "b"), [0.0, 0.0], 0.0, 1.0)
    assert known.trust == 0.0
    for _ in range(100):
        known = learn(known, ("a", "b"), [0.5, 0.5], 0.0, 1.0)
    assert (known.trust, known.mean_watts) == (0.0, 0.0)
    assert intensity.learn(known, (), [], 5.0, 1.0).trust == 0.0
