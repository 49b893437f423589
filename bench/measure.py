"""What one tick, one publication and one scrape cost a running program.

The kernel's CPU clock of a process is exact to the nanosecond and stands still between ticks, and the fake
counts NVML calls. So after each collection we wait until the clock rests and read it: the difference to the
rest before is the CPU of that collection and all that hangs on it, and the fake's counters tell whether it
was a tick only or also published. What else the program does, such as asking the kubelet now and then, is
part of the collection or scrape in whose time it falls. What was published is scraped once, as Prometheus
would, in the pause before the next tick, and the clock read again. The program runs with its ordinary
settings all the while. Each figure is the mean over the run, or over several where programs are measured in
turns, because a median would hide work that is done at some ticks only; a reading in which two collections,
or a collection and a scrape, ran into each other is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from bench.daemon import PATIENCE, Daemon, Program, Scrape, running
from bench.node import Node

HOUR = 3600
COLLECTIONS_AN_HOUR, PUBLICATIONS_AN_HOUR, SCRAPES_AN_HOUR = HOUR, HOUR // 5, HOUR // 15
WARM_UP = 5
"""Publications, each of them scraped, in which a program gets over its start: it is to run for months."""


@dataclass(frozen=True)
class Cost:
    """The figures of one program on one node; CPU in seconds."""

    program: str
    processes: int
    cpu_hour: float
    cpu_tick: float | None
    """None where every collection is published."""
    cpu_publication: float
    """What a collection that is published costs beyond a tick."""
    cpu_scrape: float
    resident_bytes: int
    start_seconds: float
    samples: int
    text_bytes: int
    wire_bytes: int
    workloads: int
    calls_tick: float | None
    calls_publication: float
    """Calls of a collection that is published, those of its tick among them."""
    readings: int

    @property
    def cpu_round(self) -> float:
        """One tick, one publication and one scrape; or one collection and one scrape."""
        return (self.cpu_tick or 0.0) + self.cpu_publication + self.cpu_scrape


@dataclass(frozen=True)
class Cycle:
    """One collection as seen from outside, and the scrape after it."""

    cpu: float
    calls: int
    collections: int
    published: bool
    scrape: float | None = None


@dataclass(frozen=True)
class _Mark:
    """How far the calls to NVML had come."""

    collected: int
    published: int
    calls: int


def measure(program: Program, node: Node, seconds: float) -> Cost:
    """Run the program on the node and take its figures."""
    with running(program, node) as daemon:
        _await_names(daemon, node)
        _warm_up(daemon, node)
        cycles = list(_watch(daemon, node, time.monotonic() + seconds))
        scrape = daemon.scrape()
        if program.module == "gputally":
            node.check(scrape.text)
        return _cost(daemon, node, cycles, scrape)


def mean(costs: Sequence[Cost]) -> Cost:
    """Of one program that was measured several times on one node; of its memory, the most."""
    ticks = [cost.cpu_tick for cost in costs if cost.cpu_tick is not None]
    return replace(
        costs[-1],
        cpu_hour=fmean(cost.cpu_hour for cost in costs),
        cpu_tick=fmean(ticks) if ticks else None,
        cpu_publication=fmean(cost.cpu_publication for cost in costs),
        cpu_scrape=fmean(cost.cpu_scrape for cost in costs),
        resident_bytes=max(cost.resident_bytes for cost in costs),
        start_seconds=fmean(cost.start_seconds for cost in costs),
        readings=sum(cost.readings for cost in costs),
    )


def _await_names(daemon: Daemon, node: Node) -> None:
    """Until everybody is told of as it should be: the birth of series is no part of what each tick costs."""
    give_up = time.monotonic() + PATIENCE
    while daemon.program.module == "gputally":
        try:
            node.check(daemon.scrape().text)
        except RuntimeError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.5)
        else:
            break


def _warm_up(daemon: Daemon, node: Node) -> None:
    before = _mark(daemon.program, node).published
    for _ in range(WARM_UP):
        _await_call(daemon, node, daemon.program.publishes, before)
        before = _mark(daemon.program, node).published
        daemon.settled()
        daemon.scrape()


def _watch(daemon: Daemon, node: Node, until: float) -> Iterator[Cycle]:
    rest, before = daemon.settled(), _mark(daemon.program, node)
    while time.monotonic() < until:
        _await_call(daemon, node, daemon.program.collects, before.collected)
        done, now = daemon.settled(), _mark(daemon.program, node)
        collections, published = now.collected - before.collected, now.published > before.published
        cycle = Cycle(done - rest, now.calls - before.calls, collections, published)
        rest, before = done, now
        if published:
            daemon.scrape()
            rest, before = daemon.settled(), _mark(daemon.program, node)
            if before == now:
                cycle = replace(cycle, scrape=rest - done)
        yield cycle


def _await_call(daemon: Daemon, node: Node, call: str, before: int) -> None:
    give_up = time.monotonic() + PATIENCE
    while node.asked(call) == before:
        if time.monotonic() > give_up:
            raise RuntimeError(f"{daemon.program.name} no longer calls {call}")
        time.sleep(0.005)


def _mark(program: Program, node: Node) -> _Mark:
    return _Mark(node.asked(program.collects), node.asked(program.publishes), node.calls())


def _cost(daemon: Daemon, node: Node, cycles: Sequence[Cycle], scrape: Scrape) -> Cost:
    single = [cycle for cycle in cycles if cycle.collections == 1]
    ticks = [cycle for cycle in single if not cycle.published]
    publications = [cycle for cycle in single if cycle.published]
    scrapes = [cycle.scrape for cycle in single if cycle.scrape is not None]
    if not publications or not scrapes:
        raise RuntimeError(f"{daemon.program.name}: no publication could be read by itself; try --seconds 60")
    tick = fmean(cycle.cpu for cycle in ticks) if ticks else None
    return Cost(
        daemon.program.name,
        node.processes,
        _hour(ticks, publications, scrapes),
        tick,
        fmean(cycle.cpu for cycle in publications) - (tick or 0.0),
        fmean(scrapes),
        daemon.resident_bytes(),
        daemon.start_seconds,
        scrape.count(),
        len(scrape.text.encode()),
        scrape.wire_bytes,
        scrape.count(daemon.program.per_workload),
        median(cycle.calls for cycle in ticks) if ticks else None,
        median(cycle.calls for cycle in publications),
        len(single),
    )


def _hour(ticks: Sequence[Cycle], publications: Sequence[Cycle], scrapes: Sequence[float]) -> float:
    """CPU seconds of an hour, from the means of what was seen and the number of each in an hour."""
    published = PUBLICATIONS_AN_HOUR if ticks else COLLECTIONS_AN_HOUR
    quiet = (COLLECTIONS_AN_HOUR - published) * fmean(c.cpu for c in ticks) if ticks else 0.0
    return quiet + published * fmean(c.cpu for c in publications) + SCRAPES_AN_HOUR * fmean(scrapes)
