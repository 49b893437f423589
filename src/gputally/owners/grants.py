"""Allocations as grants: whose the ids are, and which GPUs they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from gputally.model import Claimed, Device, Grant, Owner
from gputally.owners.device_ids import DeviceId, Inventory, Target, marks, parse, parse_dra
from gputally.owners.names import PodNames
from gputally.owners.podresources import Allocation, PodResources

NOWHERE = Target("")
Users = Callable[[], Collection[tuple[Owner, str]]]
"""Those whose processes are on a GPU, with its uuid; asked only where two claim one device."""


@dataclass(frozen=True)
class _Claim:
    """An id that somebody says is theirs."""

    owner: Owner
    target: Target
    id: str
    exclusive: bool
    claimed: Claimed | None = None


class Grants:
    """Reads the newest allocations; counts what it cannot understand, each id once."""

    def __init__(self, resources: PodResources, names: PodNames) -> None:
        self._resources = resources
        self._names = names
        self._counted: set[tuple[str, str]] = set()
        self._losses: Counter[str] = Counter()
        self._grounds: tuple[object, ...] | None = None
        """What the newest grants follow from; None where also from who is on the GPUs."""
        self._grants: tuple[Grant, ...] | None = None

    def read(self, devices: Sequence[Device], users: Users) -> tuple[Grant, ...] | None:
        """What is granted now: the same object until that changes."""
        allocations = self._resources.allocations
        if allocations is None:
            return None
        grounds = (allocations, marks(devices), self._names.state)
        if grounds != self._grounds:
            inventory = Inventory(devices)
            claims = [claim for allocation in allocations for claim in self._claims(allocation, inventory)]
            contested = _contested(claims)
            kept = [c for c in claims if not self._is_outdone(c, contested.get(c.id, ()), users)]
            grants = dict.fromkeys(Grant(c.owner, c.target.uuid, c.target.mig, c.claimed) for c in kept)
            self._grants, self._grounds = tuple(grants), None if contested else grounds
        return self._grants

    def losses(self) -> Counter[str]:
        """What could not be understood since the question before."""
        losses, self._losses = self._losses, Counter()
        return losses

    def _claims(self, allocation: Allocation, inventory: Inventory) -> Iterator[_Claim]:
        owner, over = self._names.by_name(allocation.namespace, allocation.pod, allocation.container)
        if over:
            return
        forms: list[tuple[str, DeviceId | None, Claimed | None]]
        forms = [(text, parse(text), None) for text in allocation.ids]
        forms += [(by.device, parse_dra(by.device), by) for by in allocation.claimed]
        for text, form, claimed in forms:
            target = None if form is None else form.means(inventory)
            if target is None:
                self._count("device_id_form" if form is None else "device_id_unknown", text)
            yield _Claim(owner, target or NOWHERE, text, form is not None and form.exclusive, claimed)

    def _is_outdone(self, claim: _Claim, claims: Sequence[_Claim], users: Users) -> bool:
        """Kubelets before 1.34 list pods that ended: of two with one device, the one on it is right."""
        rivals = [c for c in claims if c.owner != claim.owner]
        if not rivals:
            return False
        self._count("grant_conflict", claim.id)
        there = users()
        return _standing(claim, there, self._names) < max(_standing(c, there, self._names) for c in rivals)

    def _count(self, reason: str, text: str) -> None:
        if (reason, text) not in self._counted and len(self._counted) < 10_000:
            self._counted.add((reason, text))
            self._losses[reason] += 1


def _contested(claims: Sequence[_Claim]) -> dict[str, list[_Claim]]:
    """Claims of ids that only one may have and several claim."""
    by_id: dict[str, list[_Claim]] = {}
    for claim in claims:
        if claim.exclusive:
            by_id.setdefault(claim.id, []).append(claim)
    return {text: of_it for text, of_it in by_id.items() if len({claim.owner for claim in of_it}) > 1}


def _standing(claim: _Claim, users: Collection[tuple[Owner, str]], names: PodNames) -> tuple[bool, bool]:
    """How well a claim is borne out: by a process on the device, by a pod that somebody knows."""
    owner = claim.owner
    return (owner, claim.target.uuid) in users, names.pod(owner.namespace, owner.pod) is not None
