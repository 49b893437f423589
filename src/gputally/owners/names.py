"""Names of pods: what several parties know, put together once for the life of a container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gputally.machine import Clock
from gputally.model import PENDING, UNKNOWN, UNNAMED, Owner
from gputally.owners.host import inside
from gputally.owners.identity import Identity
from gputally.owners.inquiry import Inquiry, Party
from gputally.owners.pods import Pod, Pods
from gputally.owners.workloads import workload

NAMED_WITHIN = 30.0
"""Seconds for which a name is waited for."""
WHOLE_WITHIN = 10.0
"""Seconds for which the rest is waited for when the pod is known: its container, its workload."""
MOST_REMEMBERED = 10_000

_K = TypeVar("_K")
_T = TypeVar("_T")


class NamingParty(Party, Protocol):
    """A party that knows pods."""

    tells_workload: bool
    """It knows what a pod belongs to, not only what it is called."""
    pods: Pods


@dataclass(frozen=True)
class Source:
    """A party and how it is."""

    namer: NamingParty
    inquiry: Inquiry


@dataclass(frozen=True)
class Found:
    """What is known of a container; the best of what each party knows."""

    pod: Pod
    container: str | None
    whole: Pod | None
    """The pod as somebody tells it who knows what it belongs to."""
    uid: str

    def owner(self) -> Owner:
        """The names that tell it apart."""
        top = "" if self.whole is None else workload(self.whole)
        return Owner("pod", self.pod.namespace, self.pod.name, self.container or "", top)


class PodNames:
    """Asks the parties in order, and stays by what it said: labels are fixed when a series is born."""

    def __init__(self, clock: Clock, sources: Sequence[Source]) -> None:
        self._clock = clock
        self._sources = sources
        self._fixed: dict[tuple[str, str], Owner] = {}
        self._by_name: dict[tuple[str, str, str], Owner] = {}
        self._asked_at: dict[tuple[str, str], float] = {}
        self._births = 0

    @property
    def state(self) -> tuple[object, ...]:
        """What all answers but those of `name` follow from; equal as long as they stay the same."""
        return (self._births, *(source.namer.pods for source in self._sources))

    def name(self, identity: Identity) -> Owner:
        """Who this container is; PENDING while that may still be learnt."""
        if identity.within is not None:
            return inside(identity, identity.within)
        key = (identity.pod_uid or "", identity.container_id or "")
        if key in self._fixed:
            return self._fixed[key]
        waited = self._waited(key)
        if self._in_conflict(identity):
            return UNKNOWN
        found = self.find(identity)
        owner = self._settled(found, identity, waited) if found else self._nameless(identity, waited)
        if owner not in (PENDING, UNNAMED):
            _remember(self._fixed, key, owner)
            _remember(self._by_name, (owner.namespace, owner.pod, owner.container), owner)
            self._asked_at.pop(key, None)
            self._births += 1
        return owner

    def find(self, identity: Identity) -> Found | None:
        """What the parties know of it now; of a pod inside a container nothing, whatever its ids."""
        if identity.within is not None:
            return None
        pod: Pod | None = None
        whole: Pod | None = None
        container: str | None = None
        for source in self._sources:
            seen = _look(source.namer.pods, identity)
            if seen is None:
                continue
            pod = pod or seen
            container = seen.container(identity.container_id or "") if container is None else container
            if whole is None and source.namer.tells_workload:
                whole = seen
        if pod is None:
            return None
        # The API server's uid of a static pod is the one that other exporters know.
        uid = whole.uid if whole is not None and whole.alias else identity.pod_uid or pod.uid
        return Found(pod, container, whole, uid)

    def by_name(self, namespace: str, pod: str, container: str) -> tuple[Owner, bool]:
        """Who has these names, and whether it ended; a living one that is already named comes first."""
        whole = self._whole(namespace, pod)
        over = whole is not None and whole.over
        known = self._by_name.get((namespace, pod, container))
        if known is not None:
            return known, over
        top = "" if whole is None else workload(whole)
        return Owner("pod", namespace, pod, container, top), over

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name, as the first party knows it."""
        known = (source.namer.pods.by_name.get((namespace, name)) for source in self._sources)
        return next((pod for pod in known if pod is not None), None)

    def _whole(self, namespace: str, name: str) -> Pod | None:
        telling = (source.namer.pods for source in self._sources if source.namer.tells_workload)
        return next((p for pods in telling if (p := pods.by_name.get((namespace, name)))), None)

    def _waited(self, key: tuple[str, str]) -> float:
        now = self._clock.monotonic()
        if key not in self._asked_at:
            _remember(self._asked_at, key, now)
        return now - self._asked_at[key]

    def _settled(self, found: Found, identity: Identity, waited: float) -> Owner:
        """The owner once it is whole, or once waiting for the rest is of no use."""
        lacks_container = found.container is None and identity.container_id is not None
        telling = [source for source in self._sources if source.namer.tells_workload]
        is_coming = (lacks_container and _may_come(self._sources, WHOLE_WITHIN)) or (
            found.whole is None and _may_come(telling, WHOLE_WITHIN)
        )
        return PENDING if is_coming and waited < WHOLE_WITHIN else found.owner()

    def _nameless(self, identity: Identity, waited: float) -> Owner:
        """Nobody knows it: is there anybody who could?"""
        if waited < NAMED_WITHIN and _may_come(self._sources, NAMED_WITHIN):
            return PENDING
        if any(source.inquiry.is_up for source in self._sources):
            return UNNAMED
        return Owner("pod", pod=identity.pod_uid or identity.container_id or "")

    def _in_conflict(self, identity: Identity) -> bool:
        """The kernel says one pod, somebody else says another: believe nobody."""
        if identity.pod_uid is None or identity.container_id is None:
            return False
        known = (source.namer.pods.by_container.get(identity.container_id) for source in self._sources)
        return any(pod is not None and identity.pod_uid not in (pod.uid, pod.alias) for pod in known)


def _may_come(sources: Sequence[Source], within: float) -> bool:
    return any(source.inquiry.may_come(within) for source in sources)


def _look(pods: Pods, identity: Identity) -> Pod | None:
    """The pod by its container, else by its uid.

    An alias counts only together with a container: annotations can be forged, statuses cannot.
    """
    pod = pods.by_container.get(identity.container_id or "")
    if pod is not None or identity.pod_uid is None:
        return pod
    return pods.by_uid.get(identity.pod_uid)


def _remember(entries: dict[_K, _T], key: _K, value: _T) -> None:
    entries[key] = value
    if len(entries) > MOST_REMEMBERED:
        del entries[next(iter(entries))]
