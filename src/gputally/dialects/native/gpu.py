"""Rows about whole GPUs: who they are, how they are, and the energy they used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputally.dialects.native.scopes import GPU, micro
from gputally.metrics import COUNTER, GAUGE, INFO, Metric, Micro
from gputally.model import State
from gputally.tally import Gpu


def _info(gpu: Gpu) -> Mapping[Any, int]:
    return {tuple(getattr(gpu.device.info, name) or "" for name in _INFO_LABELS): 1}


def _states(gpu: Gpu) -> Mapping[str, int]:
    return {state.value: int(gpu.device.state is state) for state in State}


_INFO_LABELS = (
    "model",
    "architecture",
    "pci_bus_id",
    "serial",
    "vbios_version",
    "compute_capability",
    "minor_number",
    "driver_version",
    "cuda_version",
    "pcie_link_generation_max",
    "pcie_link_width_max",
    "energy_scope",
)

GPU_METRICS = (
    Metric(
        GPU,
        "gputally_gpu_info",
        INFO,
        "What does not change while the driver is loaded.",
        _info,
        by=_INFO_LABELS,
        source="nvmlDeviceGetName, …Architecture, …PciInfo and others, once per driver",
        absent="an empty label: the driver does not tell it",
    ),
    Metric(
        GPU,
        "gputally_gpu_up",
        GAUGE,
        "1 if the GPU answers.",
        lambda gpu: int(gpu.device.state is State.OK),
    ),
    Metric(
        GPU,
        "gputally_gpu_state",
        GAUGE,
        "1 for the state the GPU is in, 0 for the others.",
        _states,
        by=("state",),
        source="the return codes of all calls",
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_joules_total",
        COUNTER,
        "Energy the whole GPU used since gputally first saw it, by its own counter.",
        lambda gpu: micro(gpu.energy_uj),
        source="nvmlDeviceGetTotalEnergyConsumption",
        since="Volta",
        absent="the GPU has no energy counter",
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_counter_resets_total",
        COUNTER,
        "Times the GPU's energy counter went back (the driver was reloaded).",
        lambda gpu: None if gpu.energy_uj is None else gpu.resets,
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_discarded_joules_total",
        COUNTER,
        "Energy the counter claimed that the GPU's power limit does not allow; it is in no other total.",
        lambda gpu: None if gpu.energy_uj is None else Micro(gpu.discarded_uj),
    ),
)
