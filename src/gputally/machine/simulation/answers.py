"""What NVML answers about one simulated GPU, call by call, in NVML's own units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gputally.machine.simulation import Sampler
from gputally.machine.simulation.cast import MIB, Sharing, Workload
from gputally.machine.simulation.gpu import Gpu
from gputally.machine.simulation.rhythm import SLOT_US
from gputally.machine.simulation.roles import Role
from gputally.machine.simulation.samplers import SAMPLERS
from gputally.model import Unreadable

NOT_SUPPORTED = 3
NOT_FOUND = 6
NO_INSTANCE = 0xFFFFFFFF
RESERVED_BYTES = 617 * MIB
GRAPHICS, SM, MEMORY, VIDEO = range(4)
CLOCKS_MAX = {GRAPHICS: 1980, SM: 1980, MEMORY: 2619, VIDEO: 1545}
CLOCKS_IDLE = {GRAPHICS: 345, SM: 345, MEMORY: 2619, VIDEO: 765}
CLOCKS_CAPPED = {GRAPHICS: 1635, SM: 1635, MEMORY: 2619, VIDEO: 1320}
THROTTLE_IDLE, THROTTLE_POWER_CAP = 1, 4
BUSES = (0x17, 0x2A, 0x3D, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)


@dataclass(frozen=True)
class Asked:
    """A GPU as it is now, and how it is to answer."""

    gpu: Gpu
    index: int
    uuid: str
    sampler: Sampler
    epoch_us: int
    """Unix time of slot 0."""

    @property
    def living(self) -> list[tuple[int, Role]]:
        """(pid, role) of the processes that hold a context."""
        found = [(role.living(self.gpu.slot), role) for role in self.gpu.roles]
        return [(key.pid, role) for key, role in found if key is not None]

    @property
    def mig(self) -> bool:
        return self.gpu.board.sharing is Sharing.MIG

    @property
    def mps(self) -> bool:
        return self.gpu.board.sharing is Sharing.MPS


def _memory(asked: Asked) -> dict[str, int]:
    total = asked.gpu.board.memory_bytes
    used = min(sum(role.workload.memory_bytes for _, role in asked.living), total - RESERVED_BYTES)
    return {
        "total": total,
        "reserved": RESERVED_BYTES,
        "free": total - RESERVED_BYTES - used,
        "used": used,
    }


def _utilization(asked: Asked) -> dict[str, int]:
    _refuse_under_mig(asked)
    if not asked.gpu.windows:
        return {"gpu": 0, "memory": 0}
    window = asked.gpu.windows[-1]
    busy = _percent(window.busy, window.end - window.start)
    return {"gpu": busy, "memory": _engine(asked, lambda workload: workload.memory_percent)}


def _encoder(asked: Asked) -> list[int]:
    return _codec(asked, lambda workload: workload.encoder_percent)


def _decoder(asked: Asked) -> list[int]:
    return _codec(asked, lambda workload: workload.decoder_percent)


def _codec(asked: Asked, load: Callable[[Workload], int]) -> list[int]:
    _refuse_under_mig(asked)
    return [_engine(asked, load), 1_000_000 // 6]


def _engine(asked: Asked, load: Callable[[Workload], int]) -> int:
    if not asked.gpu.windows:
        return 0
    window = asked.gpu.windows[-1]
    slots = sum(slots * load(account.workload) for account, slots in window.ran.items() if account.workload)
    return _percent(slots, (window.end - window.start) * 100)


def _process_utilization(asked: Asked, last_seen_us: int) -> list[list[int]]:
    _refuse_under_mig(asked)
    after = [w for w in asked.gpu.windows if asked.epoch_us + w.end * SLOT_US > last_seen_us]
    seen = SAMPLERS[asked.sampler](after)
    if not seen:
        raise Unreadable("nvmlDeviceGetProcessUtilization: nobody was busy", code=NOT_FOUND)
    newest = asked.epoch_us + after[-1].end * SLOT_US
    slots = sum(w.end - w.start for w in after)
    return [
        [account.key.pid, newest, _percent(busy, slots), *_other_engines(account.workload, busy, slots)]
        for account, busy in seen.items()
    ]


def _other_engines(workload: Workload | None, busy: int, slots: int) -> list[int]:
    if workload is None:
        return [0, 0, 0]
    loads = (workload.memory_percent, workload.encoder_percent, workload.decoder_percent)
    return [_percent(busy * load, slots * 100) for load in loads]


def _clock(asked: Asked, kind: int) -> int:
    reasons = _throttle_reasons(asked)
    if reasons & THROTTLE_IDLE:
        return _of_kind(CLOCKS_IDLE, kind)
    return _of_kind(CLOCKS_CAPPED if reasons & THROTTLE_POWER_CAP else CLOCKS_MAX, kind)


def _of_kind(clocks: dict[int, int], kind: int) -> int:
    if kind not in clocks:
        raise Unreadable(f"no clock of kind {kind}", code=2)
    return clocks[kind]


def _throttle_reasons(asked: Asked) -> int:
    gpu = asked.gpu
    if not gpu.windows or not gpu.windows[-1].busy:
        return THROTTLE_IDLE
    return THROTTLE_POWER_CAP if gpu.power_mw >= gpu.board.limit_watts * 960 else 0


def _temperature(asked: Asked, sensor: int = 0) -> int:
    if sensor != 0:
        raise Unreadable(f"no temperature sensor {sensor}", code=2)
    return asked.gpu.temperature_mc // 1000


def _compute_processes(asked: Asked) -> list[list[int]]:
    return [_listed(asked, pid, role) for pid, role in asked.living]


def _mps_processes(asked: Asked) -> list[list[int]]:
    if not asked.mps:
        return []
    return [_listed(asked, pid, role) for pid, role in asked.living if not role.workload.mps_server]


def _listed(asked: Asked, pid: int, role: Role) -> list[int]:
    instance = role.workload.instance
    if not asked.mig or instance is None:
        return [pid, role.workload.memory_bytes, NO_INSTANCE, NO_INSTANCE]
    return [pid, role.workload.memory_bytes, instance, 0]


def _bus(asked: Asked) -> dict[str, str]:
    return {"busId": f"{asked.index // len(BUSES):08X}:{BUSES[asked.index % len(BUSES)]:02X}:00.0"}


def _refuse_under_mig(asked: Asked) -> None:
    if asked.mig:
        raise Unreadable("not supported in MIG mode", code=NOT_SUPPORTED)


def _percent(part: int, whole: int) -> int:
    return min(100, (200 * part + whole) // (2 * whole)) if whole else 0


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetUUID": lambda asked: asked.uuid,
    "nvmlDeviceGetName": lambda asked: "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetArchitecture": lambda asked: 9,
    "nvmlDeviceGetPciInfo": _bus,
    "nvmlDeviceGetSerial": lambda asked: f"16523230{11_201 + 37 * asked.index}",
    "nvmlDeviceGetVbiosVersion": lambda asked: "96.00.74.00.01",
    "nvmlDeviceGetCudaComputeCapability": lambda asked: [9, 0],
    "nvmlDeviceGetMinorNumber": lambda asked: asked.index,
    "nvmlDeviceGetMemoryInfo_v2": _memory,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetEncoderUtilization": _encoder,
    "nvmlDeviceGetDecoderUtilization": _decoder,
    "nvmlDeviceGetPowerUsage": lambda asked: asked.gpu.power_mw,
    "nvmlDeviceGetEnforcedPowerLimit": lambda asked: asked.gpu.board.limit_watts * 1000,
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda asked: [
        200_000,
        asked.gpu.board.limit_watts * 1000,
    ],
    "nvmlDeviceGetTotalEnergyConsumption": lambda asked: asked.gpu.counter_uj // 1000,
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetMaxClockInfo": lambda asked, kind: _of_kind(CLOCKS_MAX, kind),
    "nvmlDeviceGetPerformanceState": lambda asked: 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _throttle_reasons,
    "nvmlDeviceGetMigMode": lambda asked: [int(asked.mig), int(asked.mig)],
    "nvmlDeviceGetComputeRunningProcesses": _compute_processes,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda asked: [],
    "nvmlDeviceGetMPSComputeRunningProcesses": _mps_processes,
    "nvmlDeviceGetProcessUtilization": _process_utilization,
}
"""Every device call that is supported; all others are NOT_SUPPORTED, the fan among them (SXM has none)."""
