"""The outermost loop, when gputally itself fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gputally import loop
from gputally.collect import Collector
from gputally.ledger import Ledger
from gputally.model import ProcessKey
from gputally.outputs.http import Answer, Request
from gputally.outputs.site import Site
from tests.owners.stage import Cards, Stage, awaited


class Faulty(Stage):
    """A machine whose answer we cannot stand for some ticks; after the last of them a test may look."""

    def __init__(self, fails: range) -> None:
        super().__init__()
        self.ticks, self.fails, self.stop = 0, fails, asyncio.Event()

    def ended(self) -> Sequence[ProcessKey]:
        self.ticks += 1
        if self.ticks == self.fails.stop - 1:
            self.stop.set()
        if self.ticks in self.fails:
            raise KeyError(17)
        return super().ended()


async def run(machine: Faulty) -> Site:
    """What is served after the last tick that failed."""
    site = Site(machine, max_age=15.0)
    collector, ledger = Collector(machine, (Cards(),)), Ledger(machine.name)
    await loop.run(machine.clock, collector, ledger, site, tick=1.0, interval=5.0, stop=machine.stop)
    return site


def get(site: Site, path: str) -> Answer:
    return site.respond(Request("GET", path, "", {}))


@awaited
async def test_when_every_tick_fails_a_scrape_counts_them_and_we_are_not_ready() -> None:
    site = await run(Faulty(range(10, 40)))
    body = get(site, "/metrics").body
    assert b"gputally_up 0\n" in body
    assert b"gputally_faults_total 30\n" in body
    assert b"gputally_gpu_info" not in body
    assert get(site, "/-/ready").status == 503
    assert b"log" in get(site, "/-/ready").body
    assert get(site, "/-/healthy").status == 200


@awaited
async def test_a_few_ticks_that_fail_leave_us_ready() -> None:
    site = await run(Faulty(range(10, 13)))
    assert b"gputally_up 1\n" in get(site, "/metrics").body
    assert get(site, "/-/ready").status == 200
