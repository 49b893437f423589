"""The ledger: running totals and what attribution remembers; the only state of the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputally.accounts import Account, Amounts, Books, GpuAccount, Held, Place, of_namespace
from gputally.attribute import Memory, Rules, attribute
from gputally.claims import ClaimBook
from gputally.coverage import coverage
from gputally.desk import Desks
from gputally.limits import Rights
from gputally.model import PENDING, UNKNOWN, UNNAMED, Device, Holder, Owner, ProcessKey, Snapshot, State
from gputally.process_book import ProcessBook, ProcessRules
from gputally.shares import Charge, GpuShare, ProcessShare
from gputally.stays import StayBook
from gputally.tally import Gpu, Tally
from gputally.workloads import Roster

MOST_WORKLOADS = 10_000
NAME_WITHIN = 30.0
"""Seconds for which amounts wait for a name, and at most for a first scrape."""


class Ledger:
    """Posts every tick, and makes a Tally when one is wanted."""

    def __init__(
        self,
        machine: str,
        *,
        retention: float = 300.0,
        max_age: float = 15.0,
        rules: Rules | None = None,
        processes: ProcessRules | None = None,
        stays: bool = False,
        claims: bool = False,
        scraped: bool = False,
        books: Books | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._machine = machine
        self._retention = retention
        self._max_age = max_age
        self._rules = rules or Rules()
        self._scraped = scraped
        self.books = books or Books()
        self.memory: Memory = memory or {}
        self._gpus, self._work = self.books.gpus, self.books.work
        self._pending, self._namespaces = self.books.pending, self.books.namespaces
        self._met: dict[str, tuple[tuple[Holder, ...] | None, Mapping[ProcessKey, Owner]]] = {}
        self._desks = Desks(self.books)
        self._turned = 0
        """Changes of totals until the last Tally."""
        self._roster, self._rights = Roster(), Rights()
        self._book = ProcessBook(processes) if processes is not None else None
        self._stays = StayBook(retention, NAME_WITHIN, scraped) if stays else None
        self._claims = ClaimBook(self.books, retention) if claims else None
        self.faults = 0
        self.textfile_errors: int | None = None

    def post(self, snapshot: Snapshot) -> None:
        """Add what this tick brought."""
        shares, self.memory = attribute(snapshot, self.memory, self._rules)
        if snapshot.losses.samples or snapshot.losses.nvml_errors:
            self.books.samples_dropped.update(snapshot.losses.samples)
            self.books.nvml_errors.update(snapshot.losses.nvml_errors)
        self._meet(snapshot)
        for gpu in shares.gpus:
            self._post_gpu(gpu)
        for charge in shares.charges:
            self._post_charge(charge, snapshot)
        for share in shares.grants:
            place = (share.grant.owner, share.grant.uuid, share.grant.mig)
            self._post_tick(place, Amounts(idle_uj=share.idle_uj), snapshot.monotonic)
        self._name_pending(snapshot)
        self._release(lambda held: snapshot.monotonic - held.since > NAME_WITHIN, snapshot.monotonic)
        if self._book is not None:
            self._book.post(shares)
        if self._stays is not None:
            self._stays.post(shares, snapshot)

    def was_scraped(self, now: float) -> None:
        """The newest Tally was read: series that it showed at zero may grow now."""
        self._release(lambda _: True, now, shown_only=True)

    def count_dropped(self, reason: str, series: int) -> None:
        """Series that an output could not show."""
        if series:
            self.books.series_dropped[reason] += series

    def file(self) -> None:
        """Have everything in the accounts, for who looks at those."""
        self._desks.file()

    def tally(self, snapshot: Snapshot) -> Tally:
        """The totals as they are with this snapshot; averages run from the Tally before."""
        if self._claims is not None or self._desks.overlap:
            self.file()
        waiting = self.books.waiting_uj()
        gpus = tuple(self._gpu(device, snapshot, waiting[device.uuid]) for device in snapshot.devices)
        fresh = {gpu.device.uuid: gpu.device for gpu in gpus if gpu.fresh}
        indexes = {device.uuid: device.index for device in snapshot.devices}
        there = self._roster.read(snapshot, fresh)
        uses, limits = self._rights.read(snapshot, fresh, there)
        tally = Tally(
            snapshot=snapshot,
            machine=self._machine,
            gpus=gpus,
            workloads=self._roster.workloads(
                self.books, self._desks.all, snapshot, fresh, self._rules.idle_policy != "none"
            ),
            namespaces=self._namespaces.rows(indexes),
            processes=self._book.rows(snapshot, fresh) if self._book is not None else (),
            uses=uses,
            limits=limits,
            stays=self._stays.rows(snapshot, fresh) if self._stays is not None else (),
            claims=self._claims.rows(snapshot, gpus) if self._claims is not None else {},
            process_results=snapshot.process_results,
            samples_dropped=dict(self.books.samples_dropped),
            series_dropped={**self.books.series_dropped, "namespaces": self._namespaces.folded},
            nvml_errors=dict(self.books.nvml_errors),
            faults=self.faults,
            textfile_errors=self.textfile_errors,
        )
        self._turn_page(snapshot.monotonic, fresh)
        return tally

    def _meet(self, snapshot: Snapshot) -> None:
        """Open an account for everyone who holds or uses a GPU."""
        for device in snapshot.devices:
            holders, owners = self._met.get(device.uuid, (None, None))
            if owners is snapshot.owners and holders == device.holders:
                continue  # nobody came or got a name; who is active is met when posted
            self._met[device.uuid] = (device.holders, snapshot.owners)
            for pid, mig in _places(device):
                owner = _owner(snapshot, pid)
                if owner is not PENDING and owner is not UNNAMED:
                    place = (owner, device.uuid, mig)
                    account = self._work.get(place) or self._open(place, snapshot.monotonic)
                    if account is not None:
                        account.seen_at = snapshot.monotonic

    def _open(self, place: Place, now: float) -> Account | None:
        """Open an account, unless there are too many."""
        if len(self._work) >= MOST_WORKLOADS:
            self.books.series_dropped["workloads"] += 1
            return None
        account = self._work[place] = Account(now, held=Held(now) if self._scraped else None)
        if account.held is not None:
            self.books.newborn[place] = account
        self._namespaces.post(of_namespace(place), Amounts(), now)
        return account

    def _post_gpu(self, share: GpuShare) -> None:
        account = self._gpus.get(share.uuid)
        if account is None:
            account = self._gpus[share.uuid] = GpuAccount()
        used, mark = share.used, self.memory[share.uuid].meter
        if mark.energy_uj is not None or used.energy_uj or account.energy_uj is not None:
            account.energy_uj = (account.energy_uj or 0) + used.energy_uj
        account.idle_uj += share.idle_uj
        for reason, amount_uj in share.unattributed_uj.items():
            account.unattributed_uj[reason] += amount_uj
        account.discarded_uj += used.discarded_uj
        account.resets += used.resets
        account.integrated = mark.integrating
        account.idle_watts, account.idle_source = share.idle_watts, share.idle_source
        account.trust = share.trust
        account.window_seconds += share.activity_seconds or 0.0

    def _post_charge(self, charge: Charge, snapshot: Snapshot) -> None:
        """Post to everybody's account; one by one while somebody is nobody yet, or was not seen yet."""
        owners, now = snapshot.owners, snapshot.monotonic
        if not self._desks.post(charge, owners, now):
            for share in charge.each():
                self._post_process(share, owners.get(share.key, UNKNOWN), now)

    def _post_process(self, share: ProcessShare, owner: Owner, now: float) -> None:
        """Post to one of those who have no desk."""
        amounts = Amounts(share.energy_uj, share.estimated_uj, share.idle_uj, share.busy_us)
        if owner is PENDING:
            key = (share.key, share.uuid, share.mig)
            self._pending.setdefault(key, Held(now)).amounts.add(amounts)
        elif owner is UNKNOWN or owner is UNNAMED:
            self._post_nobody(owner, share.uuid, share.mig, amounts, now)
        else:
            self._post_tick((owner, share.uuid, share.mig), amounts, now)

    def _post_tick(self, place: Place, amounts: Amounts, now: float) -> None:
        """Post what belongs to this tick, and so to the part of the energy that is told of this interval."""
        account = self._post_place(place, amounts, now)
        if account is not None:
            account.window_uj += amounts.all_uj

    def _post_nobody(self, owner: Owner, uuid: str, mig: str, amounts: Amounts, now: float) -> None:
        """The energy is the GPU's own, with the reason why; of those who have a series, time is told."""
        reason = "unnamed" if owner is UNNAMED else "unknown_process"
        unattributed = self._gpus.setdefault(uuid, GpuAccount()).unattributed_uj
        unattributed[reason] += amounts.all_uj
        if owner is UNKNOWN:
            self._post_place((owner, uuid, mig), Amounts(busy_us=amounts.busy_us), now)

    def _post_place(self, place: Place, amounts: Amounts, now: float) -> Account | None:
        account = self._work.get(place) or self._open(place, now)
        if account is not None:
            self.books.changes += 1
            account.seen_at = now
            account.window_us += amounts.busy_us or 0
            if account.held is not None:
                account.held.amounts.add(amounts)
                return account
            account.totals.add(amounts)
        self._namespaces.post(of_namespace(place), amounts, now)
        return account

    def _name_pending(self, snapshot: Snapshot) -> None:
        """Post what waited for a name that has come, and give up on names that did not come in time."""
        for key, held in list(self._pending.items()):
            owner = snapshot.owners.get(key[0], PENDING)
            if owner is PENDING and snapshot.monotonic - held.since > NAME_WITHIN:
                owner = UNNAMED
            if owner is not PENDING:
                del self._pending[key]
                if owner is UNKNOWN or owner is UNNAMED:
                    self._post_nobody(owner, key[1], key[2], held.amounts, snapshot.monotonic)
                else:
                    self._post_place((owner, key[1], key[2]), held.amounts, snapshot.monotonic)

    def _release(self, when: Callable[[Held], bool], now: float, shown_only: bool = False) -> None:
        """Post what waited for its series to be seen at zero, which is what makes increase() right."""
        for place, account in list(self.books.newborn.items()):
            held = account.held
            if held is not None and (account.shown or not shown_only) and when(held):
                del self.books.newborn[place]
                account.held = None
                account.totals.add(held.amounts)
                self.books.changes += 1
                self._namespaces.post(of_namespace(place), held.amounts, now)

    def _gpu(self, device: Device, snapshot: Snapshot, pending_uj: int) -> Gpu:
        account = self._gpus.get(device.uuid) or GpuAccount()
        age = None if device.gauges_at is None else snapshot.monotonic - device.gauges_at
        fresh = device.state is State.OK and age is not None and age <= self._max_age
        return Gpu(
            device,
            fresh=fresh,
            energy_uj=account.energy_uj,
            idle_uj=account.idle_uj,
            unattributed_uj=dict(account.unattributed_uj),
            pending_uj=pending_uj,
            discarded_uj=account.discarded_uj,
            resets=account.resets,
            integrated=account.integrated,
            idle_watts=account.idle_watts,
            idle_source=account.idle_source,
            trust=account.trust,
            coverage_ratio=coverage(device, snapshot) if fresh else None,
        )

    def _turn_page(self, now: float, fresh: dict[str, Device]) -> None:
        """Begin new averages, and close accounts that nobody has used for the retention time."""
        for gpu in self._gpus.values():
            gpu.window_seconds = 0.0
        self._desks.turn_page()
        if self._turned != self.books.changes:
            self._turned = self.books.changes
            for account in self._work.values():
                account.window_us = account.window_uj = 0
        for place, account in self._roster.absent():
            device = fresh.get(place[1])
            if device is None or device.holders is None:
                account.seen_at = now  # of a GPU that does not tell who is there, nobody can say who left it
        if self._over(now):
            self.file()  # who is charged is seen, and so may not be over
        for place in self._over(now):
            self._desks.close()
            del self._work[place]

    def _over(self, now: float) -> list[Place]:
        """Accounts that nobody has used for the retention time."""
        return [
            place
            for place, account in self._roster.absent()
            if account.held is None and now - account.seen_at > self._retention
        ]


def _places(device: Device) -> list[tuple[int, str]]:
    held = {(h.pid, h.mig) for h in device.holders or ()}
    pids = {pid for pid, _ in held}
    return sorted(held | {(a.pid, "") for a in device.activities or () if a.pid not in pids})


def _owner(snapshot: Snapshot, pid: int) -> Owner:
    process = snapshot.processes.get(pid)
    return UNKNOWN if process is None else snapshot.owners[process.key]
