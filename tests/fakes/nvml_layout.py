"""The shared file of the fake NVML, as nvml.h lays it out, and what a test does to one GPU in it."""

import ctypes
import enum
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from tests.fakes.shared import HERE, I32, U32, U64, Text96, assertions, layout

CALLS = ("*", *re.findall(r"X\((nvml\w+)\)", (HERE / "nvml.h").read_text()))

NO_INSTANCE = 2**32 - 1
ABSENT = 2**32 - 1
AUTO = 2**64 - 1
NOT_AVAILABLE = 2**64 - 1


class List(enum.IntFlag):
    """The process lists of NVML; a process may be in several."""

    COMPUTE = 1
    GRAPHICS = 2
    MPS = 4


Text32 = Annotated[str, ctypes.c_char * 32]
Text80 = Annotated[str, ctypes.c_char * 80]
U32x2 = Annotated[ctypes.Array[ctypes.c_uint32], ctypes.c_uint32 * 2]
U32x4 = Annotated[ctypes.Array[ctypes.c_uint32], ctypes.c_uint32 * 4]
U32x8 = Annotated[ctypes.Array[ctypes.c_uint32], ctypes.c_uint32 * 8]
U64x2 = Annotated[ctypes.Array[ctypes.c_uint64], ctypes.c_uint64 * 2]
U64x4 = Annotated[ctypes.Array[ctypes.c_uint64], ctypes.c_uint64 * 4]
U64x8 = Annotated[ctypes.Array[ctypes.c_uint64], ctypes.c_uint64 * 8]
F64x16 = Annotated[ctypes.Array[ctypes.c_double], ctypes.c_double * 16]
U32x16 = Annotated[ctypes.Array[ctypes.c_uint32], ctypes.c_uint32 * 16]


@layout
class Call(ctypes.Structure):
    """What one call does on one GPU, and how often it was made."""

    __slots__ = ()

    count: U64
    first: U64
    last: U64
    rc: I32
    delay_us: U32
    hang: U32


@layout
class Process(ctypes.Structure):
    """One process on one GPU."""

    __slots__ = ()

    pid: U32
    lists: U32
    memory: U64
    gpu_instance: U32
    compute_instance: U32
    protected_memory: U64


@layout
class Sample(ctypes.Structure):
    """One utilization sample; timestamp 0 stands for the time of the call."""

    __slots__ = ()

    pid: U32
    timestamp: U64
    sm: U32
    mem: U32
    enc: U32
    dec: U32


@layout
class Field(ctypes.Structure):
    """The answer to one field of nvmlDeviceGetFieldValues."""

    __slots__ = ()

    id: U32
    scope: U32
    type: U32
    rc: I32
    value: U64


@layout
class Instance(ctypes.Structure):
    """A MIG instance; without a uuid its place is empty."""

    __slots__ = ()

    uuid: Text96
    name: Text96
    gpu_instance: U32
    compute_instance: U32
    slices: U32
    meter: U32
    profile_id: U32
    placement_start: U32
    memory_total: U64
    memory_used: U64


@layout
class Event(ctypes.Structure):
    """An Xid that happened on a GPU."""

    __slots__ = ()

    place: U32
    xid: U32


CallRow = Annotated[ctypes.Array[Call], Call * len(CALLS)]
ProcessTable = Annotated[ctypes.Array[Process], Process * 512]
SampleTable = Annotated[ctypes.Array[Sample], Sample * 512]
FieldTable = Annotated[ctypes.Array[Field], Field * 64]
InstanceTable = Annotated[ctypes.Array[Instance], Instance * 8]
EventTable = Annotated[ctypes.Array[Event], Event * 64]


@layout
class Gpu(ctypes.Structure):
    """One GPU: its fields answer the calls of the same name, in NVML's units."""

    __slots__ = ()

    calls: CallRow

    version: U32
    in_flight: U32
    overlaps: U64

    uuid: Text96
    name: Text96
    serial: Text32
    part_number: Text80
    vbios: Text32
    index: U32
    minor: U32
    brand: U32
    architecture: U32
    capability_major: U32
    capability_minor: U32
    pci_domain: U32
    pci_bus: U32
    pci_device: U32
    pci_device_id: U32
    pci_subsystem_id: U32

    memory_total: U64
    memory_reserved: U64
    memory_used: U64
    bar1_total: U64
    bar1_used: U64

    utilization_gpu: U32
    utilization_memory: U32
    utilization_encoder: U32
    utilization_decoder: U32
    utilization_jpeg: U32
    utilization_ofa: U32
    power_mw: U32
    power_limit_mw: U32
    power_limit_enforced_mw: U32
    power_limit_default_mw: U32
    power_limit_min_mw: U32
    power_limit_max_mw: U32
    temperature: U32
    temperature_memory: U32
    thresholds: U32x8
    clocks: U32x4
    clocks_max: U32x4
    performance_state: U32
    fans: U32
    fan_speed: U32
    clock_reasons: U64

    persistence_mode: U32
    compute_mode: U32
    ecc_mode: U32
    ecc_mode_pending: U32
    mig_mode: U32
    mig_mode_pending: U32
    mig_devices_max: U32
    accounting_mode: U32
    display_active: U32
    display_mode: U32
    virtualization_mode: U32
    pcie_generation: U32
    pcie_width: U32
    pcie_generation_max: U32
    pcie_width_max: U32
    pcie_replays: U32
    pcie_throughput_kb: U32x2
    recovery_action: U32
    pcie_bytes: U64x2
    nvlink_kib: U64x2
    ecc_errors: U64x4
    violation_ns: U64x8

    mig_generation: U32
    mig_parent_refuses: U32
    instances: InstanceTable
    gpm_supported: U32
    meters: F64x16

    energy_uj: U64
    energy_since_ns: U64
    energy_quantum_ns: U64
    energy_rate_mw: U32

    growing: U32
    grown: U32

    process_count: U32
    sample_count: U32
    field_count: U32
    process_table: ProcessTable
    sample_table: SampleTable
    field_table: FieldTable

    def run(
        self,
        pid: int,
        memory: int | None = 1 << 30,
        lists: List = List.COMPUTE,
        *,
        gpu_instance: int = NO_INSTANCE,
        compute_instance: int = NO_INSTANCE,
    ) -> None:
        """Puts a process on the GPU, or changes it; memory None is NVML's "not available"."""
        held = NOT_AVAILABLE if memory is None else memory
        process = Process(pid, lists, held, gpu_instance, compute_instance, 0)
        self._replace("process", [row for row in self._rows("process") if row.pid != pid] + [process])

    def end(self, pid: int) -> None:
        """Takes a process and its samples off the GPU."""
        self._replace("process", [row for row in self._rows("process") if row.pid != pid])
        self._replace("sample", [row for row in self._rows("sample") if row.pid != pid])

    def busy(self, sm: Mapping[int, int]) -> None:
        """Makes exactly these processes busy: each call answers a fresh sample of each."""
        injected = [row for row in self._rows("sample") if row.timestamp]
        self._replace("sample", injected + [Sample(pid, 0, percent) for pid, percent in sm.items()])

    def sample(self, pid: int, timestamp: int, sm: int = 0, mem: int = 0, enc: int = 0, dec: int = 0) -> None:
        """Adds one sample, however odd, answered to who has not seen its timestamp (in microseconds)."""
        self._replace("sample", [*self._rows("sample"), Sample(pid, timestamp, sm, mem, enc, dec)])

    def forget_samples(self) -> None:
        """Takes away all samples, also those of busy processes."""
        self._replace("sample", [])

    def divide(self, instances: Sequence[Instance]) -> None:
        """Puts the GPU into MIG mode with these instances; handles of those before become invalid."""
        self.mig_mode = self.mig_mode_pending = 1
        for place in range(len(self.instances)):
            self.instances[place] = instances[place] if place < len(instances) else Instance()
        self.mig_generation += 1

    def unite(self) -> None:
        """Ends MIG mode."""
        self.divide([])
        self.mig_mode = self.mig_mode_pending = 0

    def field(self, id: int, value: int = 0, *, scope: int = 0, type: int = 3, rc: int = 0) -> None:
        """Sets the answer to a field value, before what the gauges say; type 3 is unsigned long long."""
        others = [row for row in self._rows("field") if (row.id, row.scope) != (id, scope)]
        self._replace("field", [*others, Field(id, scope, type, rc, value)])

    @property
    def watts(self) -> float:
        """The power shown; setting it also sets the pace of the energy counter."""
        return self.power_mw / 1000

    @watts.setter
    def watts(self, watts: float) -> None:
        with self._metering():
            self.power_mw = self.energy_rate_mw = round(watts * 1000)

    @property
    def energy_mj(self) -> int:
        """What the energy counter shows; setting it stops the counter at exactly that."""
        return self._shown_uj(self._tick()) // 1000

    @energy_mj.setter
    def energy_mj(self, millijoules: int) -> None:
        with self._metering():
            self.energy_uj, self.energy_rate_mw = millijoules * 1000, 0

    @property
    def quantum(self) -> float:
        """Seconds between two moves of the energy counter; 0 moves it always."""
        return self.energy_quantum_ns / 1e9

    @quantum.setter
    def quantum(self, seconds: float) -> None:
        with self._metering():
            self.energy_quantum_ns = round(seconds * 1e9)

    def freeze(self) -> None:
        """Stops the energy counter; the power shown stays."""
        with self._metering():
            self.energy_rate_mw = 0

    def thaw(self) -> None:
        """Lets the energy counter follow the power shown again."""
        with self._metering():
            self.energy_rate_mw = self.power_mw

    def reset(self) -> None:
        """Starts the energy counter from 0, as a driver reload does."""
        with self._metering():
            self.energy_uj = 0

    def jump(self, millijoules: int) -> None:
        """Adds to the energy counter at once."""
        with self._metering():
            self.energy_uj += millijoules * 1000

    @contextmanager
    def _metering(self) -> Iterator[None]:
        """Brings the energy counter up to now, so that what changes next counts from here."""
        with self._changing():
            now = max(self._tick(), self.energy_since_ns)
            self.energy_uj, self.energy_since_ns = self._shown_uj(now), now
            yield

    def _tick(self) -> int:
        now = time.monotonic_ns()
        return now - now % self.energy_quantum_ns if self.energy_quantum_ns else now

    def _shown_uj(self, now: int) -> int:
        elapsed = max(0, now - self.energy_since_ns)
        return self.energy_uj + self.energy_rate_mw * elapsed // 10**6

    def _rows(self, kind: str) -> list[Any]:
        table, count = getattr(self, f"{kind}_table"), getattr(self, f"{kind}_count")
        return [type(row).from_buffer_copy(row) for row in table[:count]]

    def _replace(self, kind: str, rows: Sequence[ctypes.Structure]) -> None:
        table = getattr(self, f"{kind}_table")
        with self._changing():
            for place, row in enumerate(rows):
                table[place] = row
            setattr(self, f"{kind}_count", len(rows))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Makes the library wait, or read again, while several words change together."""
        self.version += 1
        try:
            yield
        finally:
            self.version += 1


GpuTable = Annotated[ctypes.Array[Gpu], Gpu * 16]


@layout
class Control(ctypes.Structure):
    """The whole shared file."""

    __slots__ = ()

    size: U64
    calls: CallRow
    driver_version: Text80
    nvml_version: Text80
    cuda_version: U32
    process_stride: U32
    initialised: U32
    count: U32
    gpm_samples: U32
    event_sets: U32
    event_count: U32
    events: EventTable
    order: U32x16
    gpus: GpuTable


def layout_check() -> Iterator[str]:
    """Has the compiler hold every size and offset here against those in nvml.h."""
    return assertions("nvml.h", (Call, Process, Sample, Field, Instance, Event, Gpu, Control))
