"""Mixes of workloads on one GPU, for measuring attribution against the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gputally.machine.simulation.cast import Board, Life, Sharing, Unit, Workload
from gputally.machine.simulation.rhythm import BURSTS_10_MS, INFERENCE, STEADY, Rhythm

TRAINING_WITH_PAUSES = Rhythm(period=90, busy=70, vary=10, cycle=30, rest=9)
BURSTY = Rhythm(period=40, busy=16, vary=6, chance=80)
BURSTS_80_MS = Rhythm(period=20, busy=8, chance=60, cycle=150, rest=40)
LIGHT = Rhythm(period=100, busy=22, vary=8, chance=80, cycle=40, rest=12)
HOG = Rhythm(period=100, busy=60, vary=15, cycle=25, rest=6)


@dataclass(frozen=True)
class Mix:
    """Who shares a GPU, and at which ticks that is measured."""

    name: str
    cast: tuple[Workload, ...]
    ticks: tuple[float, ...] = (1.0,)
    board: Board = Board(idle_watts=60, limit_watts=700)
    varying: bool = False
    """Intensities differ and the mix varies, so that they can be told apart."""


def _user(number: int, watts: int, rhythm: Rhythm, life: Life = Life()) -> Workload:
    return Workload(
        Unit(f"user{number}.service"), (0,), watts, rhythm, life, comm=f"user{number}", wobble_permille=30
    )


def _users(rhythm: Rhythm, *watts: int) -> tuple[Workload, ...]:
    """Users of one kind; their pauses drift against each other, as they do between strangers."""
    return tuple(
        _user(n, w, replace(rhythm, cycle=rhythm.cycle + 3 * n) if rhythm.cycle else rhythm)
        for n, w in enumerate(watts)
    )


MIXES = (
    Mix("two equal, bursty", _users(BURSTY, 200, 200), (1.0, 5.0)),
    Mix("eight inference pods, 10 ms bursts", _users(BURSTS_10_MS, *[150] * 8), (1.0, 10.0)),
    Mix("1:2, 80 ms bursts", _users(BURSTS_80_MS, 150, 300), (1.0, 5.0), varying=True),
    Mix("1:3, training with pauses", _users(TRAINING_WITH_PAUSES, 100, 300), (1.0, 5.0), varying=True),
    Mix(
        "one hog, three light, with pauses",
        (_user(0, 300, HOG), *(_user(n, 100, LIGHT) for n in (1, 2, 3))),
        (1.0,),
        varying=True,
    ),
    Mix(
        "MPS 1:1:2, with pauses",
        _users(TRAINING_WITH_PAUSES, 80, 80, 160),
        (1.0,),
        Board(idle_watts=60, limit_watts=700, sharing=Sharing.MPS),
        varying=True,
    ),
    Mix(
        "eight mixed",
        tuple(
            _user(n, watts, rhythm)
            for n, (watts, rhythm) in enumerate(
                zip(
                    (80, 120, 160, 200, 240, 280, 320, 360),
                    (LIGHT, BURSTS_80_MS, INFERENCE, LIGHT, BURSTS_80_MS, LIGHT, INFERENCE, LIGHT),
                    strict=True,
                )
            )
        ),
        (1.0, 5.0),
        varying=True,
    ),
    Mix("1:2, both saturated all the time", _users(STEADY, 150, 300), (1.0,)),
    Mix(
        "churn of 2.7 s jobs",
        tuple(_user(n, 200, STEADY, Life(start=0.9 * n, lasts=2.7, every=3.6)) for n in range(4)),
        (1.0, 5.0),
    ),
    Mix(
        "churn of 1-3 s jobs",
        tuple(_user(n, 200, STEADY, Life(start=0.7 * n, lasts=1.0 + 0.5 * n, every=4.2)) for n in range(5)),
        (1.0, 5.0),
    ),
)
