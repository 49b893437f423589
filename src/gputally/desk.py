"""Desks: what those on a GPU are charged is added up there, and filed when their accounts are wanted."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from operator import add

from gputally.accounts import Account, Amounts, Books, NamespaceKey, Namespaces, of_namespace
from gputally.columns import picker
from gputally.model import UNKNOWN, Owner, ProcessKey
from gputally.shares import Charge


class Desks:
    """All desks: of each GPU one for charges of its idle energy and one for others."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._desks: dict[tuple[str, bool], Desk] = {}

    @property
    def all(self) -> tuple[Desk, ...]:
        """As they are now."""
        return tuple(self._desks.values())

    @property
    def overlap(self) -> bool:
        """Whether somebody may sit at two of them."""
        return any(idle for _, idle in self._desks)

    def post(self, charge: Charge, owners: Mapping[ProcessKey, Owner], now: float) -> bool:
        """Post to everybody; False, and nothing is done, if somebody cannot be posted to as he is."""
        which = (charge.uuid, charge.idle_uj is not None)
        desk = self._desks.get(which)
        if desk is None or not desk.is_for(charge, owners):
            if desk is not None:
                self._desks.pop(which).file(self._books)
            desk = _open(charge, owners, self._books, now)
            if desk is None:
                return False
            self._desks[which] = desk
        desk.post(charge, self._books.namespaces, now)
        return True

    def turn_page(self) -> None:
        """What comes from now on is of the next Tally."""
        for desk in self._desks.values():
            desk.turn_page()

    def file(self) -> None:
        """Put all that lies there down in the accounts."""
        for desk in self._desks.values():
            desk.file(self._books)

    def close(self) -> None:
        """Put all down, and let everybody sit down anew."""
        self.file()
        self._desks.clear()


class Desk:
    """Charges of the same seats on a GPU, added up since they were last filed; numbers are by account.

    Lists are never changed, only replaced, so that what was shown can be kept as it was.
    """

    def __init__(
        self,
        charge: Charge,
        owners: Mapping[ProcessKey, Owner],
        accounts: Sequence[Account],
        namespaces: Sequence[NamespaceKey],
        opened_at: float,
    ) -> None:
        """Accounts and namespaces are those of each seat."""
        self._seats, self._owners = charge.seats, owners
        self._told = charge.busy_us is not None
        self._posted_at = opened_at
        seats = _grouped(accounts)
        self.accounts = [accounts[places[0]] for places in seats]
        self._seats_of = None if len(seats) == len(accounts) else [picker(places) for places in seats]
        """Of each account, where several have one."""
        self._namespaces = [(namespaces[places[0]], picker(places)) for places in _grouped(namespaces)]
        self.energy_uj: list[int]
        self.estimated_uj: list[int]
        self.idle_uj: list[int]
        self.busy_us: list[int]
        self._clear()

    def is_for(self, charge: Charge, owners: Mapping[ProcessKey, Owner]) -> bool:
        """Whether the charge is of the same seats, they of the same owners, and as much is told of them."""
        same = self._owners is owners and self._seats == charge.seats
        return same and self._told is (charge.busy_us is not None)

    def post(self, charge: Charge, namespaces: Namespaces, now: float) -> None:
        """Add for everybody, and post to each namespace the sum of its seats."""
        energy, idle, busy = charge.energy_uj, charge.idle_uj, charge.busy_us
        self._posted_at = now
        self.energy_uj = self._added(self.energy_uj, energy)
        if charge.divided:
            self.estimated_uj = self._added(self.estimated_uj, energy)
        if idle is not None:
            self.idle_uj = self._added(self.idle_uj, idle)
        if busy is not None:
            self.busy_us = self._added(self.busy_us, busy)
        for namespace, pick in self._namespaces:
            amounts = Amounts(
                energy_uj := sum(pick(energy)),
                energy_uj if charge.divided else 0,
                0 if idle is None else sum(pick(idle)),
                None if busy is None else sum(pick(busy)),
            )
            namespaces.post(namespace, amounts, now)

    def turn_page(self) -> None:
        """What comes from now on is of the next Tally."""
        self.shown_us, self._shown_uj = self.busy_us, (self.energy_uj, self.idle_uj)

    def file(self, books: Books) -> None:
        """Put it all down in the accounts."""
        columns = (self.energy_uj, self.estimated_uj, self.idle_uj, self.busy_us)
        shown = (self.shown_us, *self._shown_uj)
        for account, amounts, before in zip(
            self.accounts, zip(*columns, strict=True), zip(*shown, strict=True), strict=True
        ):
            energy, estimated, idle, busy = amounts
            account.seen_at = self._posted_at
            account.window_us += busy - before[0]
            account.window_uj += energy + idle - before[1] - before[2]
            account.totals.count(energy, estimated, idle, busy if self._told else None)
        books.changes += 1
        self._clear()

    def _added(self, before: list[int], by_seat: Sequence[int]) -> list[int]:
        more = by_seat if self._seats_of is None else [sum(pick(by_seat)) for pick in self._seats_of]
        return [*map(add, before, more)]

    def _clear(self) -> None:
        nothing = [0] * len(self.accounts)
        self.energy_uj = self.estimated_uj = self.idle_uj = self.busy_us = nothing
        self.turn_page()


def _open(charge: Charge, owners: Mapping[ProcessKey, Owner], books: Books, now: float) -> Desk | None:
    """A desk for a charge; None if somebody has no account that can be posted to as it is."""
    places = [(owners.get(key, UNKNOWN), charge.uuid, mig) for key, mig in charge.seats]
    accounts = [books.work.get(place) for place in places]
    found = [account for account in accounts if account is not None and account.held is None]
    if len(found) < len(places) or any(owner is UNKNOWN for owner, _, _ in places):
        return None
    if charge.busy_us is not None:
        for account in found:
            account.totals.busy_us = account.totals.busy_us or 0
    return Desk(charge, owners, found, [*map(of_namespace, places)], now)


def _grouped(things: Sequence[Hashable]) -> list[list[int]]:
    """Where each of them stands, which may be in several places."""
    places: dict[Hashable, list[int]] = {}
    for place, thing in enumerate(things):
        places.setdefault(thing, []).append(place)
    return [*places.values()]
