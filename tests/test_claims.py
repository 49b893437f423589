"""Who has a GPU, and every process on it: totals that add up to the GPU's, whatever happens."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from gputally import asking, loop, service
from gputally.config import configure
from gputally.dialects import DIALECTS, Options
from gputally.model import Device, Owner, Pace, Snapshot
from gputally.tally import Claim, Gpu, Tally


async def _play(seconds: int, **flags: str) -> list[Tally]:
    config = configure({"machine": "simulated", "dialect": "my_gpu,dcgm", **flags}, {})
    machine = service.open_machine(config, live=False)
    collector = asking.patient_collector(config, machine)
    ledger = service._ledger(config, machine, scraped=False)
    await collector.start(once=True)
    tallies = []
    for second in range(seconds):
        tally = await loop.once(collector, ledger, Pace.TICK if second % 5 else Pace.INTERVAL)
        tallies += [] if tally is None else [tally]
        await machine.clock.until(machine.clock.monotonic() + 1)
    return tallies


@pytest.fixture(scope="module", params=["none", "equal", "allocation"])
def tallies(request: pytest.FixtureRequest) -> list[Tally]:
    return asyncio.run(_play(300, **{"energy.idle-policy": request.param, "retention": "20s"}))


def test_energy_put_down_to_somebody_grows_as_the_gpus_does(tallies: list[Tally]) -> None:
    """What the shown totals grew in an interval is all that the GPU used, unless somebody came or went."""
    for before, after in pairwise(tallies):
        for old, new in zip(before.gpus, after.gpus, strict=True):
            uuid = old.device.uuid
            was = {(c.owner, c.mig): c.energy_uj for c in before.claims[uuid]}
            now = {(c.owner, c.mig): c.energy_uj for c in after.claims[uuid]}
            grew = sum(now[key] - was[key] for key in now.keys() & was.keys())
            used = (new.energy_uj or 0) - (old.energy_uj or 0)
            assert all(now[key] >= was[key] for key in now.keys() & was.keys())
            assert grew <= used
            if now.keys() == was.keys():
                assert grew == used


def test_parts_of_power_make_a_whole(tallies: list[Tally]) -> None:
    for tally in tallies:
        for claims in tally.claims.values():
            assert sum(claim.power_ratio for claim in claims) <= 1.000001


def test_processes_never_have_more_than_their_gpu(tallies: list[Tally]) -> None:
    highest: dict[tuple[int, str, float | None], int] = {}
    for tally in tallies:
        for gpu in tally.gpus:
            stays = [stay for stay in tally.stays if stay.uuid == gpu.device.uuid]
            assert sum(stay.energy_uj or 0 for stay in stays) <= (gpu.energy_uj or 0)
            for stay in stays:
                key = (stay.pid, stay.uuid, stay.start_time_seconds)
                assert (stay.energy_uj or 0) >= highest.get(key, 0)
                highest[key] = stay.energy_uj or 0


def test_who_ended_is_shown_inactive_for_the_retention_and_then_no_more(tallies: list[Tally]) -> None:
    ended = [stay for tally in tallies for stay in tally.stays if stay.active is False]
    assert ended
    assert all(stay.memory_used_bytes is None and stay.sm_utilization_ratio is None for stay in ended)
    pids = [{stay.pid for stay in tally.stays if stay.active is False} for tally in tallies]
    gone = ended[0].pid
    assert 1 <= sum(gone in each for each in pids) <= 6


@pytest.mark.parametrize(
    ("dialect", "jobs", "rows"), [("dcgm", True, 3), ("dcgm", False, 1), ("pod_gpu", False, 1)]
)
def test_jobs_that_no_label_tells_apart_are_one_row_with_all_their_energy(
    dialect: str, jobs: bool, rows: int
) -> None:
    gpu = Gpu(Device("GPU-a", 0), fresh=True, energy_uj=6)
    claims = [
        Claim(Owner("slurm", workload=job) if job else None, "", int(job or 3), 1 / 3)
        for job in ("1", "2", "")
    ]
    tally = Tally(Snapshot(0.0, 0.0), "test", (gpu,), claims={"GPU-a": tuple(claims)})
    scope = DIALECTS[dialect].metrics(Options(jobs=jobs))[0].scope
    found = list(scope.items(tally))
    assert len(found) == len({scope.spell(scope.identity(row)) for row in found}) == rows
    assert sum(row.energy_uj for row in found) == 6
    assert sum(row.power_ratio for row in found) == pytest.approx(1)
