"""What calls took is added up for all GPUs at once."""

from __future__ import annotations

from gputally.counted import CallTime
from gputally.sources.nvml_batch import MOST_MADE, Spent


def test_batches_of_all_gpus_are_added_call_by_call() -> None:
    spent = Spent()
    spent.on("power", "clock").append([10.0, 11.0, 14.0])
    spent.on("power", "clock").append([20.0, 22.0, 23.0])
    spent.on("power").append((30.0, 30.5))
    assert spent.so_far(0.0) == {"clock": CallTime(2, 4.0), "power": CallTime(3, 3.5)}


def test_calls_that_a_lost_gpu_was_not_asked_are_not_counted() -> None:
    spent = Spent()
    spent.on("power", "clock").append([10.0, 11.0])
    spent.on("power", "clock").append([20.0, 21.0, 22.0])
    assert spent.so_far(0.0) == {"clock": CallTime(1, 1.0), "power": CallTime(2, 2.0)}


def test_what_nobody_asks_for_does_not_pile_up() -> None:
    spent = Spent()
    for _ in range(MOST_MADE + 1):
        spent.on("power").append((1.0, 2.0))
        spent.tidy()
    assert len(spent.on("power")) < MOST_MADE
    assert spent.so_far(0.0)["power"].count == MOST_MADE + 1


def test_the_longer_it_runs_the_more_seldom_it_is_added_up() -> None:
    spent, told = Spent(), list[int]()
    for second in range(1, 200):
        spent.on("power").append((1.0, 2.0))
        told.append(spent.so_far(float(second))["power"].count)
    assert told[:5] == [1, 2, 3, 3, 5]
    assert 4 <= len(set(told[50:])) <= 6
    assert all(second - 30 <= count <= second for second, count in enumerate(told, 1))
