"""The Tally: all that an output or a view may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from gputally.model import Device, Owner, Snapshot


class Gpu(NamedTuple):
    """A GPU and what it used so far."""

    device: Device
    fresh: bool
    """Its gauges are of now, not of a time before it fell silent."""
    energy_uj: int | None = None
    idle_uj: int = 0
    unattributed_uj: Mapping[str, int] = MappingProxyType({})
    pending_uj: int = 0
    discarded_uj: int = 0
    resets: int = 0
    integrated: bool = False
    """Its energy is power x time, for want of a counter that moves."""
    idle_watts: float | None = None
    idle_source: str = "unknown"
    trust: float | None = None
    """How far the learned cost of a busy second is believed, 0 to 1."""
    coverage_ratio: float | None = None
    """Part of its use that could be traced to somebody."""


class NamespaceUse(NamedTuple):
    """All that a namespace used of one GPU so far, also by workloads that are long gone."""

    kind: str
    namespace: str
    gpu: int
    uuid: str
    energy_uj: int
    idle_uj: int
    sm_busy_us: int | None


class Workload(NamedTuple):
    """All processes of one owner on one GPU, or on one MIG instance of it."""

    owner: Owner
    gpu: int
    uuid: str
    mig: str
    active: bool | None
    """Whether it holds a context; None while its GPU does not tell who does."""
    processes: int | None = None
    memory_used_bytes: int | None = None
    sm_utilization_ratio: float | None = None
    sm_busy_us: int | None = None
    energy_uj: int | None = None
    estimated_uj: int | None = None
    idle_uj: int | None = None
    start_time_seconds: float | None = None


class ProcessUse(NamedTuple):
    """One process on one GPU, or all the others there together (`pid` empty)."""

    owner: Owner
    gpu: int
    uuid: str
    mig: str
    pid: str
    process: str
    memory_used_bytes: int | None = None
    sm_busy_us: int | None = None
    energy_uj: int | None = None
    start_time_seconds: float | None = None
    dcgm_gpu_energy_joules: float | None = None
    """The whole GPU's, as DCGM tells it."""


class Use(NamedTuple):
    """A device that was granted to an owner, or is used without a grant."""

    owner: Owner
    gpu: int
    uuid: str
    mig: str
    granted: bool


class Limit(NamedTuple):
    """How much memory of a GPU, or of a MIG instance, an owner may use, and by which method that is said."""

    owner: Owner
    gpu: int
    uuid: str
    mig: str
    method: str
    """ratio, hami, replicas or mig."""
    memory_bytes: int


class ProcessStay(NamedTuple):
    """One process on one GPU, from its first to its last moment there and for a while after."""

    owner: Owner
    uid: str
    """Of its pod."""
    container_id: str
    gpu: int
    uuid: str
    pid: int
    process: str
    active: bool | None
    """Whether it holds a context; None while its GPU does not tell who does."""
    energy_uj: int | None
    memory_used_bytes: int | None = None
    sm_utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    start_time_seconds: float | None = None


class Claim(NamedTuple):
    """What is put down to somebody of a GPU's energy when all of it is put down to somebody."""

    owner: Owner | None
    """None: to nobody by name."""
    mig: str
    energy_uj: int
    power_ratio: float
    """Its part of the energy since the last Tally."""


@dataclass(frozen=True)
class Tally:
    """A snapshot with the totals that belong to it."""

    snapshot: Snapshot
    machine: str
    gpus: tuple[Gpu, ...] = ()
    workloads: Sequence[Workload] = ()
    namespaces: tuple[NamespaceUse, ...] = ()
    processes: tuple[ProcessUse, ...] = ()
    uses: tuple[Use, ...] = ()
    limits: tuple[Limit, ...] = ()
    stays: tuple[ProcessStay, ...] = ()
    """Every process, without bounds of age and number; only where a dialect asks for it."""
    claims: Mapping[str, tuple[Claim, ...]] = field(default_factory=dict)
    """uuid -> who has the GPU, each once; only where a dialect asks for it."""
    process_results: Mapping[str, int] = field(default_factory=dict)
    """How well the processes of this moment could be traced -> how many."""
    samples_dropped: Mapping[str, int] = field(default_factory=dict)
    series_dropped: Mapping[str, int] = field(default_factory=dict)
    nvml_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    faults: int = 0
    """Ticks that ended in an error of our own."""
    textfile_errors: int | None = None
    """Textfiles that could not be written; None where none is wanted."""
