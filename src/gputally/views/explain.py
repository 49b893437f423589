"""Step by step: how a process was traced to its owner, or why it was not and what would help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gputally.model import PENDING, UNKNOWN, UNNAMED, Device, Health, Owner, Process, Snapshot
from gputally.owners.host_pid import FIX
from gputally.owners.identity import Identity, as_expect


@dataclass(frozen=True)
class Trace:
    """All that was asked and answered about one process."""

    pid: int
    snapshot: Snapshot
    process: Process | None
    exists: bool
    """Whether the kernel has such a process, though we cannot read it."""
    identity: Identity | None
    steps: Sequence[tuple[str, Owner]]
    """Each resolver, and the owner after it."""

    @property
    def is_traced(self) -> bool:
        """Somebody is known, and can be charged."""
        if self.snapshot.host_pid == "no":
            return False
        return self.process is not None and self.owner not in (UNKNOWN, PENDING, UNNAMED)

    @property
    def owner(self) -> Owner:
        """Who it is in the end."""
        return self.steps[-1][1] if self.steps else UNKNOWN


def explain(trace: Trace) -> str:
    """The whole story, as lines for people."""
    parts = (_gpus, _namespace, _process, _cgroup, _resolvers, _labels, _advice)
    return "".join(f"{line}\n" for part in parts for line in part(trace))


def identity_json(identity: Identity) -> str:
    """What the parser made of a saved cgroup file."""
    return json.dumps(as_expect(identity)) + "\n"


def _gpus(trace: Trace) -> Iterator[str]:
    yield f"process {trace.pid}"
    lines = [line for device in trace.snapshot.devices for line in _uses(device, trace.pid)]
    yield "1. GPUs that name it" + (":" if lines else ": none")
    yield from lines


def _uses(device: Device, pid: int) -> Iterator[str]:
    for holder in device.holders or ():
        if holder.pid == pid:
            memory = holder.memory_used_bytes
            held = "an unknown amount" if memory is None else f"{memory / 2**20:.0f} MiB"
            yield f"   GPU {device.index} {holder.mig or device.uuid}: holds {held} of memory"
    for activity in device.activities or ():
        if activity.pid == pid:
            yield f"   GPU {device.index} {device.uuid}: busy {activity.sm_ratio:.0%} of the newest samples"


def _namespace(trace: Trace) -> Iterator[str]:
    told = {
        "yes": "yes: ours is the host's, so every process is seen",
        "nested": "nested: this node is itself a container, and its processes are all seen",
        "no": "no: only our own processes are seen",
    }
    yield f"2. host PID namespace: {told.get(trace.snapshot.host_pid or '', 'not told by this machine')}"


def _process(trace: Trace) -> Iterator[str]:
    process = trace.process
    if process is None:
        yield f"3. /proc/{trace.pid}: " + ("there, but not to be read" if trace.exists else "not there")
        return
    started = "" if process.started_at is None else f", started at {process.started_at:.0f}"
    yield f"3. /proc/{trace.pid}: {_shown(process.comm)}, start time {process.key.start}{started}"


def _cgroup(trace: Trace) -> Iterator[str]:
    if trace.process is None or trace.identity is None:
        return
    yield "4. cgroup, as the kernel has it:"
    yield from (f"   {_shown(line)}" for line in trace.process.cgroup.splitlines()[:40])
    yield f"   read as {identity_json(trace.identity).strip()}"
    if trace.identity.within:
        yield f"   the pod is inside {trace.identity.within}, so its kubelet is not this node's"


def _resolvers(trace: Trace) -> Iterator[str]:
    if trace.steps:
        yield "5. resolvers, one after the other:"
    before = UNKNOWN
    for name, owner in trace.steps:
        yield f"   {name}: {'adds nothing' if owner == before else _named(owner)}"
        before = owner
    if trace.steps:
        yield from (f"      asked {line}" for line in map(_party, trace.snapshot.health) if line)


def _party(health: Health) -> str:
    """Somebody outside who was asked for names, where that is, and how it went."""
    if health.about != "owners":
        return ""
    place = f" at {_shown(health.place)}" if health.place else ""
    return f"{health.source}{place}: {'answers' if health.up else f'down: {_shown(health.reason)}'}"


def _labels(trace: Trace) -> Iterator[str]:
    yield f"6. {'traced to' if trace.is_traced else 'not traced:'} {_named(trace.owner)}"


def _advice(trace: Trace) -> Iterator[str]:
    for line in _hints(trace):
        yield f"   -> {line}"


def _hints(trace: Trace) -> Iterator[str]:
    """What to change."""
    identity, named = trace.identity, any(True for d in trace.snapshot.devices for _ in _uses(d, trace.pid))
    if trace.snapshot.host_pid == "no":
        yield FIX
    elif trace.process is None and trace.exists:
        yield "/proc is mounted with hidepid: run gputally as root or in the group named by gid="
    elif trace.process is None:
        yield "no such process here: it ended, or the number is of another PID namespace"
    elif not named:
        yield "no GPU names this process, so it has no series"
    if identity is not None and identity.conflict:
        yield "its cgroup hierarchies contradict each other, so nobody is charged"
    if identity is not None and identity.role == "monitor" and trace.owner.kind == "host":
        yield "it only watches over a container, and is no workload"
    if identity is not None and identity.kind == "pod" and not trace.owner.namespace:
        yield "a pod whose name nobody told: see gputally_source_up for who names pods, and mend one"
    if identity is not None and identity.container_id and trace.owner.container in identity.container_id[:12]:
        yield from _unnamed_container(identity)


def _unnamed_container(identity: Identity) -> Iterator[str]:
    if identity.kind == "docker":
        yield "shown by its id: let gputally read Docker's folder (--docker.root)"
    elif identity.kind == "podman":
        yield "shown by its id: no conmon was found above it"


def _named(owner: Owner) -> str:
    labels = ("kind", "namespace", "pod", "container", "workload")
    return " ".join(f"{name}={json.dumps(getattr(owner, name))}" for name in labels if getattr(owner, name))


def _shown(text: str) -> str:
    """Text of others, safe on a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:4096])
