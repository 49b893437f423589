"""What one folder of a cgroup path can be: a pod, a container, a machine, a job. Each answer is total."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gputally.owners.identity import Identity

LONGEST = 256
UUID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
_POD_UID = re.compile(rf"{UUID}|[0-9a-f]{{32}}", re.ASCII)
_UUID = re.compile(UUID)
_HEX64 = re.compile(r"[0-9a-f]{64}")
_PREFIXED = re.compile(
    r"(cri-containerd|crio|docker|libpod-payload|libpod|nerdctl|kata)[-_:]([0-9a-f]{64})(?:\.scope)?"
)
_CONMON = re.compile(r"(?:crio|libpod)-conmon-[0-9a-f]{64}(?:\.scope)?")
_BUILD = re.compile(r"docker:[0-9a-z]{25}")
_FARGATE = re.compile(r"([0-9a-f]{32})-[0-9]{1,20}")
_TASK = re.compile(rf"(?:ecstasks-)?({UUID}|[0-9a-f]{{32}})(?:\.slice)?")
_GARDEN = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,56}")
_ALLOC = re.compile(rf"({UUID})\.([^/]+?)(?:\.scope)?", re.DOTALL)
_JOB = re.compile(r"[0-9]{1,20}(?:\[[0-9]*\])?(?:\.[A-Za-z0-9._-]+)?")
_LIBVIRT = re.compile(r"(qemu|lxc)-[0-9]+-(.+)", re.DOTALL)
_SLURM_JOB = re.compile(r"job_([0-9]{1,20})|(s[0-9A-Za-z]{8,32})")
_UID = re.compile(r"[0-9]{1,10}")
_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")

KINDS = {
    "cri-containerd": "pod",
    "crio": "pod",
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "nerdctl": "containerd",
    "kata": "container",
}
"""Whose container it is by the prefix of its folder, where no pod is around it."""
SELF_NAMED = ("docker", "libpod", "libpod-payload", "nerdctl")
"""Runtimes that know a container by a name of its own."""
QOS = ("burstable", "besteffort")
"""Folders that hold the pods of a class; those of the third are beside them."""
ENGINES = (
    *("kube", "k8s", "microk8s", "k3s", "k0s", "rke2", "microshift"),
    *("containerd", "crio", "cri-", "docker", "balena", "buildkit", "garden", "ecs"),
    *("lxc", "lxd", "incus", "libvirt", "slurm", "pbs", "torque", "nomad"),
)
"""How names of services begin below which others live: of kubelets, container runtimes, batch systems."""
UNITS = (".service", ".scope", ".mount", ".socket", ".swap")
USER_AREAS = ("user.slice", "user")


@dataclass(frozen=True)
class Container:
    """A folder that holds a container: the prefix of its runtime and the id."""

    prefix: str
    id: str


@dataclass(frozen=True)
class PodFolder:
    """A folder that holds a pod."""

    uid: str
    qos: str | None


def container(segment: str, parent: str) -> Container | None:
    """A container by the form of its folder's name: exactly 64 lower-case hex digits, no more, no fewer."""
    match = _PREFIXED.fullmatch(segment)
    if match:
        return Container(match[1], match[2])
    if _HEX64.fullmatch(segment) and parent != "libpod_parent":
        return Container("docker" if parent == "docker" else "", segment)
    return None


def container_of_pod(segment: str) -> Container | None:
    """The same directly below a pod, where some clouds name containers by a uuid."""
    return container(segment, "") or (Container("", segment) if _UUID.fullmatch(segment) else None)


def is_monitor(segment: str, parent: str) -> bool:
    """Whether who lives there only watches over a container."""
    return (
        _CONMON.fullmatch(segment) is not None
        or (segment == "conmon" and parent == "libpod_parent")
        or segment.startswith("lxc.monitor.")
        or parent == "lxc.monitor"
    )


def keeps_to_itself(segment: str) -> bool:
    """A service that runs nothing for others: who lives below it chose the names of folders there."""
    # Only the beginning counts: what follows may be the name of a user.
    return segment.endswith(".service") and not segment.removeprefix("snap.").startswith(ENGINES)


def is_kubepods(segment: str) -> bool:
    """The root of all pods, whatever cgroup root the kubelet was given."""
    return segment in ("kubepods", "kubepods.slice") or segment.endswith("-kubepods.slice")


def pod(segment: str, parent: str, below_kubepods: bool, relative: bool) -> PodFolder | None:
    """A pod, named by systemd's or by the kubelet's own rules.

    `relative` = it is where pods are in a path that begins beside them, so that their root is not seen.
    """
    if segment.endswith(".slice"):
        head, dash, uid = segment.removesuffix(".slice").rpartition("-pod")
        return _slice_pod(head, uid) if dash and _POD_UID.fullmatch(uid) else None
    uid = segment.removeprefix("pod")
    if not (below_kubepods or relative) or uid == segment or not _POD_UID.fullmatch(uid):
        return None
    qos = parent if parent in QOS else "guaranteed" if below_kubepods else None
    return PodFolder(uid.replace("_", "-"), qos)


def _slice_pod(head: str, uid: str) -> PodFolder | None:
    root, qos = head, "guaranteed"
    for name in QOS:
        if head.endswith(f"-{name}"):
            root, qos = head.removesuffix(f"-{name}"), name
    if root != "kubepods" and not root.endswith("-kubepods"):
        return None
    return PodFolder(uid.replace("_", "-"), qos)


def podman_pod(segment: str, parent: str) -> str | None:
    """The id of a pod of Podman's."""
    _, found, rest = segment.removesuffix(".slice").rpartition("libpod_pod_")
    bare = segment if parent == "libpod_parent" else ""
    name = rest if found else bare
    return name if _HEX64.fullmatch(name) else None


def other_container(segments: list[str], place: int) -> Identity | None:
    """A container of a runtime that has ways of its own: ECS, Garden, BuildKit, ctr."""
    segment, parent, before = _around(segments, place)
    fargate = _FARGATE.fullmatch(segment)
    if fargate and parent == fargate[1] and segments[0] == "ecs":
        return Identity("ecs", container_id=segment, task_id=fargate[1])
    if parent == "garden" and _GARDEN.fullmatch(segment):
        return Identity("garden", container_id=segment)
    if (parent == "buildkit" and before in ("docker", "")) or _BUILD.fullmatch(segment):
        return Identity("buildkit")
    if place == 1 and parent == "default" and not segment.endswith(UNITS):
        return Identity("containerd", container_id=segment[:LONGEST])
    return None


def ecs_task(segments: list[str], place: int) -> str | None:
    """The task above a container, if ECS started it."""
    if not {"ecs", "ecstasks", "ecstasks.slice"} & set(segments[:1]):
        return None
    match = _TASK.fullmatch(segments[place - 1]) if place else None
    return match[1].replace("_", "-") if match else None


def machine(segments: list[str], place: int) -> Identity | None:
    """A container or virtual machine that behaves like a computer of its own."""
    segment, parent, _ = _around(segments, place)
    if place == 0 and segment.startswith("lxc.payload."):
        return Identity("lxc", machine=segment.removeprefix("lxc.payload.")[:LONGEST])
    if place == 1 and parent in ("lxc", "lxc.payload"):
        return Identity("lxc", machine=segment[:LONGEST])
    if segment.startswith("systemd-nspawn@") and segment.endswith(".service"):
        name = segment.removeprefix("systemd-nspawn@").removesuffix(".service")
        role = "monitor" if segments[place + 1 : place + 2] == ["supervisor"] else None
        return Identity("nspawn", machine=unescape(name)[:LONGEST], role=role)
    if segment.startswith("machine-") and segment.endswith(".scope") and parent in ("machine.slice", ""):
        return _machine_scope(unescape(segment.removeprefix("machine-").removesuffix(".scope"))[:LONGEST])
    for suffix, kind in ((".libvirt-qemu", "vm"), (".libvirt-lxc", "lxc")):
        if segment.endswith(suffix):
            return Identity(kind, machine=segment.removesuffix(suffix)[:LONGEST])
    return None


def _machine_scope(name: str) -> Identity:
    match = _LIBVIRT.fullmatch(name)
    if match is None:
        return Identity("nspawn", machine=name)
    return Identity("vm" if match[1] == "qemu" else "lxc", machine=match[2])


def job(segments: list[str], place: int) -> Identity | None:
    """A job of a batch system."""
    segment, parent, before = _around(segments, place)
    alloc = _ALLOC.fullmatch(segment)
    if alloc and segments[0] in ("nomad.slice", "nomad"):
        return Identity("nomad", alloc_id=alloc[1].replace("_", "-"), task=alloc[2][:LONGEST])
    if parent == "jobid" and before.startswith("pbs") and _JOB.fullmatch(segment):
        return Identity("pbs", job_id=segment[:LONGEST])
    if place == 1 and parent == "torque" and _JOB.fullmatch(segment):
        return Identity("torque", job_id=segment[:LONGEST])
    return slurm(segments, place)


def slurm(segments: list[str], place: int) -> Identity | None:
    """A Slurm job: by number, or by SLUID as from 26.05 on."""
    match = _SLURM_JOB.fullmatch(segments[place])
    if match is None:
        return None
    _, parent, before = _around(segments, place)
    after = segments[place + 1] if place + 1 < len(segments) else ""
    step = after.removeprefix("step_")[:LONGEST] if after.startswith("step_") else None
    if parent == "slurmstepd.scope" or parent.endswith("_slurmstepd.scope"):
        return Identity("slurm", job_id=match[1], sluid=match[2], step=step)
    uid = number(parent.removeprefix("uid_")) if parent.startswith("uid_") else None
    if match[1] and uid is not None and (before == "slurm" or before.startswith("slurm_")):
        return Identity("slurm", job_id=match[1], step=step, uid=uid)
    return None


def _around(segments: list[str], place: int) -> tuple[str, str, str]:
    """A folder, the one above it and the one above that."""
    above = segments[place - 1] if place else ""
    return segments[place], above, segments[place - 2] if place > 1 else ""


def number(text: str) -> int | None:
    """A whole number of at most ten ASCII digits."""
    return int(text) if _UID.fullmatch(text) else None


def unescape(text: str) -> str:
    r"""What systemd wrote as `\x2d`, as it was."""
    return _ESCAPED.sub(lambda m: bytes.fromhex(m[0].replace("\\x", "")).decode("utf-8", "replace"), text)
