"""Shares of one tick: each GPU's energy divided between its processes, to the microjoule; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gputally import idle, intensity, meter
from gputally.apportion import apportion
from gputally.idle import Floor
from gputally.intensity import Consumer, Intensity
from gputally.meter import Meter, Used
from gputally.model import PENDING, Device, Grant, ProcessKey, Snapshot
from gputally.weights import Weighed, weigh

SAMPLES_COVER = 12.0
"""Seconds that the driver's ring of activity samples surely reaches back."""


@dataclass(frozen=True)
class Rules:
    """What the operator chose."""

    idle_policy: str = "none"
    """Who pays for idle power: none (the GPU itself), equal (holders of a context) or allocation (grants)."""
    idle_watts: float | None = None
    learned_intensity: bool = True


@dataclass(frozen=True)
class GpuMemory:
    """What a GPU's tick hands to its next."""

    meter: Meter
    floor: Floor = Floor()
    intensity: Intensity = Intensity()
    owed: Mapping[ProcessKey | None, float] = field(default_factory=dict)


Memory = Mapping[str, GpuMemory]


@dataclass(frozen=True)
class ProcessShare:
    """What a process did on a GPU, and what it is charged."""

    key: ProcessKey
    uuid: str
    mig: str = ""
    busy_us: int | None = None
    energy_uj: int = 0
    estimated_uj: int = 0
    """The part of it that was divided between several active processes."""
    idle_uj: int = 0


@dataclass(frozen=True)
class GrantShare:
    """Idle energy charged to a grant, whether or not anybody uses it."""

    grant: Grant
    idle_uj: int


@dataclass(frozen=True)
class GpuShare:
    """What a GPU used, and the part of it that no process is charged."""

    uuid: str
    used: Used = Used()
    idle_uj: int = 0
    unattributed_uj: Mapping[str, int] = field(default_factory=dict)
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
        self._charges: dict[tuple[ProcessKey, str], ProcessShare] = {}
        self.grants: list[GrantShare] = []
        used, after = meter.read(device, memory.meter)
        weighed = weigh(device, now)
        watts, source = _idle_watts(memory.floor, rules)
        idle_uj = min(used.energy_uj, round((watts or 0.0) * used.seconds * 1e6))
        dynamic_uj = used.energy_uj - idle_uj
        learned = self._learn(memory.intensity, weighed, dynamic_uj, used)
        owed = self._charge(dynamic_uj, weighed, learned, used, memory.owed)
        left_uj = self._charge_idle(idle_uj, weighed)
        self._busy(weighed)
        self.processes = list(self._charges.values())
        floor = idle.learn(memory.floor, after.read_at, weighed.empty, used.energy_uj, used.seconds)
        self.after = GpuMemory(after, floor, learned, owed)
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
        if not self._rules.learned_intensity or not weighed.busy or not fit:
            return before
        busy: dict[Consumer, float] = {}
        for key, _, busy_us in weighed.busy:
            consumer = self._consumer(key)
            busy[consumer] = busy.get(consumer, 0.0) + busy_us / 1e6
        return intensity.learn(before, busy, dynamic_uj / 1e6, used.seconds)

    def _consumer(self, key: ProcessKey) -> Consumer:
        owner = self._now.owners.get(key, PENDING)
        return key if owner is PENDING else owner

    def _charge(
        self,
        dynamic_uj: int,
        weighed: Weighed,
        learned: Intensity,
        used: Used,
        owed: Mapping[ProcessKey | None, float],
    ) -> Mapping[ProcessKey | None, float]:
        """Divide the energy above idle; what cannot be divided gets the reason why."""
        if used.relaid:
            return self._unattribute("mig_change", dynamic_uj, owed)
        if self._now.host_pid == "no":
            return self._unattribute("no_host_pid", dynamic_uj, owed)
        gap_uj = round(dynamic_uj * max(0.0, 1 - SAMPLES_COVER / used.seconds)) if used.seconds > 0 else 0
        if gap_uj:
            self._unattribute("gap", gap_uj, owed)
            dynamic_uj -= gap_uj
        if weighed.unknown and not weighed.parts:
            return self._unattribute("unknown_process", dynamic_uj, owed)
        if not weighed.parts:
            return self._unattribute("no_process", dynamic_uj, owed)
        weights: list[tuple[ProcessKey | None, int]] = [
            (part.key, max(1, round(part.weight * self._intensity(learned, weighed, part.key))))
            for part in weighed.parts
        ]
        if weighed.unknown:
            weights.append((None, max(1, round(weighed.unknown * self._intensity(learned, weighed, None)))))
        parts, carried = apportion(dynamic_uj, weights, owed)
        divided = len(weights) > 1
        for place, part_uj in enumerate(parts):
            if place == len(weighed.parts):
                self._unattribute("unknown_process", part_uj, owed)
                continue
            part = weighed.parts[place]
            share = self._share(part.key, part.mig)
            self._charges[part.key, part.mig] = replace(
                share,
                energy_uj=share.energy_uj + part_uj,
                estimated_uj=share.estimated_uj + (part_uj if divided else 0),
            )
        return carried

    def _intensity(self, learned: Intensity, weighed: Weighed, key: ProcessKey | None) -> float:
        """Milliwatts of a busy second; the same for all where activity says nothing."""
        if weighed.by != "activity" or not learned.mean_watts:
            return 1.0
        return 1e3 * (learned.mean_watts if key is None else learned.weight(self._consumer(key)))

    def _charge_idle(self, idle_uj: int, weighed: Weighed) -> int:
        """Divide the idle energy as the policy says; tells what stays with the GPU."""
        if self._rules.idle_policy == "equal" and weighed.holders and self._now.host_pid != "no":
            parts, _ = apportion(idle_uj, [(holder, 1) for holder in weighed.holders], {})
            for (key, mig), part_uj in zip(weighed.holders, parts, strict=True):
                share = self._share(key, mig)
                self._charges[key, mig] = replace(share, idle_uj=share.idle_uj + part_uj)
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
        weights = [(n, slices.get(g.mig, 0) if g.mig else 1) for n, g in enumerate(grants)]
        granted = sum(weight for _, weight in weights)
        rest = max(0, whole - granted) if self._device.instances is not None else 0
        if not granted:
            return 0
        parts, _ = apportion(idle_uj, [*weights, (len(grants), rest)], {})
        self.grants += [GrantShare(g, part) for g, part in zip(grants, parts, strict=False)]
        return sum(parts[: len(grants)])

    def _busy(self, weighed: Weighed) -> None:
        """Busy time, which is known apart from energy."""
        for key, mig, busy_us in weighed.busy:
            share = self._share(key, mig)
            self._charges[key, mig] = replace(share, busy_us=(share.busy_us or 0) + busy_us)

    def _share(self, key: ProcessKey, mig: str) -> ProcessShare:
        return self._charges.get((key, mig)) or ProcessShare(key, self._device.uuid, mig)

    def _unattribute(
        self, reason: str, amount_uj: int, owed: Mapping[ProcessKey | None, float]
    ) -> Mapping[ProcessKey | None, float]:
        if amount_uj:
            self._unattributed[reason] = self._unattributed.get(reason, 0) + amount_uj
        return owed


def _idle_watts(floor: Floor, rules: Rules) -> tuple[float | None, str]:
    if rules.idle_watts is not None:
        return rules.idle_watts, "configured"
    return (floor.watts, "learned") if floor.watts is not None else (None, "unknown")


def _nothing(device: Device, memory: GpuMemory, rules: Rules) -> GpuShare:
    watts, source = _idle_watts(memory.floor, rules)
    return GpuShare(device.uuid, idle_watts=watts, idle_source=source)
