"""Processes on GPUs, with the races of real life: exits, reused numbers, moves, late names, hiding."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

import pytest

from gputally.collect import Collector
from gputally.coverage import coverage
from gputally.machine import Machine
from gputally.machine.local import LocalMachine
from gputally.model import (
    PENDING,
    UNNAMED,
    Activity,
    Device,
    Holder,
    Owner,
    Pace,
    Process,
    ProcessKey,
    Snapshot,
)
from gputally.owners import OWNERS, Resolver
from gputally.owners.census import Census, Roll
from tests.owners.stage import GPU, HEX, OTHER, UID, Cards, Stage, awaited

DOCKER = f"0::/system.slice/docker-{HEX}.scope\n"
POD = f"0::/kubepods/burstable/pod{UID}/{OTHER}\n"
UNIT = "0::/system.slice/ollama.service\n"


class Late:
    """A name source that is late."""

    name = "late"

    def __init__(self) -> None:
        self.known = False

    def refine(self, process: Process, owner: Owner) -> Owner:
        if owner.kind != "pod":
            return owner
        return Owner("pod", "ml", "train-0", "main", "Job/train") if self.known else PENDING


async def take(
    stage: Stage, cards: Cards, resolvers: Sequence[Resolver] = OWNERS, collector: Collector | None = None
) -> Snapshot:
    return await (collector or Collector(stage, (cards,), resolvers)).collect(Pace.INTERVAL)


def counts(snapshot: Snapshot) -> dict[str, int]:
    return {name: number for name, number in snapshot.process_results.items() if number}


@awaited
async def test_every_result_has_its_reason() -> None:
    stage = Stage()
    stage.start(1, DOCKER)
    stage.start(2, "0::/\n")
    stage.start(3, POD)
    stage.start(4, f"2:memory:/docker/{HEX}\n1:cpu:/docker/{OTHER}\n")
    stage.hidden.add(5)
    snapshot = await take(stage, Cards(1, 2, 3, 4, 5, 6))
    assert counts(snapshot) == {"mapped": 1, "host": 1, "unnamed": 1, "conflict": 1, "hidden": 1, "exited": 1}
    assert snapshot.host_pid == "yes"


@awaited
async def test_a_process_that_ended_is_still_who_it_was_for_a_while() -> None:
    stage, cards = Stage(), Cards(1)
    process = stage.start(1, DOCKER)
    collector = Collector(stage, (cards,))
    before = await take(stage, cards, collector=collector)
    del stage.living[1]
    await stage.clock.until(1005)
    after = await take(stage, cards, collector=collector)
    assert after.owners[process.key] == before.owners[process.key] != PENDING
    assert counts(after) == {"exited": 1}
    await stage.clock.until(1040)
    gone = await take(stage, cards, collector=collector)
    assert gone.processes == {}


@awaited
async def test_a_reused_number_is_somebody_else() -> None:
    stage, cards = Stage(), Cards(1)
    stage.start(1, DOCKER, start=5)
    collector = Collector(stage, (cards,))
    await take(stage, cards, collector=collector)
    heir = stage.start(1, UNIT, start=9)
    snapshot = await take(stage, cards, collector=collector)
    assert snapshot.owners == {heir.key: Owner("systemd", workload="ollama.service")}
    assert counts(snapshot) == {"mapped": 1}


@awaited
async def test_a_process_that_moves_is_noticed_within_a_minute() -> None:
    stage, cards = Stage(), Cards(1)
    process = stage.start(1, "0::/system.slice/slurmd.service\n")
    collector = Collector(stage, (cards,))
    await take(stage, cards, collector=collector)
    stage.start(1, "0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    await stage.clock.until(1030)
    assert (await take(stage, cards, collector=collector)).owners[process.key].kind == "systemd"
    await stage.clock.until(1061)
    moved = await take(stage, cards, collector=collector)
    assert moved.owners[process.key] == Owner("slurm", workload="7")


@awaited
async def test_a_process_that_stays_costs_one_small_file_a_minute() -> None:
    stage, cards = Stage(), Cards(1)
    process = stage.start(1, "0::/system.slice/slurmd.service\n")
    stage.files["/proc/1/cgroup"] = process.cgroup.encode()
    collector = Collector(stage, (cards,))
    await take(stage, cards, collector=collector)
    asked = stage.asked["process"]
    await stage.clock.until(1061)
    await take(stage, cards, collector=collector)
    assert stage.asked["process"] == asked
    stage.start(1, "0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    stage.files["/proc/1/cgroup"] = b"0::/system.slice/slurmstepd.scope/job_7/step_0\n"
    await stage.clock.until(1122)
    moved = await take(stage, cards, collector=collector)
    assert moved.owners[process.key] == Owner("slurm", workload="7")


@awaited
async def test_known_processes_cost_a_few_small_files_a_tick_each_in_its_turn() -> None:
    stage, cards = Stage(), Cards(*range(1, 201))
    for pid in range(1, 201):
        stage.start(pid, DOCKER)
        stage.files[f"/proc/{pid}/cgroup"] = DOCKER.encode()
    collector = Collector(stage, (cards,))
    await take(stage, cards, collector=collector)
    asked = dict(stage.asked)
    for second in range(1, 61):
        before = stage.asked["file"]
        await stage.clock.until(1000 + second)
        await collector.collect(Pace.TICK if second % 5 else Pace.INTERVAL)
        looked = stage.asked["file"] - before
        assert looked in ((3, 4, 6, 7) if second % 5 else (0,))
    files = asked.pop("file", 0)
    assert 195 <= stage.asked.pop("file") - files <= 200
    assert dict(stage.asked) == asked


@awaited
async def test_who_is_busy_without_being_listed_comes_and_goes_with_that() -> None:
    stage, cards = Stage(), Cards(1)
    for pid in (1, 2):
        stage.start(pid, DOCKER)
    collector = Collector(stage, (cards,))
    first = await take(stage, cards, collector=collector)
    cards.busy = {1: 0.5}
    same = await take(stage, cards, collector=collector)
    assert same.processes is first.processes
    assert same.owners is first.owners
    cards.busy = {1: 0.5, 2: 0.5}
    assert set((await take(stage, cards, collector=collector)).processes) == {1, 2}
    cards.busy = {}
    assert set((await take(stage, cards, collector=collector)).processes) == {1}


@awaited
async def test_each_process_is_looked_at_a_minute_after_it_was_met() -> None:
    stage, cards = Stage(), Cards(1)
    stage.start(1, UNIT)
    late = stage.start(2, UNIT)
    collector = Collector(stage, (cards,))
    await take(stage, cards, collector=collector)
    await stage.clock.until(1030)
    cards.holders.append(2)
    await take(stage, cards, collector=collector)
    stage.start(2, DOCKER)
    await stage.clock.until(1061)
    assert (await take(stage, cards, collector=collector)).owners[late.key].kind == "systemd"
    await stage.clock.until(1091)
    assert (await take(stage, cards, collector=collector)).owners[late.key].kind == "docker"


@awaited
async def test_a_late_name_is_waited_for_and_then_given_up() -> None:
    stage, cards, late = Stage(), Cards(1), Late()
    process = stage.start(1, POD)
    collector = Collector(stage, (cards,), (*OWNERS, late))
    assert (await take(stage, cards, collector=collector)).owners[process.key] is PENDING
    await stage.clock.until(1010)
    late.known = True
    assert (await take(stage, cards, collector=collector)).owners[process.key].pod == "train-0"
    late.known = False
    other = stage.start(2, POD)
    cards.holders = [2]
    assert (await take(stage, cards, collector=collector)).owners[other.key] is PENDING
    await stage.clock.until(1041)
    last = await take(stage, cards, collector=collector)
    assert last.owners[other.key] is UNNAMED
    assert counts(last) == {"unnamed": 1}


@awaited
async def test_coverage_weighs_by_busy_time_then_by_process() -> None:
    stage = Stage()
    stage.start(1, DOCKER)
    snapshot = await take(stage, Cards(1, 2, busy={1: 0.3, 2: 0.1}))
    assert abs((coverage(snapshot.devices[0], snapshot) or 0) - 0.75) < 1e-9
    idle = await take(stage, Cards(1, 2))
    assert coverage(idle.devices[0], idle) == 0.5
    nobody = await take(stage, Cards())
    assert coverage(nobody.devices[0], nobody) is None
    assert coverage(Device(GPU, 0), nobody) is None


class Hasty:
    """A GPU that names a process at the very moment a test says."""

    def __init__(self, machine: Machine) -> None:
        self.census = Census(machine, OWNERS)

    def name(self, pid: int, listed_at: float | None, sampled_at: float | None = None) -> Roll:
        """Who is found behind a number that was told then."""
        listed = () if listed_at is None else (Holder(pid, None),)
        sampled = () if sampled_at is None else (Activity(pid, 1, 0.5),)
        device = Device(
            GPU, 0, holders=listed, activities=sampled, listed_at=listed_at, sampled_at=sampled_at
        )
        return self.census.take([device], time.monotonic(), Pace.TICK)


@pytest.mark.parametrize("sampled", [False, True])
def test_whoever_started_after_the_gpu_answered_is_not_whom_it_named(sampled: bool) -> None:
    hasty, answered_at = Hasty(LocalMachine()), time.monotonic()
    time.sleep(0.02)  # the kernel counts in hundredths of a second
    with subprocess.Popen(["sleep", "60"]) as heir:
        late = hasty.name(heir.pid, *((None, answered_at) if sampled else (answered_at,)))
        again = hasty.name(heir.pid, answered_at, time.monotonic())
        heir.kill()
    assert (late.processes, late.owners) == ({}, {})
    assert late.results["exited"] == 1
    assert late.results["hidden"] == 0
    assert list(again.processes) == [heir.pid]


def test_a_late_heir_leaves_the_one_who_ended_what_it_used() -> None:
    stage = Stage()
    hasty, known = Hasty(stage), stage.start(7, UNIT, start=5)
    assert hasty.name(7, 900.0).processes == {7: known}
    heir = stage.living[7] = Process(ProcessKey(7, 9), "other", DOCKER, started_monotonic=901.0)
    assert hasty.name(7, 900.0).processes == {7: known}
    assert hasty.name(7, 901.0).processes == {7: heir}


def test_whoever_started_just_before_the_gpu_answered_is_met() -> None:
    hasty = Hasty(LocalMachine())
    for _ in range(30):
        with subprocess.Popen(["sleep", "60"]) as quick:
            assert list(hasty.name(quick.pid, time.monotonic()).processes) == [quick.pid]
            quick.kill()
