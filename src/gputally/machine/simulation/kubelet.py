"""What the kubelet and the runtimes of a simulated node answer, from the same cast as its GPUs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from gputally.machine.messages import (
    ALLOCATABLE,
    ALLOCATABLE_V1,
    CRI_CONTAINERS,
    CRI_SANDBOXES,
    LIST,
    LIST_CONTAINERS,
    LIST_PODS,
    LIST_SANDBOXES,
    LIST_V1,
    PODS,
)
from gputally.machine.simulation.roles import LivingPod
from gputally.machine.wire import as_pairs, encode
from gputally.model import Unreadable

ROOT = "/var/lib/kubelet"
POD_RESOURCES = f"{ROOT}/pod-resources/kubelet.sock"
PODS_API = f"{ROOT}/pods-api/pods-api.sock"
RUNTIME = "/run/containerd/containerd.sock"
FLAGS = {"root-dir": ROOT, "container-runtime-endpoint": f"unix://{RUNTIME}"}
"""How the kubelet was started."""
LOGS = "/var/log"
NODE = "gpu-node-01"
NOT_THERE = 2
RUNNING = 1


def rpc(pods: Sequence[LivingPod], gpus: Sequence[str], socket: str, method: str) -> bytes:
    """One gRPC call."""
    if (socket, method) == (POD_RESOURCES, LIST_V1):
        return encode({"pod_resources": [_resources(pod, pods) for pod in pods]}, LIST)
    if (socket, method) == (POD_RESOURCES, ALLOCATABLE_V1):
        devices = [{"resource_name": "nvidia.com/gpu", "device_ids": [gpu]} for gpu in gpus]
        return encode({"devices": devices}, ALLOCATABLE)
    if (socket, method) == (PODS_API, LIST_PODS):
        return encode({"pods": [_pod(pod) for pod in pods]}, PODS)
    if (socket, method) == (RUNTIME, LIST_CONTAINERS):
        return encode({"containers": [_container(pod) for pod in pods]}, CRI_CONTAINERS)
    if (socket, method) == (RUNTIME, LIST_SANDBOXES):
        return encode({"items": [_sandbox(pod) for pod in pods]}, CRI_SANDBOXES)
    raise Unreadable(f"{method} on {socket}: nobody listens there")


def folder(pods: Sequence[LivingPod], path: str) -> Mapping[str, str]:
    """A folder of logs."""
    folders = [(pod, f"{pod.namespace}_{pod.name}_{pod.uid}") for pod in pods]
    if path == f"{LOGS}/pods":
        return {name: "" for _, name in folders}
    if path == f"{LOGS}/containers":
        return {
            f"{pod.name}_{pod.namespace}_{pod.container}-{pod.container_id}.log": (
                f"{LOGS}/pods/{name}/{pod.container}/0.log"
            )
            for pod, name in folders
        }
    raise Unreadable(f"{path}: No such file or directory", NOT_THERE)


def docker(containers: Mapping[str, str]) -> bytes:
    """What Docker answers to /containers/json."""
    return json.dumps([{"Id": key, "Names": [f"/{name}"]} for key, name in containers.items()]).encode()


def _resources(pod: LivingPod, pods: Sequence[LivingPod]) -> dict[str, object]:
    devices = [
        {"resource_name": _resource(uuid), "device_ids": [_id(uuid, pod, pods)]} for uuid in pod.grants
    ]
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "containers": [{"name": pod.container, "devices": devices}],
    }


def _id(uuid: str, pod: LivingPod, pods: Sequence[LivingPod]) -> str:
    """The uuid, and where several share the device the number of the share, as NVIDIA's plugin writes it."""
    sharers = [other.uid for other in pods if uuid in other.grants]
    return uuid if len(sharers) == 1 else f"{uuid}::{sharers.index(pod.uid)}"


def _resource(uuid: str) -> str:
    return "nvidia.com/mig-1g.10gb" if uuid.startswith("MIG-") else "nvidia.com/gpu"


def _pod(pod: LivingPod) -> dict[str, object]:
    owners = [
        {"kind": o.kind, "name": o.name, "apiVersion": o.api_version, "controller": 1} for o in pod.owners
    ]
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "labels": as_pairs(pod.labels),
            "ownerReferences": owners,
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": pod.container, "containerID": f"containerd://{pod.container_id}"}],
        },
    }


def _container(pod: LivingPod) -> dict[str, object]:
    names = _kubernetes_names(pod) | {"io.kubernetes.container.name": pod.container}
    return {
        "id": pod.container_id,
        "pod_sandbox_id": _sandbox_id(pod),
        "state": RUNNING,
        "labels": as_pairs(names),
    }


def _sandbox(pod: LivingPod) -> dict[str, object]:
    return {
        "id": _sandbox_id(pod),
        "metadata": {"name": pod.name, "uid": pod.uid, "namespace": pod.namespace},
        "labels": as_pairs({**_kubernetes_names(pod), **pod.labels}),
    }


def _kubernetes_names(pod: LivingPod) -> dict[str, str]:
    named = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {f"io.kubernetes.pod.{part}": value for part, value in named.items()}


def _sandbox_id(pod: LivingPod) -> str:
    return hashlib.sha256(pod.uid.encode()).hexdigest()
