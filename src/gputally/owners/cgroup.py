"""Reads /proc/PID/cgroup: any text in, an identity out, in linear time.

The outermost container wins, since what is below it was named by those who live in it; only a pod
beats the container around it, which is then a node (kind, minikube). Nothing under user.slice is
believed but that user's own containers, nor under a service, unless it runs others, but Podman's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gputally.owners import segments as seg
from gputally.owners.identity import Identity

MOST_TEXT = 65_536
DELETED = " (deleted)"
HOST = Identity()
MONITOR = Identity(role="monitor")
NODES = ("docker", "podman", "containerd", "container", "lxc", "nspawn")
"""Kinds of containers in which a kubelet may run."""
CONTAINERS = ("docker", "podman", "containerd", "container", "ecs", "garden", "buildkit")
USERS = (2, 3)
"""Ranks of users and their containers."""
JOBS = ("lxc", "nspawn", "vm", "slurm", "pbs", "torque", "nomad")


@dataclass(frozen=True)
class _Line:
    """One hierarchy's answer, and how much it counts where others are as good."""

    identity: Identity
    weight: tuple[int, int]


def parse(text: str, *, base: str = "", own_pod: str | None = None) -> Identity:
    """Whose a process is; `base` is the node's own cgroup, `own_pod` the uid of the pod we run in."""
    node = _split(base)[1]
    lines = [line for raw in text[:MOST_TEXT].split("\n") if (line := _line(raw, node, own_pod))]
    return _agree(lines)


def node_base(text: str) -> str:
    """The node's own cgroup by what /proc/1/cgroup says: of kind's node on cgroup v1 a container's."""
    paths = {path for raw in text[:MOST_TEXT].split("\n") if (path := _path(raw))}
    bases = {path.removesuffix("/init.scope") for path in paths if not path.startswith("/..")}
    return max(bases, key=len, default="").rstrip("/") if len(bases - {"", "/"}) == 1 else ""


def _path(raw: str) -> str | None:
    number, _, rest = raw.partition(":")
    _, colon, path = rest.partition(":")
    if not (number.isascii() and number.isdigit() and colon and path.startswith("/")):
        return None
    return path.removesuffix(DELETED)


def _line(raw: str, node: Sequence[str], own_pod: str | None) -> _Line | None:
    path = _path(raw)
    if path is None:
        return None
    up, segments = _split(path)
    if node and segments[: len(node)] == node:
        segments = segments[len(node) :]
    identity = _identify(segments, up, own_pod)
    if up:
        identity = replace(identity, relative=up)
    controllers = raw.split(":", 2)[1]
    first = 2 if not controllers else 1 if controllers.endswith("systemd") else 0
    return _Line(identity, (first, len(path)))


def _split(path: str) -> tuple[int, list[str]]:
    """Steps up at the beginning, and the folders; `a.slice:runtime:id` is two of them."""
    parts = [part for part in path.split("/") if part]
    up = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    segments: list[str] = []
    for part in parts[up:]:
        head, colon, tail = part.partition(":")
        if colon and ":" in tail and (not head or head.endswith(".slice")):
            segments += [head, tail] if head else [tail]
        else:
            segments.append(part)
    return up, segments


def _identify(segments: list[str], up: int, own_pod: str | None) -> Identity:
    if not segments:
        return HOST
    is_users = segments[0] in seg.USER_AREAS or (up and segments[0].startswith(("user-", "user@")))
    return _user(segments) if is_users else _system(segments, up, own_pod)


def _system(segments: list[str], up: int, own_pod: str | None) -> Identity:
    """Outside of user.slice: the first thing from the outside that is somebody."""
    outer: Identity | None = None
    kubepods = forged = False
    for place, segment in enumerate(segments):
        parent = segments[place - 1] if place else ""
        kubepods = kubepods or seg.is_kubepods(segment)
        is_first = place == 0 or (place == 1 and parent in seg.QOS)
        pod = seg.pod(segment, parent, kubepods, relative=up > 0 and is_first)
        if pod is not None and not forged:
            return _pod(segments, place, pod, outer)
        if outer is None:
            if seg.is_monitor(segment, parent):
                return MONITOR
            outer = _somebody(segments, place, up, own_pod)
            if outer is not None and forged and outer.kind != "podman":
                return _unit(segments)
            if outer is not None and outer.kind not in NODES:
                return _nested_job(outer, segments, place)
            forged = outer is None and (forged or seg.keeps_to_itself(segment))
    if outer is not None:
        place = _place(outer, segments)
        return _nested_job(_with_chain(outer, segments), segments, place)
    return _unit(segments)


def _pod(segments: list[str], place: int, pod: seg.PodFolder, outer: Identity | None) -> Identity:
    """A pod, with the container that is directly below it."""
    identity = Identity("pod", pod_uid=pod.uid, qos=pod.qos, within=_name(outer))
    if place + 1 == len(segments):
        return identity
    child = segments[place + 1]
    if seg.is_monitor(child, ""):
        return replace(identity, role="monitor")
    found = seg.container_of_pod(child)
    if found is None:
        return identity
    identity = replace(identity, container_id=found.id, sandbox=True if found.prefix == "kata" else None)
    return _nested_job(_with_chain(identity, segments), segments, place + 1)


def _somebody(segments: list[str], place: int, up: int, own_pod: str | None) -> Identity | None:
    """A container, machine or job that has this folder."""
    segment, parent = segments[place], segments[place - 1] if place else ""
    found = seg.container(segment, parent)
    if found is None:
        return (
            seg.other_container(segments, place) or seg.machine(segments, place) or seg.job(segments, place)
        )
    task = seg.ecs_task(segments, place)
    if task is not None:
        return Identity("ecs", container_id=found.id, task_id=task)
    if up == 1 and place == 0 and own_pod is not None and found.prefix not in ("libpod", "nerdctl"):
        return Identity("pod", pod_uid=own_pod, container_id=found.id)
    return _container(found, segments, place)


def _container(found: seg.Container, segments: list[str], place: int) -> Identity:
    kind = seg.KINDS.get(found.prefix, "container")
    parent = segments[place - 1] if place else ""
    return Identity(
        kind,
        container_id=found.id,
        podman_pod=_podman_pod(segments, place) if kind == "podman" else None,
        unit=parent if kind == "podman" and parent.endswith(".service") else None,
        sandbox=True if found.prefix == "kata" else None,
    )


def _podman_pod(segments: list[str], place: int) -> str | None:
    if place == 0:
        return None
    return seg.podman_pod(segments[place - 1], segments[place - 2] if place > 1 else "")


def _user(segments: list[str]) -> Identity:
    """In a user's own subtree: that user's containers, or the user; any other claim makes the unit void."""
    uid = _uid_of(segments)
    unit: str | None = None
    for place, segment in enumerate(segments):
        parent = segments[place - 1] if place else ""
        if seg.is_monitor(segment, parent):
            return Identity("user", uid=uid, role="monitor")
        found = seg.container(segment, parent)
        if found is not None and found.prefix in seg.SELF_NAMED:
            own = replace(_container(found, segments, place), uid=uid, rootless=True)
            return _with_chain(own, segments)
        if found is not None or _is_claim(segments, place):
            return Identity("user", uid=uid)
        if segment.endswith((*seg.UNITS, ".session")):
            unit = segment
    return Identity("user", uid=uid, unit=None if unit is None else unit[: seg.LONGEST])


def _uid_of(segments: list[str]) -> int | None:
    for segment in segments[:3]:
        for prefix, suffix in (("user-", ".slice"), ("user@", ".service"), ("", ".user")):
            if segment.startswith(prefix) and segment.endswith(suffix):
                uid = seg.number(segment.removeprefix(prefix).removesuffix(suffix))
                if uid is not None:
                    return uid
    return None


def _is_claim(segments: list[str], place: int) -> bool:
    segment = segments[place]
    return seg.is_kubepods(segment) or seg.slurm(segments, place) is not None


def _unit(segments: list[str]) -> Identity:
    """A systemd unit, the outermost: what is below it was named by the unit itself."""
    if segments == ["init.scope"]:
        return Identity(unit="init.scope")
    unit = next((segment for segment in segments if segment.endswith(seg.UNITS)), None)
    if unit is not None:
        return Identity("systemd", unit=unit[: seg.LONGEST])
    if segments[0] in ("system", "podruntime") and len(segments) > 1:  # Talos has no systemd
        return Identity(unit="/".join(segments[:2])[: seg.LONGEST])
    return HOST


def _nested_job(identity: Identity, segments: list[str], place: int) -> Identity:
    """A Slurm job inside a container is told, but the container is who pays."""
    if identity.container_id is None or identity.job_id is not None:
        return identity
    inside = (seg.slurm(segments, at) for at in range(place + 2, len(segments)))
    job = next((found for found in inside if found), None)
    return identity if job is None else replace(identity, job_id=job.job_id, sluid=job.sluid, step=job.step)


def _with_chain(identity: Identity, segments: list[str]) -> Identity:
    """All containers from the outermost, if the innermost has a runtime with names of its own."""
    found = [
        (c, at) for at, s in enumerate(segments) if (c := seg.container(s, segments[at - 1] if at else ""))
    ]
    if len(found) < 2 or found[-1][0].prefix not in seg.SELF_NAMED:
        return identity
    chain = tuple(f"{_kind_in_chain(c, identity)}:{c.id}" for c, _ in found)
    ids = [c.id for c, _ in found]
    own = ids.index(identity.container_id) if identity.container_id in ids else len(ids)
    return replace(identity, chain=chain, alt_container_id=ids[own + 1] if own + 1 < len(ids) else None)


def _kind_in_chain(found: seg.Container, identity: Identity) -> str:
    if found.id == identity.container_id:
        return identity.kind
    return seg.KINDS.get(found.prefix, "container")


def _place(identity: Identity, segments: list[str]) -> int:
    """Where in the path a container's own folder is."""
    wanted = identity.container_id or ""
    return next((at for at, segment in enumerate(segments) if wanted and wanted in segment), len(segments))


def _name(outer: Identity | None) -> str | None:
    return None if outer is None else f"{outer.kind}:{outer.container_id or outer.machine or ''}"


def _agree(lines: Sequence[_Line]) -> Identity:
    """One identity of all hierarchies: the highest rank counts; if it contradicts itself, nobody is named."""
    if not lines:
        return HOST
    top = max(_rank(line.identity) for line in lines)
    best = [line for line in lines if _rank(line.identity) == top]
    chosen = max(best, key=lambda line: (_knowledge(line.identity), line.weight)).identity
    if len({line.identity.pod_uid for line in best if line.identity.pod_uid}) > 1:
        return Identity("pod", conflict=True)
    users = {line.identity.uid for line in lines if _rank(line.identity) in USERS} - {None}
    if (top in USERS and len(users) > 1) or len({w for line in best if (w := _who(line.identity))}) > 1:
        return Identity(chosen.kind, pod_uid=chosen.pod_uid, qos=chosen.qos, conflict=True)
    return chosen


def _rank(identity: Identity) -> int:
    """Kubernetes, other containers, jobs and machines, users and theirs, units, the host."""
    if identity.rootless or identity.kind == "user":
        return 3 if identity.rootless else 2
    if identity.kind == "pod":
        return 6
    if identity.kind in CONTAINERS:
        return 5
    if identity.kind in JOBS:
        return 4
    if identity.kind == "systemd":
        return 1
    return 0


def _knowledge(identity: Identity) -> int:
    known = (identity.container_id, identity.pod_uid, identity.unit, identity.role, identity.step)
    return sum(value is not None for value in known) + (identity.kind != "container")


def _who(identity: Identity) -> str | None:
    """What must be the same on every line that is as good as the best."""
    if identity.kind in ("user", "systemd", "host"):
        return None
    return (
        identity.container_id
        or identity.job_id
        or identity.sluid
        or identity.machine
        or identity.alloc_id
        or identity.task_id
    )
