"""Shares of one tick: each GPU's energy divided between its processes, to the microjoule; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gputally import idle, intensity, meter
from gputally.apportion import apportion
from gputally.crowd import Crowd, meet, price
from gputally.idle import Floor
from gputally.intensity import Intensity
from gputally.meter import Meter, Used
from gputally.model import Device, Snapshot
from gputally.shares import Charge, GpuShare, GrantShare, Shares
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


class Owed(NamedTuple):
    """What rounding owes each of those who sat on a GPU; None is for those who could not be read."""

    seats: tuple[Seat | None, ...] = ()
    debts: Sequence[float] = ()

    def to(self, seats: tuple[Seat | None, ...]) -> Sequence[float]:
        """Debts to those who sit there now; who is new is owed nothing."""
        if seats == self.seats:
            return self.debts
        owed = dict(zip(self.seats, self.debts, strict=True))
        return [owed.get(seat, 0.0) for seat in seats]


class GpuMemory(NamedTuple):
    """What a GPU's tick hands to its next."""

    meter: Meter
    floor: Floor = Floor()
    intensity: Intensity = Intensity()
    owed: Owed = Owed()
    seating: Seating = Seating()
    crowd: Crowd = Crowd()
    resumed: bool = False
    """It is of an exporter that ran before this one: what was used since, nobody watched."""


Memory = Mapping[str, GpuMemory]


def attribute(now: Snapshot, memory: Memory, rules: Rules = Rules()) -> tuple[Shares, Memory]:
    """Shares since the memory was made; a GPU that was not read anew has none.

    Devices are read each in its own time, so what was before is in the memory, not in a snapshot before.
    """
    gpus: list[GpuShare] = []
    charges: list[Charge] = []
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
        charges += tick.charges
        grants += tick.grants
    return Shares(tuple(gpus), tuple(charges), tuple(grants)), after


class _Tick:
    """One GPU's tick, worked out step by step."""

    def __init__(self, device: Device, now: Snapshot, memory: GpuMemory, rules: Rules) -> None:
        self._device, self._now, self._rules = device, now, rules
        self._unattributed: dict[str, int] = {}
        self._owed = memory.owed
        self.charges: list[Charge] = []
        self.grants: list[GrantShare] = []
        used, after = meter.read(device, memory.meter)
        seating = seat(device, now, memory.seating)
        weighed = weigh(device, seating)
        watts, source = _idle_watts(memory.floor, rules)
        idle_uj = min(used.energy_uj, round((watts or 0.0) * used.seconds * 1e6))
        dynamic_uj = used.energy_uj - idle_uj
        learned, crowd = self._learn(memory, weighed, dynamic_uj, used)
        self._charge(dynamic_uj, weighed, crowd, used)
        left_uj = self._charge_idle(idle_uj, weighed)
        floor = idle.learn(memory.floor, after.read_at, weighed.empty, used.energy_uj, used.seconds)
        self.after = GpuMemory(after, floor, learned, self._owed, seating, crowd)
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

    def _learn(
        self, memory: GpuMemory, weighed: Weighed, dynamic_uj: int, used: Used
    ) -> tuple[Intensity, Crowd]:
        """Only a tick whose activity and energy belong together teaches anything."""
        known = memory.intensity
        if not self._rules.learned_intensity or not weighed.busy_us:
            return known, memory.crowd
        crowd = meet(weighed.seats, self._now.owners, memory.crowd)
        if not (used.relaid or used.discarded_uj or used.resets or weighed.unknown or used.integrated):
            seconds = crowd.seconds(weighed.busy_us)
            known = intensity.learn(known, crowd.consumers, seconds, dynamic_uj / 1e6, used.seconds)
        return known, price(crowd, known)

    def _charge(self, dynamic_uj: int, weighed: Weighed, crowd: Crowd, used: Used) -> None:
        """Divide the energy above idle; what cannot be divided gets the reason why."""
        reason = self._indivisible(used)
        gap_uj = (
            0
            if reason or used.seconds <= 0
            else round(dynamic_uj * max(0.0, 1 - SAMPLES_COVER / used.seconds))
        )
        self._unattribute("gap", gap_uj)
        dynamic_uj -= gap_uj
        if not reason and not weighed.weights and not weighed.unknown:
            reason = "no_process"
        seats, energy_uj = weighed.seats, [0] * len(weighed.seats)
        if reason:
            self._unattribute(reason, dynamic_uj)
        else:
            energy_uj = self._divide(dynamic_uj, weighed, crowd)
        if seats and (weighed.busy_us or not reason):
            divided = len(seats) + bool(weighed.unknown) > 1
            self.charges.append(Charge(self._device.uuid, seats, energy_uj, weighed.busy_us, divided))

    def _indivisible(self, used: Used) -> str:
        """Why nobody can be charged anything."""
        if used.relaid:
            return "mig_change"
        if self._now.host_pid == "no":
            return "no_host_pid"
        return "clock" if self._device.clock_jumped else ""

    def _divide(self, dynamic_uj: int, weighed: Weighed, crowd: Crowd) -> list[int]:
        """What each of the seats is charged; the part of those who could not be read is nobody's."""
        seats: tuple[Seat | None, ...] = weighed.seats
        weights = self._by_intensity(weighed, crowd)
        if weighed.unknown:
            seats = (*seats, None)
        parts, debts = apportion(dynamic_uj, weights, self._owed.to(seats))
        self._owed = Owed(seats, debts)
        if weighed.unknown:
            self._unattribute("unknown_process", parts.pop())
        return parts

    def _by_intensity(self, weighed: Weighed, crowd: Crowd) -> list[int]:
        """Weights in microjoules-to-be: busy time x milliwatts; by time alone where nothing was learned.

        The unknown come last.
        """
        unknown = [weighed.unknown] if weighed.unknown else []
        weights = [*weighed.weights, *unknown]
        _, mean_watts, trust = crowd.learned
        if weighed.by != "activity" or not weighed.seats or not mean_watts or not trust:
            return weights
        prices = [*crowd.prices, *(mean_watts for _ in unknown)]
        return [max(1, round(1e3 * busy_us * price)) for busy_us, price in zip(weights, prices, strict=True)]

    def _charge_idle(self, idle_uj: int, weighed: Weighed) -> int:
        """Divide the idle energy as the policy says; tells what stays with the GPU."""
        holders = weighed.holders
        if self._rules.idle_policy == "equal" and holders and self._now.host_pid != "no":
            parts, _ = apportion(idle_uj, [1] * len(holders))
            self.charges.append(Charge(self._device.uuid, holders, [0] * len(holders), idle_uj=parts))
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
        parts, _ = apportion(idle_uj, [*weights, rest])
        self.grants += [GrantShare(g, part) for g, part in zip(grants, parts, strict=False)]
        return sum(parts[: len(grants)])

    def _unattribute(self, reason: str, amount_uj: int) -> None:
        if amount_uj:
            self._unattributed[reason] = self._unattributed.get(reason, 0) + amount_uj


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
