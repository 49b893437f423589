"""What is found once stays true: a busy node's text is the same as if every Tally were the first one."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from gputally import asking, loop
from gputally.attribute import Rules
from gputally.config import configure
from gputally.dialects import DIALECTS, Options
from gputally.ledger import Ledger
from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.model import Pace
from gputally.outputs.http import Request
from gputally.outputs.site import Site
from gputally.tally import Gpu, Tally

TABLES = {name: dialect.metrics(Options()) for name, dialect in DIALECTS.items()}
TICKS, PUBLISHED_EVERY, SCRAPED_EVERY = 300, 5, 15


@pytest.mark.parametrize("policy", ["none", "equal", "allocation"])
def test_texts_and_sums_of_a_busy_node(policy: str) -> None:
    asyncio.run(_watch(policy))


async def _watch(policy: str) -> None:
    clock = VirtualClock(1_000.0)
    machine = SimulatedMachine(clock, seed=7)
    collector = asking.patient_collector(configure({"machine": "simulated"}, {}), machine)
    ledger = Ledger("simulated", rules=Rules(policy), retention=20.0, stays=True, claims=True, scraped=True)
    site = Site(machine, tables=TABLES)
    await collector.start(once=True)
    for tick in range(TICKS):
        published = tick % PUBLISHED_EVERY == 0
        tally = await loop.once(collector, ledger, Pace.INTERVAL if published else Pace.TICK)
        if tally is not None:
            site.publish(tally)
            _same_as_new(site, machine, tally)
            assert all(_parts(tally, gpu) == (gpu.energy_uj or 0) for gpu in tally.gpus)
        if tick % SCRAPED_EVERY == 0:
            ledger.was_scraped(clock.monotonic())
        clock.jump(clock.monotonic() + 1.0)
    await collector.close()


def _same_as_new(site: Site, machine: SimulatedMachine, tally: Tally) -> None:
    new = Site(machine, tables=TABLES)
    new.publish(tally)
    packed = site.respond(Request("GET", "/metrics", "", {"Accept-Encoding": "gzip"}))
    assert site.body() == new.body() == gzip.decompress(packed.body)


def _parts(tally: Tally, gpu: Gpu) -> int:
    of_namespaces = sum(n.energy_uj + n.idle_uj for n in tally.namespaces if n.uuid == gpu.device.uuid)
    return of_namespaces + gpu.idle_uj + sum(gpu.unattributed_uj.values()) + gpu.pending_uj
