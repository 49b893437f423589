"""The nouns: frozen, in base units, `None` where nothing was reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gputally.claimed import Claimed as Claimed
from gputally.counted import CallTime, Counters, DcgmRecord, Xid
from gputally.counted import Losses as Losses
from gputally.counted import SelfUsage as SelfUsage
from gputally.foreign import ForeignFamily
from gputally.kernel import Namespaces as Namespaces
from gputally.kernel import Process as Process
from gputally.kernel import ProcessKey as ProcessKey


class Unreadable(Exception):
    """The one way in which the outside fails; the text says what, and what would mend it."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class Pace(Enum):
    """How often a reading is taken."""

    ONCE = "once"
    INTERVAL = "interval"
    TICK = "tick"


class State(Enum):
    """How a GPU is, as far as its answers tell."""

    OK = "ok"
    LOST = "lost"
    HUNG = "hung"
    RESET_REQUIRED = "reset_required"
    FAILING = "failing"
    UNSUPPORTED = "unsupported"
    """It is there, and answers nothing that is asked."""
    UNREAD = "unread"
    """Nobody can be asked about it: its driver is down, or was let go of."""


LIBRARY_MISMATCH = 18
"""NVML's code for a library that is not of the driver that is loaded; this process cannot mend it."""
YIELDED = -1
"""None of NVML's codes: the source let go of the GPUs because it was told to."""


# Nouns that come in hundreds per tick, or are keys of dicts, are named tuples: as frozen, and much cheaper.
class Owner(NamedTuple):
    """Whose a process is."""

    kind: str
    namespace: str = ""
    pod: str = ""
    container: str = ""
    workload: str = ""


UNKNOWN = Owner(kind="unknown")
"""Whoever a process belongs to that could not be read."""

PENDING = Owner(kind="pending")
"""Whoever a process belongs to whose name is still coming."""

UNNAMED = Owner(kind="unnamed")
"""Whoever a process belongs to whose name did not come in time."""


@dataclass(frozen=True)
class Detail:
    """More about an owner than tells it apart: what an info row shows."""

    uid: str = ""
    container_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node: str = ""


class Grant(NamedTuple):
    """A GPU, or one MIG instance of it, that was allocated to an owner."""

    owner: Owner
    uuid: str
    """Empty where the device it was given is none that we know."""
    mig: str = ""
    claimed: Claimed | None = None
    """Where it was allocated by a claim."""


class Holder(NamedTuple):
    """A process that holds a context on a GPU, or on one MIG instance of it."""

    pid: int
    memory_used_bytes: int | None
    mig: str = ""
    """The uuid of the MIG instance."""
    mps: bool = False
    """It works through an MPS server."""


@dataclass(frozen=True)
class Instance:
    """A MIG instance: a part of a GPU that is used like a GPU."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str | None = None
    slices: int | None = None
    """Compute slices it has of its GPU's."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    utilization_ratio: float | None = None
    profile_id: int | None = None
    placement_start: int | None = None
    """The first of its memory slices: with the number of its profile, what no other instance of a GPU has."""


class Activity(NamedTuple):
    """What one process did on a GPU since the answer before, in the driver's own time."""

    pid: int
    timestamp_us: int
    sm_ratio: float
    memory_ratio: float | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None


@dataclass(frozen=True)
class DeviceInfo:
    """What does not change while the driver is loaded."""

    model: str | None = None
    architecture: str | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    vbios_version: str | None = None
    compute_capability: str | None = None
    minor_number: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    pcie_link_generation_max: str | None = None
    pcie_link_width_max: str | None = None
    energy_scope: str | None = None
    """What the energy counter counts: the gpu, or the module with CPU and memory on it."""


@dataclass(frozen=True)
class Device:
    """One GPU as it was last read; every reading is absent until it is known."""

    uuid: str
    index: int
    state: State = State.OK
    info: DeviceInfo = DeviceInfo()
    read_at: float | None = None
    """Monotonic time of the newest tick reading."""
    gauges_at: float | None = None
    """Monotonic time of the newest interval reading."""

    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    encoder_utilization_ratio: float | None = None
    decoder_utilization_ratio: float | None = None
    jpeg_utilization_ratio: float | None = None
    ofa_utilization_ratio: float | None = None
    activity_ratio: Mapping[str, float] = field(default_factory=dict)
    """Part of the GPU -> how much of it was in use since the interval before, by the GPU's own meters."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_max_watts: float | None = None
    power_limit_min_watts: float | None = None
    power_limit_default_watts: float | None = None
    energy_uj: int | None = None
    """The hardware's energy counter, in integer microjoules."""
    temperature_celsius: Mapping[str, float] = field(default_factory=dict)
    temperature_threshold_celsius: Mapping[str, float] = field(default_factory=dict)
    clock_hertz: Mapping[str, int] = field(default_factory=dict)
    clock_max_hertz: Mapping[str, int] = field(default_factory=dict)
    performance_state: int | None = None
    fan_speed_ratio: float | None = None
    throttle_active: Mapping[str, bool] = field(default_factory=dict)
    pcie_link_generation: int | None = None
    pcie_link_width: int | None = None
    pcie_bytes_per_second: Mapping[str, float] = field(default_factory=dict)
    """Only where it is asked for: the driver takes 20 ms over each direction."""
    retired_pages: Mapping[str, int] = field(default_factory=dict)
    retired_pages_pending: bool | None = None
    remapped_rows: Mapping[str, int] = field(default_factory=dict)
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    mode_enabled: Mapping[str, bool] = field(default_factory=dict)
    compute_mode: str | None = None
    recovery_action: str | None = None
    """What the driver says would mend the GPU; "none" while nothing is broken."""
    counters: Counters = field(default_factory=Counters)
    xids: Mapping[int, Xid] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    """Calls that our rights do not allow."""
    nvlink_bytes_per_second: Mapping[str, float] = field(default_factory=dict)
    dcgm_fields: Mapping[int, float] = field(default_factory=dict)
    """DCGM's own numbers, by field."""
    dcgm_records: Mapping[int, DcgmRecord] = field(default_factory=dict)
    instances: tuple[Instance, ...] | None = None
    """MIG instances; None where the GPU is not in MIG mode."""
    slices: int | None = None
    """Compute slices of the whole GPU, in MIG mode."""
    epoch: int = 0
    """Counts driver loads and MIG layouts: counters of two epochs cannot be compared."""
    holders: tuple[Holder, ...] | None = None
    listed_at: float | None = None
    """Monotonic time by which the driver had named the holders."""
    activities: Sequence[Activity] | None = None
    """What processes did since the reading before; empty = nobody was busy, None = not known."""
    activity_seconds: float | None = None
    """The time that `activities` tell of."""
    sampled_at: float | None = None
    """Monotonic time by which the driver had told of them."""
    clock_jumped: bool = False
    """The clock was set since the reading before, so that nothing is known of who was active."""


@dataclass(frozen=True)
class Health:
    """How a source or resolver is."""

    source: str
    up: bool
    reason: str = ""
    code: int | None = None
    """The outside's own code, where it gave one."""
    duration_seconds: float | None = None
    succeeded_at: float | None = None
    """Monotonic time of its newest good answer."""
    about: str = "gpus"
    """What it tells of: gpus, more of gpus that another has found, or their owners."""
    place: str = ""
    """Where it was found, if that had to be found."""


@dataclass(frozen=True)
class Reading:
    """What one source answered."""

    devices: tuple[Device, ...] = ()
    stuck: Mapping[str, int] = field(default_factory=dict)
    """Lane -> calls outstanding past their deadline."""
    losses: Losses = field(default_factory=Losses)
    calls: Mapping[str, CallTime] = field(default_factory=dict)
    """NVML call -> what it took so far; only at the interval's pace."""
    foreign: tuple[ForeignFamily, ...] = ()
    seen: tuple[Device, ...] = ()
    """GPUs that it names without telling of them; believed where nobody else tells of any."""
    down: str = ""
    """Why the source is down, though it has something to tell; empty = it is up."""
    code: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """One view of the node at one moment."""

    monotonic: float
    time: float
    devices: tuple[Device, ...] = ()
    processes: Mapping[int, Process] = field(default_factory=dict)
    """pid -> the living process that a GPU names."""
    owners: Mapping[ProcessKey, Owner] = field(default_factory=dict)
    details: Mapping[Owner, Detail] = field(default_factory=dict)
    grants: tuple[Grant, ...] | None = None
    """What was allocated to whom; None where nobody tells."""
    foreign: tuple[ForeignFamily, ...] = ()
    """Series of another exporter about these GPUs."""
    vgpu_ratio: float | None = None
    """How many virtual GPUs one GPU is divided into; None where nobody says so."""
    host_pid: str | None = None
    """Whether our PID namespace shows every process: yes, nested or no."""
    process_results: Mapping[str, int] = field(default_factory=dict)
    """How well the processes that GPUs name could be traced -> how many."""
    health: tuple[Health, ...] = ()
    stuck: Mapping[str, int] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    calls: Mapping[str, CallTime] = field(default_factory=dict)
    self_usage: SelfUsage = SelfUsage()  # noqa: RUF009  it is frozen
