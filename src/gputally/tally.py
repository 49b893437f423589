"""The Tally: all that an output or a view may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputally.model import Device, Owner, Snapshot


@dataclass(frozen=True)
class Gpu:
    """A GPU and what it used so far."""

    device: Device
    fresh: bool
    """Its gauges are of now, not of a time before it fell silent."""
    energy_uj: int | None = None
    discarded_uj: int = 0
    resets: int = 0


@dataclass(frozen=True)
class Workload:
    """All processes of one owner on one GPU."""

    owner: Owner
    gpu: int
    uuid: str
    active: bool
    processes: int | None = None
    memory_used_bytes: int | None = None
    sm_utilization_ratio: float | None = None
    sm_busy_us: int | None = None
    start_time_seconds: float | None = None


@dataclass(frozen=True)
class ProcessUse:
    """One process on one GPU, or all the others there together (`pid` empty)."""

    owner: Owner
    gpu: int
    uuid: str
    pid: str
    process: str
    memory_used_bytes: int | None = None
    sm_busy_us: int | None = None
    start_time_seconds: float | None = None
    dcgm_gpu_energy_joules: float | None = None
    """The whole GPU's, as DCGM tells it."""


@dataclass(frozen=True)
class Tally:
    """A snapshot with the totals that belong to it."""

    snapshot: Snapshot
    machine: str
    gpus: tuple[Gpu, ...] = ()
    workloads: tuple[Workload, ...] = ()
    processes: tuple[ProcessUse, ...] = ()
    process_results: Mapping[str, int] = field(default_factory=dict)
    """How well the processes of this moment could be traced -> how many."""
    samples_dropped: Mapping[str, int] = field(default_factory=dict)
    series_dropped: Mapping[str, int] = field(default_factory=dict)
    nvml_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    faults: int = 0
    """Ticks that ended in an error of our own."""
