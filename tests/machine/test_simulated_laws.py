"""Laws of the simulated machine: the same for whoever asks, and every joule accounted for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.machine.simulation import Sampler
from gputally.machine.simulation.answers import ANSWERS
from gputally.machine.simulation.cast import Board, Life, Session, Sharing, Workload
from gputally.machine.simulation.gpu import ACCOUNTS_KEPT, LONG_GONE
from gputally.machine.simulation.rhythm import BURSTS_10_MS, INFERENCE, RAMP, STEADY, TRAINING, Rhythm
from tests.machine.simulated_nodes import (
    PRETRAIN,
    TURNS,
    a_machine,
    answer,
    everything,
    uuid,
)

RHYTHMS = st.sampled_from([STEADY, TRAINING, INFERENCE, BURSTS_10_MS, RAMP])
LIVES = st.sampled_from([Life(), Life(-77.7), Life(1.0, 2.5), Life(0.3, 2.7, 4.1), Life(-9.0, 0.05, 0.05)])
WORKLOADS = st.builds(
    Workload,
    home=st.just(Session()),
    gpus=st.just((0,)),
    watts=st.integers(0, 900),
    rhythm=RHYTHMS,
    life=LIVES,
    wobble_permille=st.integers(0, 100),
    instance=st.sampled_from([1, 2]),
)
BOARDS = st.builds(Board, idle_watts=st.integers(50, 80), sharing=st.sampled_from(Sharing))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 7), st.sampled_from(sorted(ANSWERS)))),
    sampler=st.sampled_from(["fraction", "one-owner"]),
)
def test_answers_do_not_depend_on_who_asked_what_before(
    seed: int, steps: list[tuple[float, int, str]], sampler: Sampler
) -> None:
    asked, asked_clock = a_machine(seed=seed, sampler=sampler)
    for step, gpu, call in steps:
        asked_clock.jump(asked_clock.monotonic() + step)
        answer(asked, uuid(asked, gpu), call)
    fresh, fresh_clock = a_machine(seed=seed, sampler=sampler)
    fresh_clock.jump(asked_clock.monotonic())
    assert everything(asked) == everything(fresh)


def test_gpus_may_be_asked_from_threads_at_once() -> None:
    alone, threaded = a_machine(aged=60.0)[0], a_machine(aged=60.0)[0]
    with ThreadPoolExecutor(8) as lanes:
        together = list(lanes.map(lambda i: threaded.truth(uuid(threaded, i)), range(8)))
    assert together == [alone.truth(uuid(alone, i)) for i in range(8)]


def test_another_seed_is_another_node() -> None:
    assert everything(a_machine(seed=1)[0]) != everything(a_machine(seed=2)[0])


@settings(max_examples=60, deadline=None)
@given(cast=st.lists(WORKLOADS, max_size=5), board=BOARDS, steps=st.lists(st.integers(1, 90), max_size=20))
def test_the_counter_is_truth_plus_idle_never_decreases_and_keeps_the_power_limit(
    cast: list[Workload], board: Board, steps: list[int]
) -> None:
    machine, clock = a_machine(cast=cast, boards=[board], aged=0.0)
    gpu = uuid(machine, 0)
    before = before_tenths = 0
    for tenths in steps:
        clock.jump(clock.monotonic() + tenths / 10)
        counter = machine.nvml(gpu, "nvmlDeviceGetTotalEnergyConsumption")
        assert counter == (sum(machine.truth(gpu).values()) + machine.truth_idle_uj(gpu)) // 1000
        assert board.idle_watts * tenths * 100 - 1 <= counter - before <= board.limit_watts * tenths * 100 + 1
        before, before_tenths = counter, before_tenths + tenths
        assert machine.truth_idle_uj(gpu) == board.idle_watts * before_tenths * 100_000
        assert machine.nvml(gpu, "nvmlDeviceGetPowerUsage") <= board.limit_watts * 1000


def test_the_counter_stands_still_between_quanta() -> None:
    machine, clock = a_machine()
    gpu, seen = uuid(machine, PRETRAIN), []
    for slot in range(1, 31):
        clock.jump(1_000.0 + slot / 100)
        seen.append(machine.nvml(gpu, "nvmlDeviceGetTotalEnergyConsumption"))
    assert [n + 1 for n in range(1, 30) if seen[n] != seen[n - 1]] == [10, 20, 30]


def moved(machine: SimulatedMachine, clock: VirtualClock, gpu: str, slots: int) -> list[int]:
    """How many processes ran in each slot."""
    counts = []
    for _ in range(slots):
        before = machine.truth_busy_us(gpu)
        clock.jump(clock.monotonic() + 0.01)
        now = machine.truth_busy_us(gpu)
        ran = [now[key] - before.get(key, 0) for key in now if now[key] != before.get(key, 0)]
        assert set(ran) <= {10_000}
        counts.append(len(ran))
    return counts


@pytest.mark.parametrize(
    ("sharing", "at_once"), [(Sharing.TIME_SLICED, {1}), (Sharing.MPS, {3}), (Sharing.MIG, {2})]
)
def test_who_takes_turns_runs_alone(sharing: Sharing, at_once: set[int]) -> None:
    cast = [Workload(Session(), (0,), 150, STEADY, instance=instance) for instance in (1, 1, 2)]
    machine, clock = a_machine(cast=cast, boards=[Board(sharing=sharing)])
    assert set(moved(machine, clock, uuid(machine, 0), 100)) == at_once


@pytest.mark.parametrize("gpu", [0, 1, 2, 3, 6])
def test_one_slot_is_one_process_on_the_time_sliced_gpus(gpu: int) -> None:
    machine, clock = a_machine(aged=60.0)
    assert max(moved(machine, clock, uuid(machine, gpu), 300)) <= 1


def test_turns_are_fair() -> None:
    cast = [Workload(Session(), (0,), watts, STEADY) for watts in (100, 200, 300)]
    machine, _ = a_machine(cast=cast, boards=[Board()], aged=100.0)
    busy = machine.truth_busy_us(uuid(machine, 0)).values()
    assert sum(busy) == 100_000_000
    assert max(busy) - min(busy) <= 10_000


@settings(max_examples=40, deadline=None)
@given(cast=st.lists(WORKLOADS, max_size=5), sampler=st.sampled_from(["fraction", "one-owner"]))
def test_samples_are_percents_and_fractions_are_true(cast: list[Workload], sampler: Sampler) -> None:
    machine, clock = a_machine(cast=cast, boards=[Board()], sampler=sampler)
    gpu = uuid(machine, 0)
    last_seen = round(clock.time() * 1e6)
    for second in range(1, 9):
        before = machine.truth_busy_us(gpu)
        clock.jump(1_000.0 + second)
        rows = _rows(machine, gpu, last_seen)
        now = machine.truth_busy_us(gpu)
        truth: dict[int, float] = {}
        for key in now:
            truth[key.pid] = truth.get(key.pid, 0) + (now[key] - before.get(key, 0)) / 10_000
        sm = {row[0]: row[2] for row in rows}
        assert sum(sm.values()) <= 100
        assert all(0 <= percent <= 100 for row in rows for percent in row[2:])
        if sampler == "fraction":
            assert sm == pytest.approx({pid: percent for pid, percent in truth.items() if percent})
        last_seen = rows[0][1] if rows else last_seen + 1_000_000
        assert last_seen == round(clock.time() * 1e6)


def test_samples_are_forgotten_after_twelve_seconds_and_told_once() -> None:
    machine, clock = a_machine(
        cast=[Workload(Session(), (0,), 300, life=Life(0.0, 2.0))], boards=[Board()], aged=2.0
    )
    gpu = uuid(machine, 0)
    [[_, newest, sm, *_]] = _rows(machine, gpu, 0)
    assert sm == 100
    assert _rows(machine, gpu, newest) == []
    clock.jump(1_010.0)
    assert [row[2] for row in _rows(machine, gpu, 0)] == [17]
    clock.jump(1_013.0)
    assert _rows(machine, gpu, 0) == []


def test_one_owner_gives_whole_windows() -> None:
    cast = [Workload(Session(), (0,), 300, Rhythm(25, 6, chance=60)) for _ in range(3)]
    machine, _ = a_machine(cast=cast, boards=[Board()], sampler="one-owner", aged=60.0)
    rows = _rows(machine, uuid(machine, 0), 1_760_000_000_000_000 - 166_666)
    assert [row[2] for row in rows] in ([], [100])


def test_an_hour_may_pass_unasked() -> None:
    """360,000 slots of the busiest kind of GPU in one call: bursts are walked, not slots (below a second)."""
    machine, clock = a_machine()
    gpu = uuid(machine, TURNS)
    clock.jump(clock.monotonic() + 3_600)
    counter = machine.nvml(gpu, "nvmlDeviceGetTotalEnergyConsumption")
    assert counter == (sum(machine.truth(gpu).values()) + machine.truth_idle_uj(gpu)) // 1000


def test_a_job_whose_every_life_is_a_pause_is_not_searched_for_ever() -> None:
    """Found by hypothesis: lives shorter than the pause, and the search for the next burst had no end."""
    naps = Rhythm(period=10, busy=5, cycle=1_000, rest=999)
    cast = [Workload(Session(), (0,), 300, naps, Life(0.0, 0.5, 1.0)) for _ in range(4)]
    machine, _ = a_machine(cast=cast, boards=[Board()], aged=60.0)
    assert machine.truth(uuid(machine, 0)) == {}


def test_truth_of_the_long_gone_is_kept_in_one_sum() -> None:
    cast = [Workload(Session(), (0,), 100, Rhythm(1, 1), Life(0.0, 0.01, 0.02), wobble_permille=0)]
    machine, _ = a_machine(cast=cast, boards=[Board()], aged=200.0)
    truth = machine.truth(uuid(machine, 0))
    assert len(truth) <= ACCOUNTS_KEPT + 2
    assert truth[LONG_GONE] > 0
    assert sum(truth.values()) == 100 * 100 * 1_000_000


def _rows(machine: SimulatedMachine, gpu: str, last_seen: int) -> list[list[int]]:
    """One row per process that was busy; nobody was busy is code 6, and no rows."""
    rows = answer(machine, gpu, "nvmlDeviceGetProcessUtilization", last_seen)
    return [] if rows == 6 else list(rows)
