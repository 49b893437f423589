"""The ways in which gputally is extended, each done whole: what docs/ARCHITECTURE.md says stays true."""

from __future__ import annotations

import asyncio

from gputally.collect import Collector
from gputally.dialects.native.scopes import DEVICE
from gputally.ledger import Ledger
from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.metrics import GAUGE, Metric, Scope, families
from gputally.model import Device, DeviceInfo, Owner, Pace, Process, Reading, Unreadable
from gputally.outputs.text import TextWriter
from gputally.owners.host import CgroupOwner
from gputally.sources import Source
from gputally.sources.nvml import NvmlSource
from gputally.tally import Tally


class OtherVendor:
    """A source for GPUs that NVML does not know: two cards that tell power and energy."""

    name = "other-vendor"

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    async def read(self, pace: Pace) -> Reading:
        now = self._clock.monotonic()
        cards = tuple(
            Device(
                f"CARD-{index}",
                index,
                info=DeviceInfo(model="Other 9000"),
                read_at=now,
                gauges_at=now,
                power_watts=150.0,
                energy_uj=round(now * 150e6),
                holders=(),
                activities=(),
                activity_seconds=1.0,
            )
            for index in (0, 1)
        )
        return Reading(devices=cards)

    async def close(self) -> None:
        return


class Broken:
    """A source that is always down."""

    name = "broken"

    async def read(self, pace: Pace) -> Reading:
        raise Unreadable("broken: on purpose")

    async def close(self) -> None:
        return


class Shouting:
    """A resolver that refines what the one before it knew."""

    name = "shouting"

    def refine(self, process: Process, owner: Owner) -> Owner:
        return owner._replace(workload=owner.workload.upper())


ALERT = Scope(
    "hot card", ("card",), lambda tally: [g for g in tally.gpus if g.fresh], lambda g: (g.device.uuid,)
)
DIALECT = (Metric(ALERT, "CARD_WATTS", GAUGE, "Watts.", lambda gpu: gpu.device.power_watts),)
EXTRA_FIELD = Metric(
    DEVICE,
    "gputally_gpu_headroom_watts",
    GAUGE,
    "Limit less power.",
    lambda d: d.power_limit_watts - d.power_watts,
)


def tally(machine: SimulatedMachine, *sources: Source, shouting: bool = False) -> Tally:
    """Two ticks of those sources."""

    async def ticks() -> Tally:
        resolvers = (CgroupOwner(), Shouting()) if shouting else (CgroupOwner(),)
        collector, ledger = Collector(machine, sources, resolvers), Ledger(machine.name)
        for _ in range(2):
            snapshot = await collector.collect(Pace.INTERVAL)
            ledger.post(snapshot)
            await machine.clock.until(machine.clock.monotonic() + 1.0)
        await collector.close()
        return ledger.tally(snapshot)

    return asyncio.run(ticks())


def text(metrics: tuple[Metric, ...], found: Tally) -> str:
    return TextWriter().write(families(metrics, found)).plain.decode()


def test_a_source_for_another_vendor_has_all_that_ours_has() -> None:
    clock = VirtualClock(1_000.0)
    found = tally(SimulatedMachine(clock), OtherVendor(clock), Broken())
    assert [gpu.energy_uj for gpu in found.gpus] == [150_000_000, 150_000_000]
    assert {health.source: health.up for health in found.snapshot.health} == {
        "other-vendor": True,
        "broken": False,
    }


def test_a_dialect_is_a_table() -> None:
    clock = VirtualClock(1_000.0)
    found = tally(SimulatedMachine(clock), OtherVendor(clock))
    assert 'CARD_WATTS{card="CARD-0"} 150.0\n' in text(DIALECT, found)


def test_a_field_is_a_row() -> None:
    machine = SimulatedMachine(VirtualClock(1_000.0))
    found = tally(machine, NvmlSource(machine, deadline=60.0, patience=60.0))
    assert text((EXTRA_FIELD,), found).count("gputally_gpu_headroom_watts{") == 8


def test_a_resolver_refines_what_is_known() -> None:
    machine = SimulatedMachine(VirtualClock(1_000.0))
    found = tally(machine, NvmlSource(machine, deadline=60.0, patience=60.0), shouting=True)
    assert "OLLAMA.SERVICE" in {use.owner.workload for use in found.workloads}
