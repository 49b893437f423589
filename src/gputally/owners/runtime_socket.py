"""Where the container runtime listens: by the kubelet's own flags and files, else where it usually does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gputally.machine import Machine
from gputally.model import Unreadable

FLAGS = (
    "root-dir",
    "container-runtime-endpoint",
    "containerd",
    "config",
    "config-dir",
    "data-dir",
    "kubelet-args-file",
)
"""What is read of a kubelet's command line."""
SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
)
RANCHER = ("/var/lib/rancher/k3s", "/var/lib/rancher/rke2")
"""Data folders of k3s and RKE2; both write what they tell their kubelet into a folder of configurations."""
DROP_INS = "agent/etc/kubelet.conf.d"
MOST_DROP_INS = 100
KEYS = ("containerRuntimeEndpoint", "container-runtime-endpoint")
"""What the kubelet's own configuration calls it, and k3s's."""


@dataclass(frozen=True)
class Endpoint:
    """A socket, and by whose word."""

    socket: str
    by: str

    def __str__(self) -> str:
        return f"{self.socket}, by {self.by}"


def flags_of(machine: Machine, found: Mapping[str, str]) -> dict[str, str]:
    """A kubelet's flags, with those that microk8s keeps in a file."""
    path = found.get("kubelet-args-file", "")
    kept = machine.settings(path, FLAGS) if path.startswith("/") else {}
    data = path.rpartition("/args/")[0]
    places = {"SNAP_DATA": data, "SNAP_COMMON": f"{data.rpartition('/')[0]}/common"}

    def filled(value: str) -> str:
        return re.sub(r"\$\{?(SNAP_\w+)\}?", lambda match: places.get(match[1], match[0]), value)

    return {name: filled(value) for name, value in kept.items()} | dict(found)


def endpoint(machine: Machine, flags: Mapping[str, str]) -> Endpoint:
    """The runtime's socket; Unreadable where nobody tells it and none is at its usual place."""
    for text, by in _told(machine, flags):
        return Endpoint(_path(text, by), by)
    for socket in SOCKETS:
        if _is_there(machine, socket):
            return Endpoint(socket, "its usual place")
    raise Unreadable("no socket of a container runtime was found; --cri.socket can name one")


def _told(machine: Machine, flags: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What the kubelet itself goes by, the strongest first."""
    if flags.get("container-runtime-endpoint"):
        yield flags["container-runtime-endpoint"], "the kubelet's command line"
    for path in _configurations(machine, flags):
        yield from ((text, path) for text in machine.settings(path, KEYS).values())
    if flags.get("containerd"):
        yield flags["containerd"], "the kubelet's --containerd"


def _configurations(machine: Machine, flags: Mapping[str, str]) -> Iterator[str]:
    """Files of configuration, those that override others first."""
    data = (flags["data-dir"],) if flags.get("data-dir") else RANCHER
    for folder in filter(None, (flags.get("config-dir"), *(f"{place}/{DROP_INS}" for place in data))):
        try:
            names = [name for name in machine.folder(folder) if name.endswith(".conf")]
        except Unreadable:
            continue
        yield from (f"{folder}/{name}" for name in sorted(names, reverse=True)[:MOST_DROP_INS])
    if flags.get("config"):
        yield flags["config"]


def _path(text: str, by: str) -> str:
    path = text.strip("\"'").removeprefix("unix:").removeprefix("//")
    if not path.startswith("/") or "\0" in path:
        raise Unreadable(f"by {by} the runtime is at {text[:100]!r}, which is no unix socket")
    return path


def _is_there(machine: Machine, socket: str) -> bool:
    folder, _, name = socket.rpartition("/")
    try:
        return name in machine.folder(folder)
    except Unreadable:
        return False
