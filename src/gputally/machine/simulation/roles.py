"""Who lives when: every process of the cast as a pure function of seed and slot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from gputally.machine.simulation.cast import DockerContainer, Home, OwnerReference, Pod, Root, Unit, Workload
from gputally.machine.simulation.rhythm import SLOT_US, SLOTS_PER_SECOND, bursts
from gputally.model import Process, ProcessKey

TICKS_BEFORE_SLOT_0 = 263_401 * SLOTS_PER_SECOND
"""The host was up for three days when the driver was loaded; a slot is a clock tick long."""
FIRST_PID = 2_048
PIDS_OF_A_ROLE = 1_021


@dataclass(frozen=True)
class Burst:
    """Slots in which a process wants the GPU, and what each of them would cost."""

    start: int
    end: int
    slot_uj: int
    turn: int


@dataclass(frozen=True)
class Role:
    """One process of a workload, over all its lives."""

    seed: int
    number: int
    workload: Workload
    gpu: int
    phase: int
    """Where in its cycle of work and pauses it begins: the same for all processes of a workload."""

    def key(self, turn: int) -> ProcessKey:
        """The process of one life; after many lives the kernel gives the same pid again."""
        pid = FIRST_PID + self.number * PIDS_OF_A_ROLE + (self._noise("pid") + turn) % PIDS_OF_A_ROLE
        return ProcessKey(pid, TICKS_BEFORE_SLOT_0 + self.workload.life.span(turn)[0])

    def living(self, slot: int) -> ProcessKey | None:
        """The process that lives in that slot."""
        turn = self.workload.life.turn(slot)
        return None if turn is None else self.key(turn)

    def process(self, slot: int, epoch: float) -> Process | None:
        """What the kernel says of it in that slot; `epoch` is the time of slot 0."""
        turn = self.workload.life.turn(slot)
        if turn is None:
            return None
        start, _ = self.workload.life.span(turn)
        return Process(
            key=self.key(turn),
            comm=self.workload.comm,
            cgroup=cgroup(self.seed, self.workload.home, turn),
            started_at=epoch + start / SLOTS_PER_SECOND,
        )

    def bursts(self) -> Iterator[Burst]:
        """All that it will ever want, in order, from slot 0."""
        life, wobble, base = self.workload.life, self.workload.wobble_permille, self._noise("bursts")
        turn = max(0, life.newest(0))
        while self.workload.rhythm.busy:
            start, end = life.span(turn)
            for first, last, noise in bursts(
                self.workload.rhythm, start, end, base + (turn << 40), self.phase
            ):
                permille = 1000 + noise % (2 * wobble + 1) - wobble
                yield Burst(first, last, self.workload.watts * SLOT_US * permille // 1000, turn)
            if life.every is None or end is None:
                return
            # An empty burst: nobody looks further ahead than one life, even if all of them are pauses.
            yield Burst(end, end, 0, turn)
            turn += 1

    def _noise(self, what: str) -> int:
        return int(_digest(self.seed, what, self.number)[:16], 16)


@dataclass(frozen=True)
class LivingPod:
    """One container of a pod in one of its lives, as the kubelet would know it."""

    namespace: str
    name: str
    uid: str
    container: str
    container_id: str
    owners: tuple[OwnerReference, ...]
    labels: dict[str, str]
    grants: tuple[str, ...]
    """Uuids of the devices that were allocated to it."""


def roles(seed: int, cast: Sequence[Workload]) -> tuple[Role, ...]:
    """Every process of the cast, numbered."""
    phases = [int(_digest(seed, "phase", place)[:8], 16) for place in range(len(cast))]
    parts = [(w, gpu, phase) for w, phase in zip(cast, phases, strict=True) for gpu in w.gpus]
    return tuple(Role(seed, number, *part) for number, part in enumerate(parts))


def role_of(pid: int, cast: Sequence[Role]) -> Role | None:
    """The role to which that pid belongs, in whichever life."""
    number = (pid - FIRST_PID) // PIDS_OF_A_ROLE
    return cast[number] if 0 <= number < len(cast) else None


def pods(seed: int, cast: Sequence[Workload], slot: int) -> tuple[LivingPod, ...]:
    """The containers of pods that live in that slot."""
    homes = [(workload.home, workload.life.turn(slot)) for workload in cast]
    return tuple(
        _living_pod(seed, home, turn) for home, turn in homes if isinstance(home, Pod) and turn is not None
    )


def docker_containers(seed: int, cast: Sequence[Workload], slot: int) -> dict[str, str]:
    """Docker containers that live in that slot: id -> name."""
    homes = [(workload.home, workload.life.turn(slot)) for workload in cast]
    return {
        _digest(seed, home.name, turn): home.name
        for home, turn in homes
        if isinstance(home, DockerContainer) and turn is not None
    }


def docker_file(seed: int, cast: Sequence[Workload], slot: int, path: str) -> bytes | None:
    """What Docker wrote down of a container that lives in that slot."""
    for workload in cast:
        home, turn = workload.home, workload.life.turn(slot)
        if isinstance(home, DockerContainer) and turn is not None:
            number = _digest(seed, home.name, turn)
            if path == f"/var/lib/docker/containers/{number}/config.v2.json":
                about = {"ID": number, "Name": f"/{home.name}", "Config": {"Image": home.image}}
                return json.dumps(about).encode()
    return None


def cgroup(seed: int, home: Home, turn: int) -> str:
    """What /proc/PID/cgroup says (cgroup v2, systemd driver, containerd)."""
    if isinstance(home, Pod):
        pod = _living_pod(seed, home, turn)
        qos = "kubepods" if home.qos == "guaranteed" else f"kubepods-{home.qos}"
        parent = "/kubepods.slice" if home.qos == "guaranteed" else f"/kubepods.slice/{qos}.slice"
        uid = pod.uid.replace("-", "_")
        return f"0::{parent}/{qos}-pod{uid}.slice/cri-containerd-{pod.container_id}.scope\n"
    if isinstance(home, DockerContainer):
        return f"0::/system.slice/docker-{_digest(seed, home.name, turn)}.scope\n"
    if isinstance(home, Unit):
        return f"0::/system.slice/{home.name}\n"
    if isinstance(home, Root):
        return "0::/\n"
    return f"0::/user.slice/user-{home.user}.slice/session-{home.number}.scope\n"


def gpu_uuid(seed: int, gpu: int) -> str:
    """The uuid of a GPU."""
    return f"GPU-{_uuid(seed, 'gpu', gpu)}"


def mig_uuid(seed: int, gpu: int, instance: int) -> str:
    """The uuid of a MIG instance."""
    return f"MIG-{_uuid(seed, 'mig', gpu, instance)}"


def _living_pod(seed: int, pod: Pod, turn: int) -> LivingPod:
    # What is new in a life is told by its workload's name, so that containers of one pod agree.
    run = _run(seed, pod.namespace, pod.name, turn)
    name = pod.name.replace("{run}", run)
    return LivingPod(
        namespace=pod.namespace,
        name=name,
        uid=_uuid(seed, "pod", pod.namespace, pod.name, turn),
        container=pod.container,
        container_id=_digest(seed, "container", pod.namespace, pod.name, pod.container, turn),
        owners=tuple(OwnerReference(o.kind, o.name.replace("{run}", run), o.api_version) for o in pod.owners),
        labels={key: value.replace("{run}", run) for key, value in pod.labels.items()},
        grants=tuple(
            gpu_uuid(seed, g.gpu) if g.instance is None else mig_uuid(seed, g.gpu, g.instance)
            for g in pod.grants
        ),
    )


def _run(*what: object) -> str:
    letters = "bcdfghjklmnpqrstvwxz2456789"
    noise = int(_digest("run", *what)[:12], 16)
    return "".join(letters[noise // len(letters) ** place % len(letters)] for place in range(5))


def _uuid(*what: object) -> str:
    return str(UUID(_digest(*what)[:32], version=4))


def _digest(*what: object) -> str:
    return hashlib.sha256("/".join(map(str, what)).encode()).hexdigest()
