"""Attribution against the simulated truth, through the real pipeline; see bench.truth for all of it."""

from __future__ import annotations

import pytest

from bench.mixes import MIXES, Mix
from bench.truth import Result, run
from gputally.machine.simulation import Sampler

VARYING = [mix for mix in MIXES if mix.varying]
SECONDS = 400.0


def mix(word: str) -> Mix:
    return next(mix for mix in MIXES if word in mix.name)


def result(mix: Mix, sampler: Sampler, seconds: float = SECONDS) -> Result:
    found = run(mix, 1.0, sampler, seconds)
    assert found.unconserved_uj == 0
    return found


def test_equal_shares_stay_equal() -> None:
    assert result(mix("two equal"), "fraction").errors["learned"].mean <= 2.0


def test_where_nobody_differs_noise_is_not_mistaken_for_a_difference() -> None:
    for word in ("two equal", "eight inference"):
        errors = result(mix(word), "one-owner").errors
        assert errors["learned"].mean <= errors["by time"].mean + 2.0


@pytest.mark.parametrize("mix", VARYING, ids=lambda mix: mix.name)
def test_different_intensities_are_told_apart(mix: Mix) -> None:
    errors = result(mix, "fraction").errors
    assert errors["learned"].mean <= 10.0
    assert errors["learned"].mean <= errors["by time"].mean / 3


@pytest.mark.parametrize("mix", VARYING, ids=lambda mix: mix.name)
def test_also_with_samples_that_name_one_process_each(mix: Mix) -> None:
    errors = result(mix, "one-owner", 900.0).errors
    assert errors["learned"].mean <= errors["by time"].mean / 2


def test_what_cannot_be_told_apart_is_not_believed() -> None:
    found = result(mix("saturated"), "fraction")
    assert found.trust < 0.05
    assert found.errors["learned"].mean == pytest.approx(found.errors["by time"].mean, rel=0.02)


def test_short_jobs_are_charged_their_own() -> None:
    assert result(mix("churn of 2.7 s"), "fraction").errors["learned"].lost <= 5.0


def test_ours_beats_naive_methods_where_intensities_differ() -> None:
    for each in VARYING:
        errors = result(each, "fraction", 300.0).errors
        for naive in ("power x share", "equal parts", "whole GPU"):
            assert errors["learned"].mean < errors[naive].mean, (each.name, naive)
