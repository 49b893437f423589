"""How far each process's energy is from the truth: the real pipeline on simulated GPUs, beside naive methods.

    python -m bench.truth [--seconds 600] [--only WORD] [--seed 1]

The simulated machine knows what every process truly drew. Printed is the error of each process's energy above
idle, mean/max in percent, for: gputally with learned intensity, gputally by busy time alone, power x share of
utilization at each reading (as Kepler's formula), the GPU's energy in equal parts, and the whole GPU's energy
for each process (as DCGM's per-process record).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.mixes import MIXES, Mix
from gputally.attribute import Memory, Rules, attribute
from gputally.collect import Collector
from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.machine.simulation import Sampler
from gputally.model import Pace, ProcessKey, Snapshot
from gputally.sources.nvml import NvmlSource

Energies = dict[ProcessKey, float]
SEED = 1
METHODS = ("learned", "by time", "power x share", "equal parts", "whole GPU")


@dataclass
class Errors:
    """Percent off, of each process that drew something worth counting."""

    mean: float
    worst: float
    lost: float
    """Percent of the energy above idle that went to nobody or to the wrong process."""


@dataclass
class Ours:
    """gputally's own attribution, with one set of rules."""

    rules: Rules
    memory: Memory = field(default_factory=dict)
    energies: Energies = field(default_factory=dict)
    claimed_uj: int = 0
    given_uj: int = 0
    trust: float = 0.0

    def post(self, snapshot: Snapshot) -> None:
        """One tick."""
        shares, self.memory = attribute(snapshot, self.memory, self.rules)
        for gpu in shares.gpus:
            self.claimed_uj += gpu.used.energy_uj
            self.given_uj += gpu.idle_uj + sum(gpu.unattributed_uj.values())
            self.trust = gpu.trust or 0.0
        for share in shares.processes:
            self.given_uj += share.energy_uj + share.idle_uj
            self.energies[share.key] = self.energies.get(share.key, 0.0) + share.energy_uj


@dataclass
class Result:
    """One mix at one tick with one sampler."""

    errors: Mapping[str, Errors]
    unconserved_uj: int
    trust: float


def run(mix: Mix, tick: float, sampler: Sampler, seconds: float = 600.0, seed: int = SEED) -> Result:
    """Let the mix run and compare."""
    return asyncio.run(_run(mix, tick, sampler, seconds, seed))


async def _run(mix: Mix, tick: float, sampler: Sampler, seconds: float, seed: int) -> Result:
    clock = VirtualClock(1_000.0)
    machine = SimulatedMachine(
        clock, seed=seed, sampler=sampler, cast=mix.cast, boards=(mix.board,), aged=0.0
    )
    collector = Collector(machine, (NvmlSource(machine, deadline=60.0, patience=60.0),))
    idle = float(mix.board.idle_watts)
    learned, by_time = Ours(Rules(idle_watts=idle)), Ours(Rules(idle_watts=idle, learned_intensity=False))
    naive: dict[str, Energies] = {name: {} for name in METHODS[2:]}
    start: Mapping[ProcessKey, int] = {}
    before: Snapshot | None = None
    uuid = ""
    for number in range(round(seconds / tick) + 1):
        await clock.until(1_000.0 + number * tick)
        snapshot = await collector.collect(Pace.INTERVAL if number * tick % 5 < tick else Pace.TICK)
        for ours in (learned, by_time):
            ours.post(snapshot)
        uuid = snapshot.devices[0].uuid
        if before is None:
            start = machine.truth(uuid)
        else:
            _naive(naive, snapshot, before, tick, idle)
        before = snapshot
    truth = {key: float(uj - start.get(key, 0)) for key, uj in machine.truth(uuid).items()}
    await collector.close()
    told = {"learned": learned.energies, "by time": by_time.energies, **naive}
    return Result(
        {name: _errors(truth, energies) for name, energies in told.items()},
        sum(abs(ours.claimed_uj - ours.given_uj) for ours in (learned, by_time)),
        learned.trust,
    )


def _naive(found: dict[str, Energies], now: Snapshot, before: Snapshot, tick: float, idle: float) -> None:
    """The other methods, on the same readings."""
    device, last = now.devices[0], before.devices[0]
    energy_uj = (device.energy_uj or 0) - (last.energy_uj or 0)
    dynamic_uj = max(0.0, energy_uj - idle * tick * 1e6)
    holders = [now.processes[h.pid].key for h in device.holders or () if h.pid in now.processes]
    busy = {now.processes[a.pid].key: a.sm_ratio for a in device.activities or () if a.pid in now.processes}
    power_uj = max(0.0, (device.power_watts or 0.0) - idle) * tick * 1e6
    total = sum(busy.values()) or 1.0
    for key, ratio in busy.items():
        _add(found["power x share"], key, power_uj * ratio / total)
    for key in holders:
        _add(found["equal parts"], key, dynamic_uj / len(holders))
        _add(found["whole GPU"], key, float(energy_uj))


def _add(energies: Energies, key: ProcessKey, amount: float) -> None:
    energies[key] = energies.get(key, 0.0) + amount


def _errors(truth: Mapping[ProcessKey, float], told: Energies) -> Errors:
    whole = sum(truth.values()) or 1.0
    counted = {key: uj for key, uj in truth.items() if uj > whole * 1e-4}
    off = [100 * abs(told.get(key, 0.0) - uj) / uj for key, uj in counted.items()]
    missed = sum(max(0.0, uj - told.get(key, 0.0)) for key, uj in truth.items())
    return Errors(sum(off) / len(off), max(off), 100 * missed / whole)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Errors of energy per process against the simulated truth.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=SEED, help="another run of the same mixes")
    parser.add_argument("--only", default="", help="mixes whose name has this word")
    options = parser.parse_args()
    print(f"mean/max % error of a process's energy above idle, over {options.seconds:g} simulated seconds")
    head = "".join(f"{name:>16}" for name in METHODS)
    print(f"{'mix':<34}{'tick':>5} {'sampler':<10}{head}{'trust':>7}{'unconserved':>12}")
    for mix in MIXES:
        if options.only in mix.name:
            for tick in mix.ticks:
                _rows(mix, tick, options.seconds, options.seed)


def _rows(mix: Mix, tick: float, seconds: float, seed: int) -> None:
    samplers: Sequence[Sampler] = ("fraction", "one-owner")
    for sampler in samplers:
        result = run(mix, tick, sampler, seconds, seed)
        cells = "".join(f"{f'{e.mean:.1f}/{e.worst:.1f}':>16}" for e in result.errors.values())
        tail = f"{result.trust:>7.2f}{result.unconserved_uj:>10} µJ"
        print(
            f"{mix.name:<34}{tick:>4g}s {sampler:<10}{cells}{tail}",
            flush=True,
        )


if __name__ == "__main__":
    main()
