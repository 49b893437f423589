"""What stands beside NVML and HTTP, made from the settings: other sources, virtual GPUs, the textfile."""

from __future__ import annotations

from functools import partial

from gputally.config import Config
from gputally.ledger import Ledger
from gputally.machine import Machine
from gputally.outputs.site import Site
from gputally.outputs.textfile import Textfile
from gputally.sources import Source
from gputally.sources.nvml import Choice, NvmlSource
from gputally.sources.smi import SmiSource


def sources(config: Config, machine: Machine, patience: float) -> tuple[Source, ...]:
    """Everyone who tells of GPUs, in the order they are asked."""
    choice = Choice(config.gpus)
    nvml = NvmlSource(machine, choice, deadline=config.nvml_deadline, patience=patience)
    smi = partial(SmiSource, machine, choice, deadline=config.smi_deadline, patience=patience)
    if config.smi == "on":
        return (smi(),)
    return (nvml,) if config.smi == "off" else (nvml, smi(needed=lambda: nvml.cannot_load))


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
