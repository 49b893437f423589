"""What stands beside NVML and HTTP, made from the settings: other sources, virtual GPUs, the textfile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gputally.config import Config, Wrong
from gputally.joined import PodLabels
from gputally.ledger import Ledger
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.outputs.site import Site
from gputally.outputs.textfile import Textfile
from gputally.sources import Source
from gputally.sources.nvml import Choice, NvmlSource
from gputally.sources.ratio import RatioFile
from gputally.sources.smi import SmiSource
from gputally.sources.upstream import UpstreamSource


def sources(config: Config, machine: Machine, nvml: NvmlSource, patience: float) -> tuple[Source, ...]:
    """Everyone who tells of GPUs, in the order they are asked."""
    smi = partial(
        SmiSource,
        machine,
        Choice(config.gpus),
        deadline=config.smi_deadline,
        patience=patience,
        resting=lambda: nvml.resting,
    )
    upstream = _upstream(config, machine, patience)
    if config.smi == "on":
        return (smi(), *upstream)
    return (
        (nvml, *upstream) if config.smi == "off" else (nvml, smi(needed=lambda: nvml.cannot_load), *upstream)
    )


def _upstream(config: Config, machine: Machine, patience: float) -> tuple[Source, ...]:
    url, file = config.upstream_url, config.upstream_file or ""
    if url and file:
        raise Wrong("--upstream.url and --upstream.file cannot both be used; leave one out")
    if not url and not file:
        return ()
    return (UpstreamSource(machine, url=url, file=file, max_age=3 * config.interval, patience=patience),)


def pod_labels(config: Config) -> PodLabels | None:
    """What pods are called on series of another exporter, where there is one."""
    return config.upstream_pod_labels if config.upstream_url or config.upstream_file else None


def ratio(config: Config) -> Callable[[], float | None]:
    """Who tells how many virtual GPUs a GPU is; raises Wrong where the file does not tell."""
    if config.vgpu_ratio_file is None:
        return lambda: config.vgpu_ratio
    if config.vgpu_ratio is not None:
        raise Wrong("--vgpu.ratio and --vgpu.ratio-file cannot both be used; leave one out")
    file = RatioFile(config.vgpu_ratio_file)
    try:
        file.check()
    except Unreadable as error:
        raise Wrong(f"--vgpu.ratio-file cannot be used: {error}") from None
    return file


def textfile(config: Config, site: Site, ledger: Ledger) -> Textfile | None:
    """The textfile, if one is wanted; raises Unsafe where its folder is not to be trusted."""
    if config.textfile_directory is None:
        return None
    ledger.textfile_errors = 0

    def failed() -> None:
        ledger.textfile_errors = (ledger.textfile_errors or 0) + 1

    output = Textfile(config.textfile_directory, config.textfile_name, site.body, failed)
    output.check()
    return output
