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
        nothing = [0] * len(charge.seats)
        estimated_uj = charge.energy_uj if charge.divided else nothing
        idle_uj, busy_us = charge.idle_uj or nothing, charge.busy_us or nothing
        told = charge.busy_us is not None
        for account, energy, estimated, idle, busy in zip(
            self.accounts, charge.energy_uj, estimated_uj, idle_uj, busy_us, strict=True
        ):
            account.seen_at = now
            account.window_us += busy
            account.window_uj += energy + idle
            account.totals.count(energy, estimated, idle, busy if told else None)
        for namespace, seats in self.namespaces.items():
            columns = (charge.energy_uj, estimated_uj, idle_uj, busy_us)
            energy, estimated, idle, busy = (sum([column[seat] for seat in seats]) for column in columns)
            namespaces.post(namespace, Amounts(energy, estimated, idle, busy if told else None), now)


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
