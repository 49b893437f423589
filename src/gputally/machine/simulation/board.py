"""What NVML answers about a simulated GPU's instances, meters and counters, in NVML's own units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gputally.machine.simulation.answers import ANSWERS, NO_INSTANCE, NOT_FOUND, NOT_SUPPORTED, Asked
from gputally.machine.simulation.cast import GIB
from gputally.machine.simulation.gpu import Account, Window
from gputally.machine.simulation.roles import mig_uuid
from gputally.model import Unreadable

SLICES = 7
PROFILES = ((2, "3g.40gb", 3, 40), (6, "2g.20gb", 2, 20), (14, "1g.10gb", 1, 10))
"""Highest number of a GPU instance, its profile, slices and GiB, as an H100 gives them."""
PLACEMENTS = {"3g.40gb": (9, 4), "2g.20gb": (14, 2), "1g.10gb": (19, 1)}
"""Profile -> its number, and how many of the eight memory slices it takes."""
METER_WINDOWS = 30
"""The meters look back over five seconds."""
THRESHOLDS = {0: 92, 1: 89, 2: 95, 3: 87}


def instances(asked: Asked) -> list[int]:
    """Numbers of the GPU instances that the cast uses, in order; none where the GPU is whole."""
    used = {role.workload.instance for role in asked.gpu.roles}
    return sorted(number for number in used if number is not None) if asked.mig else []


def instance_uuids(asked: Asked, seed: int) -> dict[str, int]:
    """Uuid of each MIG instance -> its number."""
    return {mig_uuid(seed, asked.index, number): number for number in instances(asked)}


def of_place(asked: Asked, seed: int, place: int) -> str:
    """The uuid of the MIG instance in that place."""
    if not asked.mig:
        raise Unreadable("not in MIG mode", code=NOT_SUPPORTED)
    uuids = list(instance_uuids(asked, seed))
    if place >= len(uuids):
        raise Unreadable(f"no MIG instance in place {place}", code=NOT_FOUND)
    return uuids[place]


def of_instance(asked: Asked, number: int, call: str) -> Any:
    """Answer one call about a MIG instance."""
    if call not in _OF_INSTANCE:
        raise Unreadable(f"{call}: not supported of a MIG instance", code=NOT_SUPPORTED)
    return _OF_INSTANCE[call](asked, number)


def _profile(number: int) -> tuple[str, int, int]:
    for highest, name, slices, gib in PROFILES:
        if number <= highest:
            return name, slices, gib * GIB
    return PROFILES[-1][1], 1, 10 * GIB


def gpu_instance(asked: Asked, number: int) -> dict[str, Any]:
    """Where a GPU instance lies: side by side in the order of their numbers, the largest first."""
    there = instances(asked)
    if number not in there:
        raise Unreadable(f"no GPU instance {number}", code=NOT_FOUND)
    profile, size = PLACEMENTS[_profile(number)[0]]
    start = sum(PLACEMENTS[_profile(other)[0]][1] for other in there if other < number)
    return {"id": number, "profileId": profile, "placement": {"start": start, "size": size}}


def _memory(asked: Asked, number: int) -> dict[str, int]:
    total = _profile(number)[2]
    living = [role.workload for _, role in asked.living if role.workload.instance == number]
    used = min(total, sum(workload.memory_bytes for workload in living))
    return {"total": total, "reserved": 0, "free": total - used, "used": used}


def _processes(asked: Asked, number: int) -> list[list[int]]:
    rows = ANSWERS["nvmlDeviceGetComputeRunningProcesses"](asked)
    return [row for row in rows if row[2] == number != NO_INSTANCE]


_OF_INSTANCE: dict[str, Callable[[Asked, int], Any]] = {
    "nvmlDeviceGetGpuInstanceId": lambda _, number: number,
    "nvmlDeviceGetComputeInstanceId": lambda _, __: 0,
    "nvmlDeviceGetName": lambda _, number: f"NVIDIA H100 80GB HBM3 MIG {_profile(number)[0]}",
    "nvmlDeviceGetAttributes_v2": lambda _, number: {"computeInstanceSliceCount": _profile(number)[1]},
    "nvmlDeviceGetMemoryInfo_v2": _memory,
    "nvmlDeviceGetComputeRunningProcesses": _processes,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _, __: [],
    "nvmlDeviceGetMPSComputeRunningProcesses": lambda _, __: [],
}


def meters(asked: Asked, metrics: Sequence[int]) -> dict[str, Any]:
    """GPM's metrics of a whole GPU."""
    if asked.mig:
        raise Unreadable("not supported in MIG mode", code=NOT_SUPPORTED)
    return _meters(asked, metrics, lambda _: True)


def instance_meters(asked: Asked, number: int, metrics: Sequence[int]) -> dict[str, Any]:
    """The same of one GPU instance."""
    if number not in instances(asked):
        raise Unreadable(f"no GPU instance {number}", code=NOT_FOUND)
    return _meters(asked, metrics, lambda account: _lives_in(account, number))


def _meters(asked: Asked, metrics: Sequence[int], counts: Callable[[Account], bool]) -> dict[str, Any]:
    windows = list(asked.gpu.windows)[-METER_WINDOWS:]
    busy = _percent(windows, counts, lambda _: 100)
    memory = _percent(
        windows, counts, lambda account: account.workload.memory_percent if account.workload else 0
    )
    known = {1: busy, 2: 0.92 * busy, 3: 0.38 * busy, 5: 0.47 * busy, 10: memory}
    known |= {11: 0.0, 12: 0.21 * busy, 13: 0.06 * busy}
    return {str(metric): round(known[metric], 3) for metric in metrics if metric in known}


def _percent(
    windows: Sequence[Window], counts: Callable[[Account], bool], load: Callable[[Account], int]
) -> float:
    slots = sum(window.end - window.start for window in windows)
    ran = sum(
        taken * load(account)
        for window in windows
        for account, taken in window.ran.items()
        if counts(account)
    )
    return min(100.0, ran / slots) if slots else 0.0


def _lives_in(account: Account, number: int) -> bool:
    return account.workload is not None and account.workload.instance == number


def field_values(asked: Asked, wanted: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Numbered fields: a healthy board, with traffic that follows the work done."""
    worked = asked.gpu.counter_uj - asked.gpu.idle_slot_uj * (asked.gpu.slot - asked.gpu.slot % 10)
    known = {
        82: asked.gpu.temperature_mc // 1000 + 6,
        197: 3 * worked,
        198: 5 * worked,
        138: worked // 40,
        139: worked // 41,
        **dict.fromkeys((3, 4, 5, 6, 38, 45, 52, 59, 160, 142, 143, 144, 145, 94, 230), 0),
        **dict.fromkeys((74, 75, 76, 77, 78, 79, 269, 270, 271), 0),
    }
    return {str(id): known.get(id, {"error": NOT_SUPPORTED}) for id, _ in wanted}


def threshold(asked: Asked, which: int) -> int:
    """Degrees at which something is done about the heat."""
    if which not in THRESHOLDS:
        raise Unreadable(f"no temperature threshold {which}", code=NOT_SUPPORTED)
    return THRESHOLDS[which]


def engine(asked: Asked) -> list[int]:
    """JPEG decoder and optical flow accelerator, which nobody in the cast uses."""
    if asked.mig:
        raise Unreadable("not supported in MIG mode", code=NOT_SUPPORTED)
    return [0, 1_000_000 // 6]


BOARD_ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetFieldValues": field_values,
    "nvmlGpmQueryDeviceSupport": lambda asked: {"version": 1, "isSupportedDevice": 1},
    "nvmlGpmMetricsGet": meters,
    "nvmlGpmMigMetricsGet": instance_meters,
    "nvmlGpuInstanceGetInfo": gpu_instance,
    "nvmlDeviceGetMaxMigDeviceCount": lambda asked: SLICES,
    "nvmlDeviceRegisterEvents": lambda asked: None,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda asked: 5,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda asked: 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda asked: 5,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda asked: 16,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda asked: asked.gpu.board.limit_watts * 1000,
    "nvmlDeviceGetTemperatureThreshold": threshold,
    "nvmlDeviceGetJpgUtilization": engine,
    "nvmlDeviceGetOfaUtilization": engine,
    "nvmlDeviceGetPersistenceMode": lambda asked: 1,
    "nvmlDeviceGetAccountingMode": lambda asked: 0,
    "nvmlDeviceGetEccMode": lambda asked: [1, 1],
    "nvmlDeviceGetComputeMode": lambda asked: 0,
}
"""Device calls beside those of answers.py."""
