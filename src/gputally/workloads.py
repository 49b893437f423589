"""What a Tally says of workloads: who is there now, and what each used so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress, repeat
from operator import add, sub, truediv
from typing import Any, NamedTuple, cast

from gputally.accounts import Account, Books, Place
from gputally.columns import Columns, picker
from gputally.desk import Desk
from gputally.model import UNKNOWN, Device, Owner, Snapshot
from gputally.tally import Workload


class Presence(NamedTuple):
    """The processes of a workload that hold a context."""

    processes: int = 0
    memory_used_bytes: int | None = None
    started_at: float | None = None
    """When the oldest of them started."""


ABSENT = Presence()


class _Sheet(NamedTuple):
    """What is said of workloads, true until somebody comes, goes, changes his memory or is posted to."""

    kept: list[Account]
    """All accounts, those of GPUs that are not there among them."""
    indexes: Mapping[str, int]
    fresh: tuple[str, ...]
    there: Mapping[Place, Presence]
    desks: tuple[Desk, ...]
    changes: int
    who: tuple[Sequence[Any], ...]
    """By column: owner, GPU, uuid, MIG instance, whether it is active, processes, memory."""
    started_at: Sequence[float | None]
    totals: tuple[Sequence[Any], ...]
    """By column, without what lies on desks: energy, the estimated part of it, idle energy, busy time."""
    pick: Callable[[Sequence[int]], Sequence[int]]
    """Brings what lies on the desks, and a zero for all others, into the order of the rows."""
    present: list[Account]
    """Those of the accounts whose workload is there."""
    absent: list[tuple[Place, Account]]
    seen_on: list[str]
    """The GPU on which each could be seen busy; empty for one that is not there."""
    untold: set[str]
    """GPUs that did not tell how busy somebody was."""

    def moved(self, column: str) -> Sequence[int]:
        """What lies on the desks, by row."""
        return self.pick([*chain.from_iterable([getattr(desk, column) for desk in self.desks]), 0])


class Roster:
    """Who holds a context where; worked out anew only when somebody came, went or changed his memory."""

    def __init__(self) -> None:
        self._held: Mapping[str, Any] | None = None
        self._processes: Any = None
        self._owners: Any = None
        self._there: dict[Place, Presence] = {}
        self._sheet: _Sheet | None = None
        self._told_at = 0.0
        self._windows_us: Sequence[int] | None = None
        """Busy time of each row since the Tally before that was posted past the desks; None for none."""

    def read(self, snapshot: Snapshot, fresh: Mapping[str, Device]) -> Mapping[Place, Presence]:
        """Presence of each workload on a GPU that answers."""
        held = {uuid: device.holders for uuid, device in fresh.items()}
        # A snapshot has other mappings as soon as anybody in them is another one.
        same = snapshot.processes is self._processes and snapshot.owners is self._owners
        if not same or held != self._held:
            self._held, self._processes, self._owners = held, snapshot.processes, snapshot.owners
            self._there = presence(snapshot, fresh)
        return self._there

    def workloads(
        self,
        books: Books,
        desks: tuple[Desk, ...],
        snapshot: Snapshot,
        fresh: Mapping[str, Device],
        idle_told: bool,
    ) -> Sequence[Workload]:
        """One row per account on a GPU that is there; of one that hangs, totals only."""
        sheet = self._laid(books, desks, snapshot, fresh)
        self._told_at = snapshot.monotonic
        for place, account in books.newborn.items():
            account.shown |= place[1] in sheet.indexes
        energy, estimated, idle, busy = sheet.totals
        busy_now = sheet.moved("busy_us")
        columns = (
            *sheet.who,
            self._ratios(sheet, books, busy_now),
            _sums(busy, busy_now),
            _sums(energy, sheet.moved("energy_uj")),
            _sums(estimated, sheet.moved("estimated_uj")),
            _sums(idle, sheet.moved("idle_uj")) if idle_told else [None] * len(idle),
            sheet.started_at,
        )
        return Columns(Workload, columns)

    def absent(self) -> Sequence[tuple[Place, Account]]:
        """Accounts of those who were not there at the newest Tally."""
        return () if self._sheet is None else self._sheet.absent

    def _laid(
        self, books: Books, desks: tuple[Desk, ...], snapshot: Snapshot, fresh: Mapping[str, Device]
    ) -> _Sheet:
        indexes = {device.uuid: device.index for device in snapshot.devices}
        known, kept = self._sheet, list(books.work.values())
        self._windows_us = None
        if (
            known is not None
            and known.there is self._there
            and (known.desks, known.changes) == (desks, books.changes)
            and not any(_tells(fresh, uuid) for uuid in known.untold)
            and (known.kept, known.indexes, known.fresh) == (kept, indexes, tuple(fresh))
        ):
            return known
        for account in known.present if known is not None else ():
            account.seen_at = max(account.seen_at, self._told_at)
        sheet = self._sheet = _lay(books, desks, indexes, fresh, self._there)
        self._windows_us = [books.work[place].window_us for place in _shown(books, indexes)]
        return sheet

    def _ratios(self, sheet: _Sheet, books: Books, busy_us: Sequence[int]) -> Sequence[float | None]:
        """Part of the time since the Tally before in which each was seen busy."""
        lasted_us = {uuid: account.window_seconds * 1e6 for uuid, account in books.gpus.items()}
        windows = [*map(lasted_us.get, sheet.seen_on, repeat(0.0))]
        seen: Iterable[int] = map(sub, busy_us, sheet.moved("shown_us"))
        if self._windows_us is not None:
            seen = map(add, seen, self._windows_us)
        if 0.0 not in windows:
            return [*map(min, repeat(1.0), map(truediv, seen, windows))]
        return [
            min(1.0, us / window) if window > 0 else None for us, window in zip(seen, windows, strict=True)
        ]


def _lay(
    books: Books,
    desks: tuple[Desk, ...],
    indexes: Mapping[str, int],
    fresh: Mapping[str, Device],
    there: Mapping[Place, Presence],
) -> _Sheet:
    shown = _shown(books, indexes)
    found = [there.get(place, ABSENT) for place in shown]
    uuids = [uuid for _, uuid, _ in shown]
    active = [one.processes > 0 for one in found]
    owners = [owner for owner, _, _ in shown]
    listed = {uuid for uuid, device in fresh.items() if device.holders is not None}
    who = (
        owners,
        [indexes[uuid] for uuid in uuids],
        uuids,
        [mig for _, _, mig in shown],
        [here if uuid in listed else None for uuid, here in zip(uuids, active, strict=True)],
        [one.processes or None for one in found],
        [one.memory_used_bytes for one in found],
    )
    accounts = [books.work[place] for place in shown]
    places = {id(account): n for n, account in enumerate(chain.from_iterable(d.accounts for d in desks))}
    present = list(compress(accounts, active))
    seated = {id(account) for account in present}
    totals = _totals(owners, accounts, uuids, fresh)
    return _Sheet(
        list(books.work.values()),
        indexes,
        tuple(fresh),
        there,
        desks,
        books.changes,
        who,
        [one.started_at for one in found],
        totals,
        picker([places.get(id(account), len(places)) for account in accounts]),
        present,
        [(place, account) for place, account in books.work.items() if id(account) not in seated],
        [uuid if here else "" for uuid, here in zip(uuids, active, strict=True)],
        {uuid for uuid, busy_us in zip(uuids, totals[-1], strict=True) if busy_us is None},
    )


def _shown(books: Books, indexes: Mapping[str, int]) -> list[Place]:
    return [place for place in books.work if place[1] in indexes]


def _totals(
    owners: Sequence[Owner], accounts: Sequence[Account], uuids: Sequence[str], fresh: Mapping[str, Device]
) -> tuple[Sequence[Any], ...]:
    for account, uuid in zip(accounts, uuids, strict=True):
        total = account.totals
        if total.busy_us is None and _tells(fresh, uuid):
            total.busy_us = 0  # it could have been seen busy, and was not
    totals = [account.totals for account in accounts]
    # Energy of those who could not be read is told of the GPU, with the reason.
    unread = [owner is UNKNOWN for owner in owners]
    return (
        [None if not_read else total.energy_uj for total, not_read in zip(totals, unread, strict=True)],
        [None if not_read else total.estimated_uj for total, not_read in zip(totals, unread, strict=True)],
        [total.idle_uj for total in totals],
        [total.busy_us for total in totals],
    )


def _tells(fresh: Mapping[str, Device], uuid: str) -> bool:
    """Whether the GPU tells how busy each process is."""
    return uuid in fresh and fresh[uuid].activities is not None


def _sums(filed: Sequence[int | None], moved: Sequence[int]) -> Sequence[int | None]:
    """What is filed and what lies on the desks; nothing where nothing is told."""
    if None not in filed:
        return [*map(add, cast(Sequence[int], filed), moved)]
    return [None if one is None else one + more for one, more in zip(filed, moved, strict=True)]


def presence(snapshot: Snapshot, fresh: Mapping[str, Device]) -> dict[Place, Presence]:
    """Who holds a context where."""
    found: dict[Place, Presence] = {}
    processes, owners = snapshot.processes, snapshot.owners
    for uuid, device in fresh.items():
        for pid, memory, mig, _ in device.holders or ():
            process = processes.get(pid)
            owner = UNKNOWN if process is None else owners[process.key]
            one = Presence(1, memory, None if process is None else process.started_at)
            place = (owner, uuid, mig)
            before = found.get(place)
            found[place] = one if before is None else _together(before, one)
    return found


def _together(one: Presence, other: Presence) -> Presence:
    memories = [p.memory_used_bytes for p in (one, other) if p.memory_used_bytes is not None]
    starts = [p.started_at for p in (one, other) if p.started_at is not None]
    return Presence(
        one.processes + other.processes, sum(memories) if memories else None, min(starts, default=None)
    )
