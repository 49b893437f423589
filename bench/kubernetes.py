"""Kubernetes around the processes of a node: each in a pod of its own, which a kubelet and its logs tell of.

The processes are moved into real cgroups, named as a kubelet with a cgroup root of its own names them, so
that gputally reads and watches them as it does on any node. What the kubelet answers comes from real gRPC
servers in the process that measures: their CPU is not counted. A kubelet lists pods in another order each
time and sends much that nobody reads, and so do these.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.node import Node
from gputally.machine.messages import LIST_PODS, LIST_V1, POD
from gputally.machine.wire import Message, as_pairs, encode, many, text
from tests.fakes.background import Background
from tests.fakes.rpc import RpcServer, pods_of

HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
SLICE = f"gputallybench{os.getpid()}"
"""The slice that all of them are in: ours alone, so that two runs at once do not clear away each other's."""
NAMESPACE = "ml"
CONTAINER = "main"
UNREAD = "x" * 4000
"""As long as the specification of an ordinary pod."""
WHOLE_PODS: Message = {1: many("pods", {**POD, 2: text("spec")})}


class Impossible(Exception):
    """There can be no pods on this computer; the text says why."""


@dataclass(frozen=True)
class BenchPod:
    """One pod with one container, and the process in it."""

    number: int
    pid: int

    @property
    def name(self) -> str:
        """As a ReplicaSet names its pods."""
        return f"train-{self.number:04}-5d9c7f-x{self.number:04}"

    @property
    def workload(self) -> str:
        """Whom it belongs to."""
        return f"Deployment/train-{self.number:04}"

    @property
    def uid(self) -> str:
        """Of the pod."""
        return f"{self.number:08}-2222-4333-8444-555555555555"

    @property
    def container_id(self) -> str:
        """Of its container."""
        return f"{self.number + 1:064x}"

    def whole(self) -> dict[str, Any]:
        """The fields of a v1.Pod."""
        labels = {"app": "train", "pod-template-hash": "5d9c7f", "team": f"team-{self.number % 10}"}
        owner = {"kind": "ReplicaSet", "name": f"train-{self.number:04}-5d9c7f", "controller": 1}
        about = {"uid": self.uid, "name": self.name, "namespace": NAMESPACE, "ownerReferences": [owner]}
        state = {"name": CONTAINER, "containerID": f"containerd://{self.container_id}"}
        return {
            "metadata": {**about, "labels": as_pairs(labels)},
            "spec": UNREAD,
            "status": {"phase": "Running", "containerStatuses": [state]},
        }


@contextmanager
def with_kubernetes(node: Node) -> Iterator[Node]:
    """The same node with each process in a pod; raises Impossible where no cgroups can be made."""
    pods = [BenchPod(number, pid) for number, pid in enumerate(node.pids)]
    folder = node.fake.library.parent
    with ExitStack() as stack:
        stack.enter_context(_cgroups(pods))
        background = stack.enter_context(Background())
        granted = [
            (NAMESPACE, pod.name, CONTAINER, [f"{node.fake.gpus[place % len(node.fake.gpus)].uuid}::{place}"])
            for place, pod in enumerate(pods)
        ]
        lists = itertools.cycle([pods_of(*random.sample(granted, len(granted))) for _ in range(20)])
        whole = encode({"pods": [pod.whole() for pod in pods]}, WHOLE_PODS)
        RpcServer(background, folder / "kubelet/pod-resources/kubelet.sock", {LIST_V1: lambda: next(lists)})
        RpcServer(background, folder / "kubelet/pods-api/pods-api.sock", {LIST_PODS: whole})
        _write_logs(folder / "log", pods)
        found = ("--kubelet.root", f"{folder}/kubelet", "--kubernetes.logs", f"{folder}/log")
        flags = ("--kubernetes", "on", "--kubernetes.api", "off", *found)
        yield replace(node, flags=flags, check=lambda text: _check(text, pods))


@contextmanager
def _cgroups(pods: Sequence[BenchPod]) -> Iterator[None]:
    """Real cgroups for as long as they are needed."""
    root = next((Path(path) for path in HIERARCHIES if (Path(path) / "cgroup.procs").is_file()), None)
    if root is None:
        raise Impossible("no cgroups are mounted where they usually are")
    made: list[Path] = []
    try:
        try:
            for pod in pods:
                scope = f"cri-containerd-{pod.container_id}.scope"
                pod_slice = f"{SLICE}-kubepods-pod{pod.uid.replace('-', '_')}.slice"
                path = f"{SLICE}.slice/{SLICE}-kubepods.slice/{pod_slice}/{scope}"
                _make(root, path, made)
                (root / path / "cgroup.procs").write_text(str(pod.pid))
        except OSError as error:
            raise Impossible(f"cgroups cannot be made here: {error}") from None
        yield
    finally:
        for pod in pods:
            (root / "cgroup.procs").write_text(str(pod.pid))
        for folder in reversed(made):
            folder.rmdir()


def _make(root: Path, path: str, made: list[Path]) -> None:
    for folder in [*reversed((root / path).parents), root / path]:
        if not folder.exists():
            folder.mkdir()
            made.append(folder)


def _write_logs(folder: Path, pods: Sequence[BenchPod]) -> None:
    (folder / "containers").mkdir(parents=True, exist_ok=True)
    for pod in pods:
        place = folder / "pods" / f"{NAMESPACE}_{pod.name}_{pod.uid}" / CONTAINER
        place.mkdir(parents=True)
        link = folder / "containers" / f"{pod.name}_{NAMESPACE}_{CONTAINER}-{pod.container_id}.log"
        link.symlink_to(place / "0.log")


def _check(text: str, pods: Sequence[BenchPod]) -> None:
    """Every process under its pod's names and granted its GPU, or there is nothing to be measured."""
    wanted = {("pod", NAMESPACE, pod.name, CONTAINER, pod.workload) for pod in pods}
    for series in ("gputally_workload_active", "gputally_workload_granted"):
        told = {_names(line) for line in text.splitlines() if line.startswith(f"{series}{{")}
        if told != wanted:
            raise RuntimeError(
                f"{series} tells of {len(told & wanted)} of {len(wanted)} pods, and of {len(told - wanted)} "
                f"that are none; such as {sorted(told ^ wanted)[:3]}"
            )


def _names(line: str) -> tuple[str, ...]:
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    return tuple(labels.get(name, "") for name in ("kind", "namespace", "pod", "container", "workload"))
