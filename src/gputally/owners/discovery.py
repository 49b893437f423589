"""Who is there to be asked: by the settings, the kubelet's command line, and where things usually are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gputally.machine import Access, Machine
from gputally.model import Unreadable
from gputally.owners.apiserver import ApiServer
from gputally.owners.cgroup import parse
from gputally.owners.cri import Cri
from gputally.owners.docker import ContainerNames
from gputally.owners.grants import Grants
from gputally.owners.host import Identify
from gputally.owners.inquiry import Inquiry
from gputally.owners.kubelet import KubeletPods
from gputally.owners.logs import PodLogs
from gputally.owners.names import NamingParty, PodNames, Source
from gputally.owners.outside import Outside, Shown
from gputally.owners.podresources import PodResources
from gputally.owners.pods_api import PodsApi

log = logging.getLogger(__name__)

KUBELETS = ("kubelet", "k3s", "k3s-agent", "k3s-server", "rke2", "kubelite", "k0s")
ROOTS = (
    "/var/lib/kubelet",
    "/var/lib/k0s/kubelet",
    "/var/snap/microk8s/common/var/lib/kubelet",
    "/var/data/kubelet",
    "/var/lib/rancher/k3s/agent/kubelet",
)
LOOK_EVERY = 600.0
"""Seconds between two looks for a kubelet that was not there: each is a walk through /proc."""
SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class Places:
    """Where the settings say that things are; empty = find it."""

    kubernetes: str = "auto"
    kubelet_root: str = ""
    podresources_socket: str = ""
    kubelet_url: str = ""
    kubelet_insecure: bool = False
    cri_socket: str = ""
    docker_socket: str = ""
    podman_socket: str = ""
    logs: str = "/var/log"
    api: str = "auto"
    token_file: str = f"{SECRETS}/token"
    ca_file: str = f"{SECRETS}/ca.crt"
    node: str = ""
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()


def discover(machine: Machine, places: Places, identify: Identify = parse) -> Outside:
    """Everybody to be asked on this machine."""
    engines = [
        ContainerNames(machine, kind, socket)
        for kind, socket in (("docker", places.docker_socket), ("podman", places.podman_socket))
        if socket
    ]
    inquiries = [Inquiry(machine.clock, engine) for engine in engines]
    if places.kubernetes == "off":
        return Outside(identify, inquiries, engines=engines)
    node = places.node or machine.variable("NODE_NAME")
    kubelet = Kubelet(machine, places.kubelet_root)
    evident = (
        places.kubernetes == "on" or kubelet.is_there or bool(machine.variable("KUBERNETES_SERVICE_HOST"))
    )
    socket = places.podresources_socket
    resources = PodResources(machine, lambda: socket or f"{kubelet.root()}/pod-resources/kubelet.sock")
    told = evident or bool(socket)
    sources = [
        Source(namer, Inquiry(machine.clock, namer, expected=expected))
        for namer, expected in _namers(machine, places, kubelet.root, node, evident)
    ]
    pods = PodNames(machine.clock, sources)
    inquiries += [source.inquiry for source in sources]
    granting = Inquiry(machine.clock, resources, expected=told)
    inquiries.append(granting)
    shown = Shown(places.labels, places.annotations, node)
    return Outside(identify, inquiries, pods, Grants(resources, pods), engines, shown, granting)


class Kubelet:
    """Where the kubelet of this node keeps its things."""

    def __init__(self, machine: Machine, root: str = "") -> None:
        self._machine = machine
        self._given = root
        self._found = ""
        self._looked_at: float | None = None
        self.root()

    @property
    def is_there(self) -> bool:
        """A kubelet runs here, or was said to."""
        return bool(self._given or self._found)

    def root(self) -> str:
        """Its folder; looked for again now and then while there is none."""
        if self._given or self._found:
            return self._given or self._found
        now = self._machine.clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            self._found = self._look()
        return self._found or ROOTS[0]

    def _look(self) -> str:
        flags = None
        with suppress(Unreadable):
            flags = self._machine.flags(KUBELETS, ("root-dir",))
        if flags and flags.get("root-dir"):
            return flags["root-dir"].rstrip("/")
        for root in ROOTS:
            try:
                self._machine.folder(f"{root}/pod-resources")
            except Unreadable:
                continue
            return root
        return "" if flags is None else ROOTS[0]


def _namers(
    machine: Machine, places: Places, root: Callable[[], str], node: str, evident: bool
) -> list[tuple[NamingParty, bool]]:
    """Those who know pods, the best first, and whether it is a fault if they are not there."""
    found: list[tuple[NamingParty, bool]] = [
        (PodsApi(machine, lambda: f"{root()}/pods-api/pods-api.sock"), False)
    ]
    access = Access(token_file=places.token_file, ca_file=places.ca_file)
    url = _api(machine, places)
    if url and node:
        found.append((ApiServer(machine, url, node, access), True))
    elif url:
        log.warning("the API server is not asked: set --kubernetes.node (or NODE_NAME) to this node's name")
    if places.kubelet_url:
        verify = not places.kubelet_insecure
        kubelet = Access(token_file=places.token_file, ca_file=places.ca_file, verify=verify)
        found.append((KubeletPods(machine, places.kubelet_url, kubelet), True))
    found.append((PodLogs(machine, places.logs), evident))
    if places.cri_socket:
        found.append((Cri(machine, places.cri_socket), True))
    return found


def _api(machine: Machine, places: Places) -> str:
    if places.api not in ("auto", "off"):
        return places.api
    host, port = machine.variable("KUBERNETES_SERVICE_HOST"), machine.variable("KUBERNETES_SERVICE_PORT")
    if places.api == "off" or not host:
        return ""
    return f"https://{f'[{host}]' if ':' in host else host}:{port or '443'}"
