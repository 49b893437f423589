"""What nvidia-smi and another exporter would write of simulated GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gputally.machine.simulation.answers import ANSWERS, Asked
from gputally.model import Unreadable

MIB = 2**20
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}


def _of(call: str, *path: Any, args: tuple[Any, ...] = (), scale: float = 1) -> Callable[[Asked], Any]:
    def cell(asked: Asked) -> Any:
        answer = ANSWERS[call](asked, *args)
        for step in path:
            answer = answer[step]
        return answer if isinstance(answer, str) else answer / scale

    return cell


_COLUMNS: Mapping[str, tuple[str, Callable[[Asked], Any]]] = {
    "index": ("", lambda asked: str(asked.index)),
    "uuid": ("", lambda asked: asked.uuid),
    "name": ("", _of("nvmlDeviceGetName")),
    "pci.bus_id": ("", _of("nvmlDeviceGetPciInfo", "busId")),
    "vbios_version": ("", _of("nvmlDeviceGetVbiosVersion")),
    "driver_version": ("", lambda _: "580.95.05"),
    "compute_cap": ("", lambda _: "9.0"),
    "utilization.gpu": ("%", _of("nvmlDeviceGetUtilizationRates", "gpu")),
    "utilization.memory": ("%", _of("nvmlDeviceGetUtilizationRates", "memory")),
    "utilization.encoder": ("%", _of("nvmlDeviceGetEncoderUtilization", 0)),
    "utilization.decoder": ("%", _of("nvmlDeviceGetDecoderUtilization", 0)),
    **{
        f"memory.{part}": ("MiB", _of("nvmlDeviceGetMemoryInfo_v2", part, scale=MIB))
        for part in ("total", "used", "free", "reserved")
    },
    "power.draw": ("W", _of("nvmlDeviceGetPowerUsage", scale=1000)),
    "enforced.power.limit": ("W", _of("nvmlDeviceGetEnforcedPowerLimit", scale=1000)),
    "power.max_limit": ("W", _of("nvmlDeviceGetPowerManagementLimitConstraints", 1, scale=1000)),
    "temperature.gpu": ("", _of("nvmlDeviceGetTemperature")),
    **{
        f"clocks.current.{name}": ("MHz", _of("nvmlDeviceGetClockInfo", args=(kind,)))
        for name, kind in CLOCKS.items()
    },
    **{
        f"clocks.max.{name}": ("MHz", _of("nvmlDeviceGetMaxClockInfo", args=(kind,)))
        for name, kind in CLOCKS.items()
    },
    "pstate": ("", lambda _: "P0"),
}


def table(arguments: Sequence[str], gpus: Sequence[Asked]) -> bytes:
    """The table that was asked for; GPUs have no fan, and what a GPU does not support is [N/A]."""
    query, _, names = arguments[0].partition("=")
    if query == "--query-gpu":
        return _gpus(names.split(","), gpus)
    if query == "--query-compute-apps":
        rows = [
            f"{asked.uuid}, {pid}, {role.workload.memory_bytes // MIB}"
            for asked in gpus
            for pid, role in asked.living
        ]
        return "\n".join(["gpu_uuid, pid, used_gpu_memory [MiB]", *rows, ""]).encode()
    raise Unreadable(f"nvidia-smi: no option {query}")


def _gpus(names: Sequence[str], gpus: Sequence[Asked]) -> bytes:
    units = {name: _COLUMNS[name][0] if name in _COLUMNS else "" for name in names}
    header = ", ".join(f"{name} [{units[name]}]" if units[name] else name for name in names)
    rows = [", ".join(_cell(name, asked) for name in names) for asked in gpus]
    return "\n".join([header, *rows, ""]).encode()


def _cell(name: str, asked: Asked) -> str:
    if name not in _COLUMNS:
        return "[N/A]"
    unit, cell = _COLUMNS[name]
    try:
        value = cell(asked)
    except Unreadable:
        return "[N/A]"
    return value if isinstance(value, str) else f"{value:.2f}" if unit == "W" else str(round(value))


def exporter_text(uuids: Sequence[str], slot: int) -> bytes:
    """A page of a dcgm-exporter; by time alone, since GPUs are asked from threads of their own."""
    lines = [
        "# HELP dcgm_gpu_temp GPU temperature (in C).",
        "# TYPE dcgm_gpu_temp gauge",
        *(
            f'dcgm_gpu_temp{{gpu="{index}",uuid="{uuid}"}} {45 + (slot // 500 + 7 * index) % 20}'
            for index, uuid in enumerate(uuids)
        ),
        "",
    ]
    return "\n".join(lines).encode()
