"""How much each process of a GPU weighs in one tick, and how that is known; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import mul
from types import MappingProxyType
from typing import NamedTuple, cast

from gputally.apportion import apportion
from gputally.columns import column
from gputally.model import Activity, Device, Holder, Instance, Process, ProcessKey, Snapshot

PID, SM_RATIO = Activity._fields.index("pid"), Activity._fields.index("sm_ratio")

MPS_SERVER = "nvidia-cuda-mps-server"[:15]
"""What the kernel keeps of its name."""

Seat = tuple[ProcessKey, str]
"""A process, in a MIG instance (empty without MIG)."""
Served = Mapping[Seat, tuple[Seat | None, ...]]


class Seating(NamedTuple):
    """Who is on a GPU; true for as long as it names the same and they are the same processes."""

    listed: tuple[Holder, ...] | None = None
    named: tuple[int, ...] = ()
    """Whom the samples name, in their order."""
    processes: Mapping[int, Process] | None = None
    holders: tuple[Seat, ...] = ()
    """Those who hold a context."""
    hidden: int = 0
    """Holders that could not be read."""
    busy: tuple[Seat | None, ...] = ()
    """The seats of those whom the samples name; None for one that could not be read."""
    plain: bool = True
    """Everybody whom the samples name is a holder that could be read, and is named once."""
    served: Served = MappingProxyType({})
    """MPS servers, which are no holders, and those they work for; None for one that could not be read."""


class Weighed(NamedTuple):
    """Everyone on one GPU in one tick; numbers are in the order of the seats."""

    seats: tuple[Seat, ...] = ()
    """Those who weigh something."""
    weights: Sequence[int] = ()
    by: str = "nothing"
    """activity (samples of each), instance (MIG), alone, presence (they hold a context), nothing."""
    unknown: int = 0
    """Weight of processes that could not be read."""
    holders: tuple[Seat, ...] = ()
    """All who are there, whether or not they weigh something."""
    busy_us: Sequence[int] | None = None
    """None where nobody was seen busy."""
    empty: bool = False
    """Surely nobody holds a context."""


def seat(device: Device, now: Snapshot, before: Seating) -> Seating:
    """Who is there; worked out anew only when somebody came, went or became somebody else."""
    named = column(device.activities or (), PID)
    if before.processes is now.processes and before.named == named and before.listed == device.holders:
        return before
    found = [(now.processes.get(holder.pid), holder.mig) for holder in device.holders or ()]
    served = _served(device.holders or (), now.processes)
    seats = dict.fromkeys((process.key, mig) for process, mig in found if process is not None)
    holders = tuple([seat for seat in seats if seat not in served]) if served else tuple(seats)
    hidden = sum(process is None for process, _ in found)
    whole = {seat[0].pid: seat for seat in holders if not seat[1]}
    busy = tuple(whole.get(pid) or _unlisted(now.processes.get(pid)) for pid in named)
    plain = len({*named} & whole.keys()) == len(named)
    return Seating(device.holders, named, now.processes, holders, hidden, busy, plain, served)


def _served(listed: Sequence[Holder], processes: Mapping[int, Process]) -> Served:
    """Who serves whom, on each instance that has clients of MPS.

    A name is no proof, but of those who are no clients the server surely bears it: if another one does, or
    may, neither is taken for it, so that nobody can have others pay by a name.
    """
    found: dict[Seat, tuple[Seat | None, ...]] = {}
    for mig in {holder.mig for holder in listed if holder.mps}:
        here = [(holder.mps, processes.get(holder.pid)) for holder in listed if holder.mig == mig]
        others = [process for mps, process in here if not mps]
        servers = [process for process in others if process is None or process.comm == MPS_SERVER]
        if len(servers) == 1 and servers[0] is not None:
            clients = [None if process is None else (process.key, mig) for mps, process in here if mps]
            found[servers[0].key, mig] = tuple(clients)
    return found


def _unlisted(process: Process | None) -> Seat | None:
    return None if process is None else (process.key, "")


def weigh(device: Device, seating: Seating) -> Weighed:
    """Weights by activity where it is known; else by MIG slices, or by presence alone."""
    holders, hidden = seating.holders, seating.hidden
    empty = device.holders == () and not device.activities
    if device.instances is not None:
        return _by_instance(device.instances, holders, hidden, empty)
    seats, busy_us, unknown = _activity(device, seating)
    present = holders if seating.plain else tuple(dict.fromkeys((*holders, *seats)))
    if len(present) == 1 and not hidden and not unknown:
        return Weighed(present, (1,), "alone", 0, present, busy_us or None)
    if seats or unknown:
        return Weighed(seats, busy_us, "activity", unknown, present, busy_us)
    by = "presence" if present else "nothing"
    return Weighed(present, [1] * len(present), by, hidden, present, None, empty)


def _activity(device: Device, seating: Seating) -> tuple[tuple[Seat, ...], list[int], int]:
    """Who was busy, for how many microseconds each, and all those together who could not be read."""
    scale = (device.activity_seconds or 0.0) * 1e6
    times = [*map(round, map(mul, column(device.activities or (), SM_RATIO), repeat(scale)))]
    if seating.plain and 0 not in times:
        return cast(tuple[Seat, ...], seating.busy), times, 0
    busy: dict[Seat, int] = {}
    unknown = 0
    worked: Iterable[tuple[Seat | None, int]] = zip(seating.busy, times, strict=True)
    for seat, busy_us in _for_clients(worked, seating.served) if seating.served else worked:
        if seat is None:
            unknown += busy_us
        elif busy_us:
            busy[seat] = busy.get(seat, 0) + busy_us
    return tuple(busy), list(busy.values()), unknown


def _for_clients(
    worked: Iterable[tuple[Seat | None, int]], served: Served
) -> Iterator[tuple[Seat | None, int]]:
    """For whom each was busy: a server for all its clients alike, anybody else for itself."""
    for seat, busy_us in worked:
        clients = served.get(seat, (seat,)) if seat else (seat,)
        yield from zip(clients, apportion(busy_us, [1] * len(clients))[0], strict=True)


def _by_instance(
    instances: tuple[Instance, ...], holders: tuple[Seat, ...], hidden: int, empty: bool
) -> Weighed:
    """An instance weighs its activity x its slices, or its slices alone; its processes share that equally."""
    if len(holders) == 1 and not hidden:
        return Weighed(holders, (1,), "alone", 0, holders)
    members: dict[str, list[Seat]] = {}
    for seat in holders:
        members.setdefault(seat[1], []).append(seat)
    slices = {i.uuid: i.slices or 1 for i in instances}
    active = {i.uuid: i.utilization_ratio for i in instances}
    known = all(active.get(mig) is not None for mig in members) and any(active.get(mig) for mig in members)
    weights = {
        seat: round(1e6 * slices.get(mig, 1) * ((active[mig] or 0.0) if known else 1.0) / len(seats))
        for mig, seats in members.items()
        for seat in seats
    }
    weights = {seat: weight for seat, weight in weights.items() if weight}
    by = "instance" if weights else "nothing"
    return Weighed(tuple(weights), list(weights.values()), by, hidden, holders, None, empty)
