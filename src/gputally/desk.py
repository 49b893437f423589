"""Accounts of everybody on a GPU: found once, and posted to every tick while the same sit there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputally.accounts import Account, Amounts, NamespaceKey, Namespaces, Place, of_namespace
from gputally.model import UNKNOWN, Owner, ProcessKey
from gputally.shares import Charge
from gputally.weights import Seat


class Desk(NamedTuple):
    """Where charges of some seats on a GPU go."""

    seats: tuple[Seat, ...]
    owners: Mapping[ProcessKey, Owner]
    accounts: list[Account]
    """Of each seat."""
    namespaces: dict[NamespaceKey, list[int]]
    """Which seats are of which."""

    def is_for(self, charge: Charge, owners: Mapping[ProcessKey, Owner]) -> bool:
        """Whether the charge is of the same seats, and they of the same owners."""
        return self.owners is owners and self.seats == charge.seats

    def post(self, charge: Charge, namespaces: Namespaces, now: float) -> None:
        """Post to everybody's account, and to each namespace the sum of its seats."""
        busy_us = charge.busy_us or [0] * len(charge.seats)
        idle_uj = charge.idle_uj or [0] * len(charge.seats)
        told, divided = charge.busy_us is not None, charge.divided
        for account, energy, busy, idle in zip(
            self.accounts, charge.energy_uj, busy_us, idle_uj, strict=True
        ):
            account.seen_at = now
            account.window_us += busy
            account.window_uj += energy + idle
            totals = account.totals
            totals.energy_uj += energy
            totals.idle_uj += idle
            if divided:
                totals.estimated_uj += energy
            if told:
                totals.busy_us = (totals.busy_us or 0) + busy
        for namespace, seats in self.namespaces.items():
            energy = sum([charge.energy_uj[seat] for seat in seats])
            total = Amounts(energy, energy if divided else 0, sum([idle_uj[seat] for seat in seats]))
            if told:
                total.busy_us = sum([busy_us[seat] for seat in seats])
            namespaces.post(namespace, total, now)


def find(charge: Charge, owners: Mapping[ProcessKey, Owner], work: Mapping[Place, Account]) -> Desk | None:
    """The desk for a charge; None if somebody has no account that can be posted to as it is."""
    places = [(owners.get(key, UNKNOWN), charge.uuid, mig) for key, mig in charge.seats]
    accounts = [work.get(place) for place in places]
    found = [account for account in accounts if account is not None and account.held is None]
    if len(found) < len(places) or any(owner is UNKNOWN for owner, _, _ in places):
        return None
    namespaces: dict[NamespaceKey, list[int]] = {}
    for seat, place in enumerate(places):
        namespaces.setdefault(of_namespace(place), []).append(seat)
    return Desk(charge.seats, owners, found, namespaces)
