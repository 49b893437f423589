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


def ready(call: str, handle: Any) -> Callable[..., Any] | None:
    """The call on that handle, made ready; None if it is not one of these.

    A GPU is asked one thing at a time, so each call has one place to which its answer is written.
    """
    if call in NUMBERS:
        return _number(function(call), handle, NUMBERS[call]())
    if call in PAIRS:
        return _pair(function(call), handle, _INT(), _INT())
    if call in RECORDS:
        return _record(function(call), handle, *RECORDS[call])
    return None


def _number(ask: Callable[..., int], handle: Any, answer: Any) -> Callable[..., int]:
    place = ctypes.byref(answer)

    def number(*args: int) -> int:
        if code := ask(handle, *args, place):
            raise pynvml.NVMLError(code)
        told: int = answer.value
        return told

    return number


def _pair(ask: Callable[..., int], handle: Any, one: Any, other: Any) -> Callable[[], list[int]]:
    places = ctypes.byref(one), ctypes.byref(other)

    def pair() -> list[int]:
        if code := ask(handle, *places):
            raise pynvml.NVMLError(code)
        return [one.value, other.value]

    return pair


def _record(
    ask: Callable[..., int], handle: Any, layout: struct.Struct, names: tuple[str, ...], begin: bytes
) -> Callable[[], dict[str, int]]:
    answer = ctypes.create_string_buffer(begin, layout.size)

    def record() -> dict[str, int]:
        if code := ask(handle, answer):
            raise pynvml.NVMLError(code)
        return dict(zip(names, layout.unpack(answer), strict=True))

    return record
