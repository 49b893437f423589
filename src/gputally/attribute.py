"""Shares of one tick: each GPU's energy divided between its processes, to the microjoule; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

from gputally import idle, intensity, meter
from gputally.apportion import apportion
from gputally.idle import Floor
from gputally.intensity import Consumer, Intensity
from gputally.meter import Meter, Used
from gputally.model import PENDING, Device, Grant, ProcessKey, Snapshot
from gputally.weights import Seat, Seating, Weighed, seat, weigh

SAMPLES_COVER = 12.0
"""Seconds that the driver's ring of activity samples surely reaches back."""


@dataclass(frozen=True)
class Rules:
    """What the operator chose."""

    idle_policy: str = "none"
    """Who pays for idle power: none (the GPU itself), equal (holders of a context) or allocation (grants)."""
    idle_watts: float | None = None
    learned_intensity: bool = True


class GpuMemory(NamedTuple):
    """What a GPU's tick hands to its next."""

    meter: Meter
    floor: Floor = Floor()
    intensity: Intensity = Intensity()
    owed: Mapping[Seat | None, float] = {}
    seating: Seating = Seating()
    resumed: bool = False
    """It is of an exporter that ran before this one: what was used since, nobody watched."""


Memory = Mapping[str, GpuMemory]


class ProcessShare(NamedTuple):
    """What a process did on a GPU, and what it is charged."""

    key: ProcessKey
    uuid: str
    mig: str = ""
    busy_us: int | None = None
    energy_uj: int = 0
    estimated_uj: int = 0
    """The part of it that was divided between several active processes."""
    idle_uj: int = 0


_share = partial(tuple.__new__, ProcessShare)
"""A share from its fields, without the cost of a constructor."""


@dataclass(frozen=True)
class GrantShare:
    """Idle energy charged to a grant, whether or not anybody uses it."""

    grant: Grant
    idle_uj: int


class GpuShare(NamedTuple):
    """What a GPU used, and the part of it that no process is charged."""

    uuid: str
    used: Used = Used()
    idle_uj: int = 0
    unattributed_uj: Mapping[str, int] = {}
    activity_seconds: float | None = None
    idle_watts: float | None = None
    idle_source: str = "unknown"
    trust: float | None = None


@dataclass(frozen=True)
class Shares:
    """All that one tick gives to the ledger."""

    gpus: tuple[GpuShare, ...] = ()
    processes: tuple[ProcessShare, ...] = ()
    grants: tuple[GrantShare, ...] = ()


def attribute(now: Snapshot, memory: Memory, rules: Rules = Rules()) -> tuple[Shares, Memory]:
    """Shares since the memory was made; a GPU that was not read anew has none.

    Devices are read each in its own time, so what was before is in the memory, not in a snapshot before.
    """
    gpus: list[GpuShare] = []
    processes: list[ProcessShare] = []
    grants: list[GrantShare] = []
    after = dict(memory)
    for device in now.devices:
        known = memory.get(device.uuid)
        if device.read_at is None or (known is not None and known.meter.read_at >= device.read_at):
            continue
        if known is None:
            after[device.uuid] = GpuMemory(meter.start(device))
            gpus.append(_nothing(device, after[device.uuid], rules))
            continue
        if known.resumed:
            share, after[device.uuid] = _resume(device, known, rules)
            gpus.append(share)
            continue
        tick = _Tick(device, now, known, rules)
        after[device.uuid] = tick.after
        gpus.append(tick.gpu)
        processes += tick.processes
        grants += tick.grants
    return Shares(tuple(gpus), tuple(processes), tuple(grants)), after


class _Tick:
    """One GPU's tick, worked out step by step."""

    def __init__(self, device: Device, now: Snapshot, memory: GpuMemory, rules: Rules) -> None:
        self._device, self._now, self._rules = device, now, rules
        self._unattributed: dict[str, int] = {}
        self._energy_uj: dict[Seat, int] = {}
        self._idle_uj: dict[Seat, int] = {}
        self.grants: list[GrantShare] = []
        used, after = meter.read(device, memory.meter)
        seating = seat(device, now, memory.seating)
        weighed = weigh(device, now, seating)
        watts, source = _idle_watts(memory.floor, rules)
        idle_uj = min(used.energy_uj, round((watts or 0.0) * used.seconds * 1e6))
        dynamic_uj = used.energy_uj - idle_uj
        learned = self._learn(memory.intensity, weighed, dynamic_uj, used)
        owed = self._charge(dynamic_uj, weighed, learned, used, memory.owed)
        left_uj = self._charge_idle(idle_uj, weighed)
        self.processes = self._shares(weighed)
        floor = idle.learn(memory.floor, after.read_at, weighed.empty, used.energy_uj, used.seconds)
        self.after = GpuMemory(after, floor, learned, owed, seating)
        self.gpu = GpuShare(
            device.uuid,
            used,
            left_uj,
            self._unattributed,
            device.activity_seconds,
            watts,
            source,
            learned.trust if rules.learned_intensity else None,
        )

    def _learn(self, before: Intensity, weighed: Weighed, dynamic_uj: int, used: Used) -> Intensity:
        """Only a tick whose activity and energy belong together teaches anything."""
        fit = not (used.relaid or used.discarded_uj or used.resets or weighed.unknown or used.integrated)
        if not self._rules.learned_intensity or not weighed.busy_us or not fit:
            return before
        consumers, times = self._consumers(weighed), [busy_us / 1e6 for busy_us in weighed.busy_us.values()]
        busy = dict(zip(consumers, times, strict=True))
        if len(busy) < len(times):  # somebody has several processes
            busy = dict.fromkeys(busy, 0.0)
            for consumer, time in zip(consumers, times, strict=True):
                busy[consumer] += time
        return intensity.learn(before, busy, dynamic_uj / 1e6, used.seconds)

    def _consumers(self, weighed: Weighed) -> list[Consumer]:
        """Who was busy, by owner; a process whose owner is not known yet is its own consumer."""
        owners = self._now.owners
        named = [owners.get(key, PENDING) for key, _ in weighed.busy_us]
        if PENDING not in named:
            return [*named]
        return [key if o is PENDING else o for (key, _), o in zip(weighed.busy_us, named, strict=True)]

    def _charge(
        self,
        dynamic_uj: int,
        weighed: Weighed,
        learned: Intensity,
        used: Used,
        owed: Mapping[Seat | None, float],
    ) -> Mapping[Seat | None, float]:
        """Divide the energy above idle; what cannot be divided gets the reason why."""
        if used.relaid:
            return self._unattribute("mig_change", dynamic_uj, owed)
        if self._now.host_pid == "no":
            return self._unattribute("no_host_pid", dynamic_uj, owed)
        if self._device.clock_jumped:
            return self._unattribute("clock", dynamic_uj, owed)
        gap_uj = round(dynamic_uj * max(0.0, 1 - SAMPLES_COVER / used.seconds)) if used.seconds > 0 else 0
        self._unattribute("gap", gap_uj, owed)
        dynamic_uj -= gap_uj
        if not weighed.weights:
            reason = "unknown_process" if weighed.unknown else "no_process"
            return self._unattribute(reason, dynamic_uj, owed)
        seats: list[Seat | None] = [*weighed.weights]
        weights = self._by_intensity(weighed, learned)
        if weighed.unknown:
            seats.append(None)
        parts, carried = apportion(dynamic_uj, seats, weights, owed)
        self._energy_uj = dict(zip(weighed.weights, parts, strict=False))
        if weighed.unknown:
            self._unattribute("unknown_process", parts[-1], owed)
        return carried

    def _by_intensity(self, weighed: Weighed, learned: Intensity) -> list[int]:
        """Weights in microjoules-to-be: busy time x milliwatts; by time alone where nothing was learned.

        The unknown come last.
        """
        weights, unknown = [*weighed.weights.values()], [weighed.unknown] if weighed.unknown else []
        if weighed.by != "activity" or not learned.mean_watts or not learned.trust:
            return weights + unknown
        prices = [*map(learned.weight, self._consumers(weighed)), *(learned.mean_watts for _ in unknown)]
        return [
            max(1, round(1e3 * busy_us * price))
            for busy_us, price in zip(weights + unknown, prices, strict=True)
        ]

    def _charge_idle(self, idle_uj: int, weighed: Weighed) -> int:
        """Divide the idle energy as the policy says; tells what stays with the GPU."""
        if self._rules.idle_policy == "equal" and weighed.holders and self._now.host_pid != "no":
            parts, _ = apportion(idle_uj, weighed.holders, [1] * len(weighed.holders), {})
            self._idle_uj = dict(zip(weighed.holders, parts, strict=True))
            return 0
        if self._rules.idle_policy == "allocation":
            return idle_uj - self._charge_grants(idle_uj)
        return idle_uj

    def _charge_grants(self, idle_uj: int) -> int:
        grants = [g for g in self._now.grants or () if g.uuid == self._device.uuid]
        if not grants:
            return 0
        slices = {i.uuid: i.slices or 0 for i in self._device.instances or ()}
        whole = self._device.slices or 0
        weights = [slices.get(g.mig, 0) if g.mig else 1 for g in grants]
        granted = sum(weights)
        rest = max(0, whole - granted) if self._device.instances is not None else 0
        if not granted:
            return 0
        parts, _ = apportion(idle_uj, range(len(grants) + 1), [*weights, rest], {})
        self.grants += [GrantShare(g, part) for g, part in zip(grants, parts, strict=False)]
        return sum(parts[: len(grants)])

    def _shares(self, weighed: Weighed) -> list[ProcessShare]:
        """What each process is charged; energy is measured while it was alone, else estimated."""
        uuid, energy, idle_uj, busy = self._device.uuid, self._energy_uj, self._idle_uj, weighed.busy_us
        divided = len(energy) + bool(weighed.unknown) > 1
        seats = energy if energy.keys() >= busy.keys() and not idle_uj else {**energy, **busy, **idle_uj}
        keys, migs = zip(*seats, strict=True) if seats else ((), ())
        parts = [energy.get(seat, 0) for seat in seats]
        columns = (
            keys,
            repeat(uuid),
            migs,
            map(busy.get, seats),
            parts,
            parts if divided else repeat(0),
            [idle_uj.get(seat, 0) for seat in seats] if idle_uj else repeat(0),
        )
        return list(map(_share, zip(*columns, strict=False)))

    def _unattribute(
        self, reason: str, amount_uj: int, owed: Mapping[Seat | None, float]
    ) -> Mapping[Seat | None, float]:
        if amount_uj:
            self._unattributed[reason] = self._unattributed.get(reason, 0) + amount_uj
        return owed


def _idle_watts(floor: Floor, rules: Rules) -> tuple[float | None, str]:
    if rules.idle_watts is not None:
        return rules.idle_watts, "configured"
    return (floor.watts, "learned") if floor.watts is not None else (None, "unknown")


def _resume(device: Device, known: GpuMemory, rules: Rules) -> tuple[GpuShare, GpuMemory]:
    """The first reading after a restart: what was used in between is nobody's, if the counter ran on."""
    began = meter.start(device)
    before = known.meter._replace(epoch=began.epoch, partitioned=began.partitioned, moved_at=began.read_at)
    used = Used() if before.integrating else meter.read(device, before)[0]
    watts, source = _idle_watts(known.floor, rules)
    unwatched = {"exporter_down": used.energy_uj} if used.energy_uj else {}
    share = GpuShare(device.uuid, used, 0, unwatched, idle_watts=watts, idle_source=source)
    return share, known._replace(meter=began, resumed=False)


def _nothing(device: Device, memory: GpuMemory, rules: Rules) -> GpuShare:
    watts, source = _idle_watts(memory.floor, rules)
    return GpuShare(device.uuid, idle_watts=watts, idle_source=source)
