"""NVML's calls that tell a number or two: made ready once for each GPU, since they are asked again and again.

The binding's own functions do the same, and take several times as long over it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pynvml

from gputally.machine.nvml_tables import function
from gputally.model import Unreadable

_INT, _LONG = ctypes.c_uint, ctypes.c_ulonglong

NUMBERS: dict[str, Any] = {
    "nvmlDeviceGetTotalEnergyConsumption": _LONG,
    "nvmlDeviceGetPowerUsage": _INT,
    "nvmlDeviceGetEnforcedPowerLimit": _INT,
    "nvmlDeviceGetTemperature": _INT,
    "nvmlDeviceGetClockInfo": _INT,
    "nvmlDeviceGetPerformanceState": _INT,
    "nvmlDeviceGetCurrentClocksEventReasons": _LONG,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _LONG,
    "nvmlDeviceGetFanSpeed": _INT,
}
"""Calls that write one number behind their last argument, and of which type."""

PAIRS = (
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetMigMode",
)
"""Calls that write two numbers behind their last arguments."""

RECORDS = {
    "nvmlDeviceGetUtilizationRates": (struct.Struct("=II"), ("gpu", "memory"), b""),
    "nvmlDeviceGetMemoryInfo": (struct.Struct("=QQQ"), ("total", "free", "used"), b""),
    "nvmlDeviceGetMemoryInfo_v2": (
        struct.Struct("=I4xQQQQ"),
        ("version", "total", "reserved", "free", "used"),
        struct.pack("=I", pynvml.nvmlMemory_v2),
    ),
}
"""Calls that fill a record behind their last argument: its layout, its names, and how it must begin."""


def ready(handle: Any, call: str, *args: int) -> Callable[[], Any] | None:
    """The call on that handle, made ready; None if it is not one of these.

    A GPU is asked one thing at a time, so each call has one place to which its answer is written.
    """
    if call in NUMBERS:
        return _number(function(call), handle, args, NUMBERS[call]())
    if call in PAIRS:
        return _pair(function(call), handle, _INT(), _INT())
    return record(handle, call) if call in RECORDS else None


def _number(ask: Callable[..., int], handle: Any, args: tuple[int, ...], answer: Any) -> Callable[[], int]:
    given = (handle, *args, ctypes.byref(answer))

    def number() -> int:
        if code := ask(*given):
            raise _unreadable(ask, code)
        told: int = answer.value
        return told

    return number


def _pair(ask: Callable[..., int], handle: Any, one: Any, other: Any) -> Callable[[], list[int]]:
    given = (handle, ctypes.byref(one), ctypes.byref(other))

    def pair() -> list[int]:
        if code := ask(*given):
            raise _unreadable(ask, code)
        return [one.value, other.value]

    return pair


def record(handle: Any, call: str) -> Callable[[], dict[str, int]]:
    """A call that fills a record, made ready on that handle."""
    ask, (layout, names, begin) = function(call), RECORDS[call]
    answer = ctypes.create_string_buffer(begin, layout.size)

    def read() -> dict[str, int]:
        if code := ask(handle, answer):
            raise _unreadable(ask, code)
        return dict(zip(names, layout.unpack(answer), strict=True))

    return read


def _unreadable(ask: Any, code: int) -> Unreadable:
    return Unreadable(f"{ask.__name__}: {pynvml.NVMLError(code)}", code)
