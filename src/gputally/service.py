"""What the commands do: put the parts together, run them, and end in bounded time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from gputally import __version__, asking, feeds, footprint, loop, publishing
from gputally.accounts import Books
from gputally.attribute import Memory, Rules
from gputally.config import Config, Wrong
from gputally.dialects import DIALECTS
from gputally.keeper import Keeper, boot_id
from gputally.ledger import Ledger
from gputally.machine import BadRecording, Machine
from gputally.machine.clocks import RealClock, VirtualClock
from gputally.machine.local import LocalMachine, own_usage
from gputally.model import Pace
from gputally.outputs.http import HttpServer
from gputally.outputs.site import Site
from gputally.outputs.web_config import Certificates
from gputally.outputs.web_config import read as read_web_config
from gputally.outputs.web_users import guarded
from gputally.owners.cgroup import parse
from gputally.process_book import ProcessRules
from gputally.state import State
from gputally.tally import Tally
from gputally.yielding import COMMANDS, Yielding, commanded, node_inquiry

log = logging.getLogger(__name__)

CANNOT_WRITE = 73
"""The exit code when a file, or standard output, takes nothing more."""
GRACE = 2.0
"""Seconds that answers and files under way, and then the hardware, are given when the process ends."""
RENEW_EVERY = 2.0
SHOW_FROM = (1_000.0, 1_800_000_000.0)
"""Where `show` starts the clocks of the simulated machine, so that the same seed shows the same bytes."""


async def serve(config: Config) -> bool:
    """Collect and answer scrapes until SIGTERM or SIGINT; False if only a restart can bring GPUs back."""
    footprint.allow_more_descriptors()
    footprint.give_memory_back()
    web = read_web_config(config.web_config_file)
    certificates = Certificates(web.tls) if web.tls else None
    machine = open_machine(config, live=True)
    keeper = _keeper(config, machine)
    ledger = _ledger(config, machine, scraped=True, kept=keeper.load() if keeper else None)
    site = publishing.site(config, machine)
    patience = min(config.tick / 2, 0.5)
    nvml = asking.nvml_source(config, machine, patience)
    yielding = Yielding(nvml, config.nvml_yield)
    collector = asking.collector(
        config, machine, nvml, patience, besides=node_inquiry(config, machine, yielding)
    )
    textfile = feeds.textfile(config, site, ledger)
    outlet: loop.Outlet = site if textfile is None else textfile.behind(site)
    copy = publishing.Copy(config.metrics_file, site) if config.metrics_file else None
    outlet = outlet if copy is None else copy.behind(outlet)
    respond = commanded(site.respond, yielding) if config.web_enable_yield else site.respond
    respond = guarded(respond, web.users, site.health_paths) if web.users else respond
    server = HttpServer(
        respond,
        ssl_options=certificates.context if certificates else None,
        commands=COMMANDS if config.web_enable_yield else (),
    )
    addresses = server.listen(config.web_listen_address)
    if textfile is not None:
        textfile.begin()
    log.info("gputally %s on the %s machine", __version__, machine.name)
    for address in addresses:
        log.info(
            "listening on %s://%s%s", "https" if certificates else "http", address, config.web_telemetry_path
        )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, yielding.turn)
    await collector.start()
    renewing = asyncio.ensure_future(_renew(certificates, server)) if certificates else None
    footprint.settle()
    await loop.run(
        machine.clock,
        collector,
        ledger,
        outlet if keeper is None else keeper.behind(outlet, ledger),
        tick=config.tick,
        interval=config.interval,
        stop=stop,
        over=nvml.doomed,  # nothing but a restart brings the GPUs back
    )
    if renewing is not None:
        renewing.cancel()
    doom = nvml.doomed()
    if doom:
        log.error("ending so that a restart can mend it: %s", doom)
    log.info("ending")
    steps = [server.stop(GRACE)]
    if textfile is not None:
        steps.append(textfile.end())
    if copy is not None:
        steps.append(copy.end())
    if keeper is not None:
        steps.append(keeper.end(ledger))
    await _end(*steps)
    await _end(collector.close())
    return doom is None


async def show(config: Config) -> bool:
    """Print one collection as a scrape would get it; tells whether any source answered and told anything."""
    machine = open_machine(config, live=False)
    tally, site = await collect_twice(config, machine)
    say(site.body())
    answered = any(health.up for health in tally.snapshot.health if health.about == "gpus")
    return answered and bool(tally.gpus or tally.snapshot.foreign)


async def record(config: Config, folder: Path) -> list[Path]:
    """Save what this machine answers, for a bug report or a test."""
    from gputally.machine.recording import Recorder  # what few need, the others need not carry

    recorder = Recorder(open_machine(config, live=False))
    await collect_twice(config, recorder)
    recorder.end_tick()
    return recorder.save(folder)


async def explain(config: Config, pid: int) -> bool:
    """Say how a process was traced; tells whether it was."""
    from gputally.views import explain as view

    machine = open_machine(config, live=False)
    collector = asking.patient_collector(config, machine)
    await collector.start(once=True)
    await collector.collect(Pace.INTERVAL)
    await machine.clock.until(machine.clock.monotonic() + config.tick)
    snapshot = await collector.collect(Pace.INTERVAL)
    process = machine.process(pid)
    steps = [] if process is None else list(collector.steps(process))
    identity = None if process is None else asking.identifier(machine)(process.cgroup)
    trace = view.Trace(pid, snapshot, process, machine.exists(pid), identity, steps)
    say(view.explain(trace).encode())
    await _end(collector.close())
    return trace.is_traced


def explain_cgroup(raw: bytes) -> None:
    """Say whose a saved /proc/PID/cgroup is."""
    from gputally.views.explain import identity_json

    say(identity_json(parse(raw.decode("utf-8", "replace"))).encode())


def open_machine(config: Config, *, live: bool) -> Machine:
    """The machine that was asked for; `live` lets recorded and simulated ones run in real time."""
    kind, _, folder = config.machine.partition(":")
    if kind == "recorded":
        from gputally.machine.recorded import RecordedMachine

        try:
            return RecordedMachine(folder, paced=live)
        except BadRecording as error:
            raise BadRecording(f"--machine {config.machine} cannot be used: {error}") from None
    if kind == "simulated":
        from gputally.machine.simulated import FIXED_USAGE, SimulatedMachine

        return SimulatedMachine(
            RealClock() if live else VirtualClock(*SHOW_FROM),
            seed=config.simulated_seed,
            sampler=config.simulated_sampler,
            usage=own_usage if live else lambda: FIXED_USAGE,
        )
    if config.proc_root and not os.path.isdir(config.proc_root):
        raise Wrong(f"--proc.root {config.proc_root!r} cannot be used: it must be a folder that is there")
    return LocalMachine(
        config.nvml_library,
        config.proc_root or "/proc",
        config.dcgm_library,
        nvml_apart=config.nvml_isolation == "process",
    )


async def collect_twice(config: Config, machine: Machine) -> tuple[Tally, Site]:
    """Two ticks, the least from which activity can be told; the second is published."""
    collector = asking.patient_collector(config, machine)
    ledger, site = _ledger(config, machine, scraped=False), publishing.site(config, machine)
    await collector.start(once=True)
    await loop.once(collector, ledger, Pace.INTERVAL)
    await machine.clock.until(machine.clock.monotonic() + config.tick)
    tally = await loop.once(collector, ledger, Pace.INTERVAL)
    assert tally is not None
    site.publish(tally)
    await _end(collector.close())
    return tally, site


async def _renew(certificates: Certificates, server: HttpServer) -> None:
    """Serve certificates as they are on disk, also once the old one expired and nobody asks any more."""
    while True:
        await asyncio.sleep(RENEW_EVERY)
        if context := certificates.renewed():
            server.secure(context)


def _ledger(
    config: Config, machine: Machine, scraped: bool, kept: tuple[Books, Memory] | None = None
) -> Ledger:
    books, memory = kept or (None, None)
    return Ledger(
        machine.name,
        books=books,
        memory=memory,
        retention=config.retention,
        max_age=config.max_age,
        rules=Rules(
            idle_policy=config.energy_idle_policy,
            idle_watts=config.energy_idle_watts,
            learned_intensity=config.energy_intensity == "learned",
        ),
        processes=ProcessRules(config.process_metrics_min_age, config.process_metrics_top)
        if config.process_metrics
        else None,
        stays=any(DIALECTS[name].stays for name in config.dialect),
        claims=any(DIALECTS[name].claims for name in config.dialect),
        scraped=scraped,
    )


def _keeper(config: Config, machine: Machine) -> Keeper | None:
    if config.state_directory is None:
        return None
    return Keeper(State(config.state_directory, boot_id(machine)), machine.clock)


async def _end(*steps: Coroutine[None, None, None]) -> None:
    """Take these steps beside each other: disks that hang would add up to more than we are given."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*steps), GRACE)


def leave(code: int) -> NoReturn:
    """End at once, whatever threads are stuck in the driver; a normal exit would wait for them."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _leave_unheard(error)
    sys.stderr.flush()
    os._exit(code)


def say(text: bytes) -> None:
    """Print it, or end."""
    try:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    except OSError as error:
        _leave_unheard(error)


def _leave_unheard(error: OSError) -> NoReturn:
    """End because nobody takes what is printed; a normal exit would try again, and fail again."""
    if not isinstance(error, BrokenPipeError):  # a reader that has seen enough knows why
        with suppress(OSError):
            print(f"gputally: cannot write to standard output: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(CANNOT_WRITE)
