"""What the commands do: put the parts together, run them, and end in bounded time."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from gputally import __version__, loop
from gputally.collect import Collector
from gputally.config import Config
from gputally.ledger import Ledger
from gputally.machine import Machine
from gputally.machine.clocks import RealClock, VirtualClock
from gputally.machine.local import LocalMachine, own_usage
from gputally.machine.recorded import RecordedMachine
from gputally.machine.recording import Recorder
from gputally.machine.simulated import FIXED_USAGE, SimulatedMachine
from gputally.model import Pace
from gputally.outputs.http import HttpServer
from gputally.outputs.site import Site
from gputally.process_book import ProcessRules
from gputally.sources import Companion
from gputally.sources.nvml import Choice, NvmlSource
from gputally.tally import Tally

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds that answers under way, and then the hardware, are given when the process ends."""
SHOW_FROM = (1_000.0, 1_800_000_000.0)
"""Where `show` starts the clocks of the simulated machine, so that the same seed shows the same bytes."""


async def serve(config: Config) -> None:
    """Collect and answer scrapes until SIGTERM or SIGINT."""
    _allow_more_descriptors()
    machine = open_machine(config, live=True)
    site = _site(config, machine)
    server = HttpServer(site.respond)
    addresses = server.listen(config.web_listen_address)
    log.info("gputally %s on the %s machine", __version__, machine.name)
    for address in addresses:
        log.info("listening on http://%s%s", address, config.web_telemetry_path)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    collector = _collector(config, machine, patience=min(config.tick / 2, 0.5))
    await loop.run(
        machine.clock,
        collector,
        _ledger(config, machine),
        site.publish,
        tick=config.tick,
        interval=config.interval,
        stop=stop,
    )
    log.info("ending")
    await _end(server.stop(GRACE))
    await _end(collector.close())


async def show(config: Config) -> bool:
    """Print one collection as a scrape would get it; tells whether any source answered."""
    machine = open_machine(config, live=False)
    tally, site = await _collect_twice(config, machine)
    sys.stdout.buffer.write(site.body())
    sys.stdout.buffer.flush()
    return any(health.up for health in tally.snapshot.health)


async def record(config: Config, folder: Path) -> list[Path]:
    """Save what this machine answers, for a bug report or a test."""
    recorder = Recorder(open_machine(config, live=False))
    await _collect_twice(config, recorder)
    recorder.end_tick()
    return recorder.save(folder)


def open_machine(config: Config, *, live: bool) -> Machine:
    """The machine that was asked for; `live` lets recorded and simulated ones run in real time."""
    kind, _, folder = config.machine.partition(":")
    if kind == "recorded":
        return RecordedMachine(folder, paced=live)
    if kind == "simulated":
        return SimulatedMachine(
            RealClock() if live else VirtualClock(*SHOW_FROM),
            seed=config.simulated_seed,
            sampler=config.simulated_sampler,
            usage=own_usage if live else lambda: FIXED_USAGE,
        )
    return LocalMachine(config.nvml_library, config.proc_root or "/proc", config.dcgm_library)


async def _collect_twice(config: Config, machine: Machine) -> tuple[Tally, Site]:
    """Two ticks, the least from which activity can be told; the second is published."""
    collector = _collector(config, machine, patience=max(config.nvml_deadline, 10.0))
    ledger, site = _ledger(config, machine), _site(config, machine)
    await loop.once(collector, ledger, Pace.INTERVAL)
    await machine.clock.until(machine.clock.monotonic() + config.tick)
    tally = await loop.once(collector, ledger, Pace.INTERVAL)
    assert tally is not None
    site.publish(tally)
    await _end(collector.close())
    return tally, site


def _collector(config: Config, machine: Machine, patience: float) -> Collector:
    nvml = NvmlSource(machine, Choice(config.gpus), deadline=config.nvml_deadline, patience=patience)
    return Collector(machine, (nvml,), companions=_companions(config, machine, patience / 2))


def _companions(config: Config, machine: Machine, patience: float) -> tuple[Companion, ...]:
    if config.dcgm == "off":
        return ()
    from gputally.sources.dcgm import DcgmSource  # most nodes never need it
    from gputally.sources.dcgm_engine import Terms

    terms = Terms(
        config.dcgm, config.interval, config.dcgm_window, max_age=config.max_age, timeout=config.dcgm_deadline
    )
    return (
        DcgmSource(
            machine, terms, records=config.process_metrics, deadline=config.dcgm_deadline, patience=patience
        ),
    )


def _ledger(config: Config, machine: Machine) -> Ledger:
    rules = ProcessRules(config.process_metrics_min_age, config.process_metrics_top)
    return Ledger(
        machine.name,
        retention=config.retention,
        max_age=config.max_age,
        rules=rules if config.process_metrics else None,
    )


def _site(config: Config, machine: Machine) -> Site:
    return Site(machine, dialects=config.dialect, path=config.web_telemetry_path, max_age=config.max_age)


async def _end(step: Coroutine[None, None, None]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(step, GRACE)


def _allow_more_descriptors() -> None:
    """One descriptor per GPU process is kept; take what we may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if hard == resource.RLIM_INFINITY else min(hard, 16_384)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def leave(code: int) -> NoReturn:
    """End at once, whatever threads are stuck in the driver; a normal exit would wait for them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
