"""Whose a process is by its cgroup alone: a container, machine, job, unit, user or the host."""

from __future__ import annotations

from collections.abc import Callable

from gputally.model import UNKNOWN, Owner, Process
from gputally.owners.cgroup import parse
from gputally.owners.identity import SHORT, Identity

Identify = Callable[[str], Identity]
"""What the cgroup text of a process stands for."""


class CgroupOwner:
    """Takes the kernel's word; names are for those who come after."""

    name = "cgroup"

    def __init__(self, identify: Identify = parse) -> None:
        self._identify = identify

    def refine(self, process: Process, owner: Owner) -> Owner:
        """Who it is, under the best name the path itself has."""
        return owner_of(self._identify(process.cgroup), process.comm)


def owner_of(identity: Identity, comm: str) -> Owner:
    """The owner that an identity stands for; a monitor is the host's own business, unless a user made it."""
    if identity.conflict:
        return UNKNOWN
    if identity.within is not None:
        return inside(identity, identity.within)
    if identity.kind == "host" or (identity.role == "monitor" and identity.kind != "user"):
        return Owner("host", workload=comm)
    if identity.kind == "pod":
        return Owner(
            "pod", pod=identity.pod_uid or "", container="" if identity.pod_uid else _short(identity)
        )
    return Owner(identity.kind, container=_container(identity), workload=_workload(identity))


def inside(identity: Identity, container: str) -> Owner:
    """A pod of another kubelet, or of a forger, under who is around it: in no dialect is it a pod of ours."""
    kind, _, name = container.partition(":")
    around = f"{kind}/{name[:SHORT]}"
    return Owner("pod", pod=f"{around}/{identity.pod_uid or ''}", workload=around)


def user(uid: int | None) -> str:
    """A user by number: what /etc/passwd says in a container is not what the host's says."""
    return "" if uid is None else f"uid-{uid}"


def qualified(identity: Identity, name: str) -> str:
    """A name that a user chose stands under that user, so that it can be taken for nobody else's."""
    return f"{user(identity.uid)}/{name}" if identity.rootless else name


def _short(identity: Identity) -> str:
    return (identity.container_id or "")[:SHORT]


def _container(identity: Identity) -> str:
    if identity.kind in ("lxc", "nspawn"):
        return identity.machine or ""
    return identity.task or _short(identity)


def _workload(identity: Identity) -> str:
    """The name of the top owner, as far as the path tells it."""
    if identity.kind == "user":
        service = identity.unit if (identity.unit or "").endswith(".service") else None
        manager = f"user@{identity.uid}.service"
        return f"{user(identity.uid)}/{service}" if service not in (None, manager) else user(identity.uid)
    if identity.kind == "slurm":
        return identity.job_id or identity.sluid or ""
    short = _short(identity)
    known = (identity.machine, identity.job_id if not short else None, identity.alloc_id, identity.task_id)
    name = next((name for name in known if name), None) or short
    if identity.kind == "systemd":
        name = identity.unit or ""
    return qualified(identity, name or identity.kind)
