"""What a Tally says of workloads: who is there now, and what each used so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress, repeat
from typing import Any, NamedTuple

from gputally.accounts import Account, Amounts, Books, Place
from gputally.model import UNKNOWN, Device, Snapshot
from gputally.tally import Workload


class Presence(NamedTuple):
    """The processes of a workload that hold a context."""

    processes: int = 0
    memory_used_bytes: int | None = None
    started_at: float | None = None
    """When the oldest of them started."""


ABSENT = Presence()
_row = partial(tuple.__new__, Workload)
"""A row from its fields, without the cost of a constructor."""


class _Sheet(NamedTuple):
    """What is said of workloads and is true until somebody comes, goes or changes his memory: by column."""

    kept: list[Account]
    """All accounts, those of GPUs that are not there among them."""
    indexes: Mapping[str, int]
    fresh: tuple[str, ...]
    there: Mapping[Place, Presence]
    accounts: list[Account]
    who: tuple[Sequence[Any], ...]
    """Owner, GPU, uuid, MIG instance, whether it is active, processes, memory."""
    started_at: Sequence[float | None]
    present: list[Account]
    """Those of the accounts whose workload is there."""
    seen_on: list[str]
    """The GPU on which each could be seen busy; empty for one that is not there."""


class Roster:
    """Who holds a context where; worked out anew only when somebody came, went or changed his memory."""

    def __init__(self) -> None:
        self._held: Mapping[str, Any] | None = None
        self._processes: Any = None
        self._owners: Any = None
        self._there: dict[Place, Presence] = {}
        self._sheet: _Sheet | None = None

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
        self, books: Books, snapshot: Snapshot, fresh: Mapping[str, Device], idle_told: bool
    ) -> tuple[Workload, ...]:
        """One row per account on a GPU that is there; of one that hangs, totals only."""
        sheet = self._sheet = self._laid(books, snapshot, fresh)
        for place, account in books.newborn.items():
            account.shown |= place[1] in sheet.indexes
        for account in sheet.present:
            account.seen_at = snapshot.monotonic
        totals = [account.totals for account in sheet.accounts]
        columns = (
            *sheet.who,
            _ratios(sheet, books),
            _busy_times(totals, sheet.who[2], fresh),
            [total.energy_uj for total in totals],
            [total.estimated_uj for total in totals],
            [total.idle_uj for total in totals] if idle_told else repeat(None),
            sheet.started_at,
        )
        rows = tuple(map(_row, zip(*columns, strict=False)))
        return tuple(map(_without_energy, rows)) if UNKNOWN in sheet.who[0] else rows

    def _laid(self, books: Books, snapshot: Snapshot, fresh: Mapping[str, Device]) -> _Sheet:
        indexes = {device.uuid: device.index for device in snapshot.devices}
        known, kept = self._sheet, list(books.work.values())
        if (
            known is not None
            and known.there is self._there
            and (known.kept, known.indexes, known.fresh) == (kept, indexes, tuple(fresh))
        ):
            return known
        return _lay(books, indexes, fresh, self._there)


def _lay(
    books: Books, indexes: Mapping[str, int], fresh: Mapping[str, Device], there: Mapping[Place, Presence]
) -> _Sheet:
    shown = [place for place in books.work if place[1] in indexes]
    found = [there.get(place, ABSENT) for place in shown]
    uuids = [uuid for _, uuid, _ in shown]
    active = [one.processes > 0 for one in found]
    who = (
        [owner for owner, _, _ in shown],
        [indexes[uuid] for uuid in uuids],
        uuids,
        [mig for _, _, mig in shown],
        [here if uuid in fresh else None for uuid, here in zip(uuids, active, strict=True)],
        [one.processes or None for one in found],
        [one.memory_used_bytes for one in found],
    )
    accounts = [books.work[place] for place in shown]
    return _Sheet(
        list(books.work.values()),
        indexes,
        tuple(fresh),
        there,
        accounts,
        who,
        [one.started_at for one in found],
        list(compress(accounts, active)),
        [uuid if here else "" for uuid, here in zip(uuids, active, strict=True)],
    )


def _ratios(sheet: _Sheet, books: Books) -> list[float | None]:
    """Part of the time since the Tally before in which each was seen busy."""
    windows_us = {uuid: account.window_seconds * 1e6 for uuid, account in books.gpus.items()}
    windows = map(windows_us.get, sheet.seen_on, repeat(0.0))
    return [
        min(1.0, account.window_us / window) if window > 0 else None
        for account, window in zip(sheet.accounts, windows, strict=True)
    ]


def _busy_times(
    totals: Sequence[Amounts], uuids: Sequence[str], fresh: Mapping[str, Device]
) -> list[int | None]:
    times = [total.busy_us for total in totals]
    if None not in times:
        return times
    for total, uuid in zip(totals, uuids, strict=True):
        if total.busy_us is None and uuid in fresh and fresh[uuid].activities is not None:
            total.busy_us = 0  # it could have been seen busy, and was not
    return [total.busy_us for total in totals]


def _without_energy(row: Workload) -> Workload:
    """Energy of those who could not be read is told of the GPU, with the reason."""
    return row._replace(energy_uj=None, estimated_uj=None) if row.owner is UNKNOWN else row


def presence(snapshot: Snapshot, fresh: Mapping[str, Device]) -> dict[Place, Presence]:
    """Who holds a context where."""
    found: dict[Place, Presence] = {}
    processes, owners = snapshot.processes, snapshot.owners
    for uuid, device in fresh.items():
        for pid, memory, mig in device.holders or ():
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
