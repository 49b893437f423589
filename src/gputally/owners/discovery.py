"""Who is there to be asked: by the settings, the kubelet's command line, and where things usually are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gputally.machine import Access, Machine
from gputally.owners.apiserver import ApiServer
from gputally.owners.cgroup import parse
from gputally.owners.cri import Cri, named
from gputally.owners.docker import ContainerNames
from gputally.owners.grants import Grants
from gputally.owners.host import Identify
from gputally.owners.inquiry import Inquiry, always
from gputally.owners.kubelet import KubeletPods
from gputally.owners.logs import PodLogs
from gputally.owners.names import NamingParty, PodNames, Source
from gputally.owners.outside import Outside, Shown
from gputally.owners.podresources import PodResources
from gputally.owners.pods_api import PodsApi
from gputally.owners.whereabouts import Kubelet

log = logging.getLogger(__name__)

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
    """Empty not to ask the runtime, auto to find it."""
    docker_socket: str = ""
    podman_socket: str = ""
    logs: str = "/var/log"
    api: str = "auto"
    token_file: str = f"{SECRETS}/token"
    ca_file: str = f"{SECRETS}/ca.crt"
    node: str = ""
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()


def discover(
    machine: Machine, places: Places, identify: Identify = parse, besides: Sequence[Inquiry] = ()
) -> Outside:
    """Everybody to be asked on this machine, and who else is asked besides."""
    engines = [
        ContainerNames(machine, kind, socket)
        for kind, socket in (("docker", places.docker_socket), ("podman", places.podman_socket))
        if socket
    ]
    inquiries = [*besides, *(Inquiry(machine.clock, engine) for engine in engines)]
    if places.kubernetes == "off":
        return Outside(identify, inquiries, engines=engines)
    node = places.node or machine.variable("NODE_NAME")
    kubelet = Kubelet(machine, places.kubelet_root, find_runtime=places.cri_socket == "auto")
    inside = places.kubernetes == "on" or bool(machine.variable("KUBERNETES_SERVICE_HOST"))

    def evident() -> bool:
        return inside or kubelet.is_there

    async def podresources() -> str:
        return places.podresources_socket or f"{await kubelet.root()}/pod-resources/kubelet.sock"

    resources = PodResources(machine, podresources)
    sources = [
        Source(namer, Inquiry(machine.clock, namer, expected=expected))
        for namer, expected in _namers(machine, places, kubelet, node, evident)
    ]
    pods = PodNames(machine.clock, sources)
    inquiries += [source.inquiry for source in sources]
    told = always if places.podresources_socket else evident
    granting = Inquiry(machine.clock, resources, expected=told)
    inquiries.append(granting)
    shown = Shown(places.labels, places.annotations, node)
    return Outside(identify, inquiries, pods, Grants(resources, pods), engines, shown, granting)


def _namers(
    machine: Machine, places: Places, kubelet: Kubelet, node: str, evident: Callable[[], bool]
) -> list[tuple[NamingParty, Callable[[], bool]]]:
    """Those who know pods, the best first, and whether it is a fault if they are not there."""

    async def pods_api() -> str:
        return f"{await kubelet.root()}/pods-api/pods-api.sock"

    found: list[tuple[NamingParty, Callable[[], bool]]] = [(PodsApi(machine, pods_api), lambda: False)]
    access = Access(token_file=places.token_file, ca_file=places.ca_file)
    url = api(machine, places.api)
    if url and node:
        found.append((ApiServer(machine, url, node, access), always))
    elif url:
        log.warning("the API server is not asked: set --kubernetes.node (or NODE_NAME) to this node's name")
    if places.kubelet_url:
        trusting = replace(access, verify=not places.kubelet_insecure)
        found.append((KubeletPods(machine, places.kubelet_url, trusting), always))
    found.append((PodLogs(machine, places.logs), evident))
    if places.cri_socket == "auto":
        found.append((Cri(machine, kubelet.runtime), always))
    elif places.cri_socket:
        found.append((Cri(machine, named(places.cri_socket)), always))
    return found


def api(machine: Machine, setting: str) -> str:
    """Where the API server is by the setting, and where that says auto by what a cluster tells its pods."""
    if setting not in ("auto", "off"):
        return setting
    host, port = machine.variable("KUBERNETES_SERVICE_HOST"), machine.variable("KUBERNETES_SERVICE_PORT")
    if setting == "off" or not host:
        return ""
    return f"https://{f'[{host}]' if ':' in host else host}:{port or '443'}"
