"""Pods as those who name them know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

MIRROR = "kubernetes.io/config.mirror"
HASH = "kubernetes.io/config.hash"
STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Reference:
    """Who controls a pod."""

    kind: str
    name: str


@dataclass(frozen=True)
class Pod:
    """One pod."""

    uid: str
    namespace: str
    name: str
    containers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Container id -> name."""
    owner: Reference | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    over: bool = False
    """It ended, and holds nothing any more."""
    created_at: float | None = None
    """Unix time."""
    cut: tuple[tuple[str, str], ...] = ()
    """Beginnings of container ids, each with the name, where the whole id is not known."""

    def container(self, number: str) -> str | None:
        """The name of a container by its id, or by the beginnings of ids if they tell but one."""
        if number in self.containers:
            return self.containers[number]
        names = {name for beginning, name in self.cut if number.startswith(beginning)}
        return names.pop() if len(names) == 1 else None

    @property
    def alias(self) -> str:
        """The uid that the kubelet knows a static pod by, where the API server gave it another."""
        return self.annotations.get(HASH, "") if MIRROR in self.annotations else ""


@dataclass(frozen=True, eq=False)
class Pods:
    """All that one party knows, and three ways to find it; another one whenever that changes."""

    by_uid: Mapping[str, Pod] = field(default_factory=dict)
    by_container: Mapping[str, Pod] = field(default_factory=dict)
    by_name: Mapping[tuple[str, str], Pod] = field(default_factory=dict)

    @staticmethod
    def of(pods: Iterable[Pod]) -> Pods:
        """An index of these; of two pods with one name the one that still runs."""
        found = list(pods)
        living = sorted(found, key=lambda pod: not pod.over, reverse=False)
        return Pods(
            {pod.uid: pod for pod in found},
            {container: pod for pod in found for container in pod.containers},
            {(pod.namespace, pod.name): pod for pod in living},
        )

    def renewed(self, pods: Iterable[Pod]) -> Pods:
        """An index of these; the same one where these are what it has, and so each pod that is as before."""
        found = {pod.uid: self._as_before(pod) for pod in pods}
        is_same = found.keys() == self.by_uid.keys() and all(map(self._has, found.values()))
        return self if is_same else Pods.of(found.values())

    def changed(self, pod: Pod, *, gone: bool = False) -> Pods:
        """The index after one pod came, is another, or is gone."""
        pods = {**self.by_uid, pod.uid: pod}
        if gone:
            del pods[pod.uid]
        return self.renewed(pods.values())

    def _as_before(self, pod: Pod) -> Pod:
        """The pod that is here already if it says the same, so that nobody keeps both."""
        before = self.by_uid.get(pod.uid)
        return before if before == pod else pod

    def _has(self, pod: Pod) -> bool:
        return self.by_uid.get(pod.uid) is pod


def from_object(item: Mapping[str, Any]) -> Pod:
    """A pod from the fields of a v1.Pod, however they were sent; wrong types are a ValueError."""
    try:
        meta, status = item.get("metadata") or {}, item.get("status") or {}
        return Pod(
            uid=str(meta.get("uid", "")),
            namespace=str(meta.get("namespace", "")),
            name=str(meta.get("name", "")),
            containers=dict(_containers(status)),
            owner=_controller(meta.get("ownerReferences") or ()),
            labels=_texts(meta.get("labels")),
            annotations=_texts(meta.get("annotations")),
            over=status.get("phase") in OVER,
            created_at=_moment(meta.get("creationTimestamp")),
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a pod: {error}") from None


def _containers(status: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for kind in STATUSES:
        for container in status.get(kind) or ():
            _, _, number = str(container.get("containerID") or "").partition("://")
            if number:
                yield number, str(container.get("name", ""))


def _controller(references: Iterable[Mapping[str, Any]]) -> Reference | None:
    for reference in references:
        if reference.get("controller"):
            return Reference(str(reference.get("kind", "")), str(reference.get("name", "")))
    return None


def _moment(told: Any) -> float | None:
    """Unix time, from JSON's text or from protobuf's seconds."""
    if isinstance(told, Mapping):
        return told.get("seconds") or None
    try:
        return datetime.fromisoformat(told).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _texts(entries: Any) -> dict[str, str]:
    """A map of strings, from JSON or from protobuf's list of pairs."""
    if isinstance(entries, list):
        return {entry["key"]: entry["value"] for entry in entries}
    return {str(key): str(value) for key, value in (entries or {}).items()}
