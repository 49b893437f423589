"""Allocations as grants: whose the ids are, and which GPUs they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gputally.model import Claimed, Device, Grant, Owner
from gputally.owners.device_ids import DeviceId, Inventory, Target, parse, parse_dra
from gputally.owners.names import PodNames
from gputally.owners.podresources import Allocation, PodResources

NOWHERE = Target("")


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

    def read(
        self, devices: Sequence[Device], users: Collection[tuple[Owner, str]]
    ) -> tuple[Grant, ...] | None:
        """What is granted now; `users` are those whose processes are on a GPU, with its uuid."""
        allocations = self._resources.allocations
        if allocations is None:
            return None
        inventory = Inventory(devices)
        claims = [claim for allocation in allocations for claim in self._claims(allocation, inventory)]
        kept = [claim for claim in claims if not self._is_outdone(claim, claims, users)]
        return tuple(dict.fromkeys(Grant(c.owner, c.target.uuid, c.target.mig, c.claimed) for c in kept))

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

    def _is_outdone(
        self, claim: _Claim, claims: Sequence[_Claim], users: Collection[tuple[Owner, str]]
    ) -> bool:
        """Kubelets before 1.34 list pods that ended: of two with one device, the one on it is right."""
        if not claim.exclusive:
            return False
        rivals = [c for c in claims if c.id == claim.id and c.owner != claim.owner]
        if not rivals:
            return False
        self._count("grant_conflict", claim.id)
        return _standing(claim, users, self._names) < max(_standing(c, users, self._names) for c in rivals)

    def _count(self, reason: str, text: str) -> None:
        if (reason, text) not in self._counted and len(self._counted) < 10_000:
            self._counted.add((reason, text))
            self._losses[reason] += 1


def _standing(claim: _Claim, users: Collection[tuple[Owner, str]], names: PodNames) -> tuple[bool, bool]:
    """How well a claim is borne out: by a process on the device, by a pod that somebody knows."""
    owner = claim.owner
    return (owner, claim.target.uuid) in users, names.pod(owner.namespace, owner.pod) is not None
