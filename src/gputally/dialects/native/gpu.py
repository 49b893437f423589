"""Rows about whole GPUs: who they are, how they are, and the energy they used."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from gputally.dialects.native.scopes import GPU
from gputally.metrics import COUNTER, GAUGE, INFO, Metric
from gputally.model import State
from gputally.tally import Gpu


def _info(gpu: Gpu) -> Mapping[Any, int]:
    return {tuple([told or "" for told in _INFO(gpu.device.info)]): 1}


def _unattributed(gpu: Gpu) -> Mapping[Any, int]:
    return {} if gpu.energy_uj is None else gpu.unattributed_uj


_STATES = {now: {state.value: int(state is now) for state in State} for now in State}
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
_INFO = attrgetter(*_INFO_LABELS)

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
        lambda gpu: _STATES[gpu.device.state],
        by=("state",),
        source="the return codes of all calls",
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_joules_total",
        COUNTER,
        "Energy the whole GPU used since gputally first saw it: by its own counter, or power x time where "
        "that is integrated.",
        "energy_uj",
        source="nvmlDeviceGetTotalEnergyConsumption",
        since="Volta",
        absent="the GPU tells neither energy nor power",
        millionths=True,
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_integrated",
        GAUGE,
        "1 while the GPU's energy is power x time, because its counter is absent or stands still.",
        lambda gpu: None if gpu.energy_uj is None else int(gpu.integrated),
    ),
    Metric(
        GPU,
        "gputally_gpu_idle_energy_joules_total",
        COUNTER,
        "Energy of idle power that is charged to nobody.",
        lambda gpu: None if gpu.energy_uj is None else gpu.idle_uj,
        millionths=True,
    ),
    Metric(
        GPU,
        "gputally_gpu_unattributed_energy_joules_total",
        COUNTER,
        "Energy above idle that could not be charged to anybody, by reason.",
        _unattributed,
        by=("reason",),
        millionths=True,
    ),
    Metric(
        GPU,
        "gputally_gpu_pending_energy_joules",
        GAUGE,
        "Energy whose owner's name is still coming, or whose series was not scraped yet; it is posted soon.",
        lambda gpu: None if gpu.energy_uj is None else gpu.pending_uj,
        millionths=True,
    ),
    Metric(
        GPU,
        "gputally_gpu_idle_watts",
        GAUGE,
        "Power counted as idle: configured, or learned while no process held a context.",
        lambda gpu: {} if gpu.idle_watts is None else {gpu.idle_source: gpu.idle_watts},
        by=("source",),
    ),
    Metric(
        GPU,
        "gputally_gpu_intensity_trust_ratio",
        GAUGE,
        "How far the learned cost of a busy second is believed: 0 is shares by time alone, 1 is wholly.",
        "trust",
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_resets_total",
        COUNTER,
        "Times the GPU's energy counter went back (the driver was reloaded).",
        lambda gpu: None if gpu.energy_uj is None else gpu.resets,
    ),
    Metric(
        GPU,
        "gputally_gpu_energy_discarded_joules_total",
        COUNTER,
        "Energy the counter claimed that the GPU's power limit does not allow; it is in no other total.",
        lambda gpu: None if gpu.energy_uj is None else gpu.discarded_uj,
        millionths=True,
    ),
    Metric(
        GPU,
        "gputally_gpu_attribution_coverage_ratio",
        GAUGE,
        "Part of the GPU's use that is traced to somebody: of the busy time that the newest samples saw, or,"
        " with nobody busy, of the processes that hold a context.",
        "coverage_ratio",
    ),
)
