"""Who is asked about a node, put together from the settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from gputally import feeds
from gputally.collect import Collector, Watcher
from gputally.config import Config
from gputally.machine import Machine
from gputally.owners import Resolver
from gputally.owners.cgroup import node_base, parse
from gputally.owners.discovery import Places, discover
from gputally.owners.host import CgroupOwner, Identify
from gputally.owners.inquiry import Inquiry
from gputally.owners.jobs import JobFiles
from gputally.owners.runtimes import ConmonNames, DockerFiles
from gputally.sources import Companion
from gputally.sources.nvml import Choice, NvmlSource


def patient_collector(config: Config, machine: Machine) -> Collector:
    """For commands that collect once or twice: nothing waits for them."""
    patience = max(config.nvml_deadline, 10.0) if machine.name == "local" else 60.0
    return collector(config, machine, nvml_source(config, machine, patience), patience)


def collector(
    config: Config, machine: Machine, nvml: NvmlSource, patience: float, besides: Sequence[Inquiry] = ()
) -> Collector:
    """Asks NVML, who knows more of its GPUs, those who name owners, and others besides."""
    ratio = feeds.ratio(config)
    identify = identifier(machine)
    outside = discover(machine, _places(config), identify, besides)
    more = _companions(config, machine, patience / 2)
    sources = feeds.sources(config, machine, nvml, patience)
    return Collector(machine, sources, *_owners(config, machine, identify), outside, more, ratio)


def nvml_source(config: Config, machine: Machine, patience: float) -> NvmlSource:
    """NVML as the settings want it."""
    # Answers out of a file or a model cannot hang; on a busy computer they are late, and no more.
    deadline = config.nvml_deadline if machine.name == "local" else max(config.nvml_deadline, 60.0)
    return NvmlSource(
        machine,
        Choice(config.gpus),
        interval=config.interval,
        deadline=deadline,
        patience=patience,
        grace=config.nvml_grace,
        pcie_throughput=config.nvml_pcie_throughput,
    )


def _companions(config: Config, machine: Machine, patience: float) -> tuple[Companion, ...]:
    """DCGM, where it is wanted."""
    if config.dcgm == "off":
        return ()
    from gputally.sources.dcgm import DcgmSource  # most nodes never need it
    from gputally.sources.dcgm_engine import Terms

    terms = Terms(
        config.dcgm, config.interval, config.dcgm_window, max_age=config.max_age, timeout=config.dcgm_deadline
    )
    return (
        DcgmSource(
            machine, terms, records=config.process_metrics, deadline=config.dcgm_deadline, patience=patience
        ),
    )


def _owners(config: Config, machine: Machine, identify: Identify) -> tuple[list[Resolver], list[Watcher]]:
    """Who says whose a process is, in this order, and who of them wants to see the GPUs first."""
    resolvers: list[Resolver] = [
        CgroupOwner(identify),
        DockerFiles(machine, identify, config.docker_root),
        ConmonNames(machine, identify),
    ]
    if config.hpc_job_mapping_dir is None:
        return resolvers, []
    jobs = JobFiles(machine, config.hpc_job_mapping_dir)
    return [*resolvers, jobs], [jobs.look]


def identifier(machine: Machine) -> Identify:
    """Reads cgroups as seen from this machine's node; remembered, since resolvers ask one after another."""
    namespaces = machine.namespaces()
    base = node_base((namespaces.init_cgroup if namespaces else None) or "")
    own_pod = machine.variable("POD_UID") or None
    return lru_cache(4096)(partial(parse, base=base, own_pod=own_pod))


def _places(config: Config) -> Places:
    return Places(
        kubernetes=config.kubernetes,
        kubelet_root=config.kubelet_root or "",
        podresources_socket=config.kubelet_podresources_socket or "",
        kubelet_url=config.kubelet_url,
        kubelet_insecure=config.kubelet_insecure,
        cri_socket=config.cri_socket,
        docker_socket=config.docker_socket or "",
        podman_socket=config.podman_socket or "",
        logs=config.kubernetes_logs,
        api=config.kubernetes_api,
        token_file=config.kubernetes_token_file or "",
        ca_file=config.kubernetes_ca_file or "",
        node=config.kubernetes_node,
        labels=config.kubernetes_pod_labels,
        annotations=config.kubernetes_pod_annotations,
    )
