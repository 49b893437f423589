"""What the kernel's cgroup path says of a process: whose it is, before anybody gave it a name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

SHORT = 12
"""Letters of a container's id that people read."""


@dataclass(frozen=True)
class Identity:
    """Whose a process is by its cgroup; what the path does not tell is None."""

    kind: str = "host"
    pod_uid: str | None = None
    container_id: str | None = None
    qos: str | None = None
    unit: str | None = None
    uid: int | None = None
    machine: str | None = None
    relative: int | None = None
    """How many steps up the path begins, as seen from a cgroup namespace of our own."""
    job_id: str | None = None
    step: str | None = None
    role: str | None = None
    """`monitor` where the process only watches over a container."""
    task_id: str | None = None
    chain: tuple[str, ...] | None = None
    """Containers from the outermost, where one inside another has a runtime that can name it too."""
    rootless: bool | None = None
    sluid: str | None = None
    alt_container_id: str | None = None
    alloc_id: str | None = None
    task: str | None = None
    podman_pod: str | None = None
    sandbox: bool | None = None
    conflict: bool | None = None
    within: str | None = None
    """The container around a pod (a node of kind or minikube, or a forger): its kubelet is not ours."""


ALWAYS = ("container_id", "pod_uid", "kind")
INTERNAL = ("within",)


def as_expect(identity: Identity) -> dict[str, Any]:
    """The identity as plain data: what is not known is left out, but for the three that always count."""
    always = (*ALWAYS, "job_id") if identity.kind == "slurm" else ALWAYS
    names = [f.name for f in fields(identity) if f.name not in (*always, *INTERNAL)]
    known = {name: getattr(identity, name) for name in always}
    known |= {name: value for name in names if (value := getattr(identity, name)) is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
