"""NVML's calls that tell a few numbers: made ready for a GPU, since they are asked again and again.

The binding's own functions do the same, and take several times as long over it.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import pynvml

from gputally.columns import picker
from gputally.machine.nvml_tables import FUNCTION_NOT_FOUND
from gputally.model import Unreadable


class Layout(NamedTuple):
    """What a call writes behind its last arguments."""

    format: str
    """As `struct` has it; a multiple of eight bytes, so that the next answer lies well."""
    arguments: tuple[int, ...] = (0,)
    """Where in it each of them points to."""
    names: tuple[str, ...] = ()
    """Of the numbers of a record."""
    begin: bytes = b""
    """How a record must begin when it is handed in."""


_INT, _LONG, _PAIR = Layout("I4x"), Layout("Q"), Layout("II", arguments=(0, 4))

LAYOUTS = {
    "nvmlDeviceGetTotalEnergyConsumption": _LONG,
    "nvmlDeviceGetPowerUsage": _INT,
    "nvmlDeviceGetEnforcedPowerLimit": _INT,
    "nvmlDeviceGetPowerManagementDefaultLimit": _INT,
    "nvmlDeviceGetPowerManagementLimitConstraints": _PAIR,
    "nvmlDeviceGetTemperature": _INT,
    "nvmlDeviceGetTemperatureThreshold": _INT,
    "nvmlDeviceGetClockInfo": _INT,
    "nvmlDeviceGetMaxClockInfo": _INT,
    "nvmlDeviceGetPerformanceState": _INT,
    "nvmlDeviceGetCurrentClocksEventReasons": _LONG,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _LONG,
    "nvmlDeviceGetFanSpeed": _INT,
    "nvmlDeviceGetCurrPcieLinkGeneration": _INT,
    "nvmlDeviceGetCurrPcieLinkWidth": _INT,
    "nvmlDeviceGetPcieThroughput": _INT,
    "nvmlDeviceGetPcieReplayCounter": _INT,
    "nvmlDeviceGetTotalEccErrors": _LONG,
    "nvmlDeviceGetViolationStatus": Layout("QQ", names=("referenceTime", "violationTime")),
    "nvmlDeviceGetPersistenceMode": _INT,
    "nvmlDeviceGetAccountingMode": _INT,
    "nvmlDeviceGetComputeMode": _INT,
    "nvmlDeviceGetEccMode": _PAIR,
    "nvmlDeviceGetMigMode": _PAIR,
    "nvmlDeviceGetEncoderUtilization": _PAIR,
    "nvmlDeviceGetDecoderUtilization": _PAIR,
    "nvmlDeviceGetJpgUtilization": _PAIR,
    "nvmlDeviceGetOfaUtilization": _PAIR,
    "nvmlDeviceGetUtilizationRates": Layout("II", names=("gpu", "memory")),
    "nvmlDeviceGetMemoryInfo": Layout("QQQ", names=("total", "free", "used")),
    "nvmlDeviceGetMemoryInfo_v2": Layout(
        "I4xQQQQ",
        names=("version", "total", "reserved", "free", "used"),
        begin=struct.pack("=I", pynvml.nvmlMemory_v2),
    ),
}


Answers = tuple[list[Any], list[float]]
"""What calls were answered, and the times before the first and after each of them."""


class Numbers:
    """Calls, each with its place in one buffer, which is read when all of them were made.

    For one thread, but for all GPUs: what was just used for one of them is still near when the next one is
    asked, and that makes the better part of what a call costs.
    """

    def __init__(self, calls: Sequence[tuple[Any, ...]], find: Callable[[str], Any]) -> None:
        layouts = [LAYOUTS[call[0]] for call in calls]
        self._layout = struct.Struct("=" + "".join(layout.format for layout in layouts))
        self._buffer = ctypes.create_string_buffer(self._layout.size)
        self._calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []
        self._records: list[tuple[int, tuple[str, ...]]] = []
        """Place of an answer -> names of its numbers."""
        where: list[int | slice] = []
        offset = number = 0
        for place, ((name, *args), layout) in enumerate(zip(calls, layouts, strict=True)):
            pointers = [ctypes.byref(self._buffer, offset + argument) for argument in layout.arguments]
            ctypes.memmove(pointers[0], layout.begin, len(layout.begin))
            self._calls.append((_function(name, find), (*args, *pointers)))
            numbers = len(layout.format.replace("4x", ""))
            where.append(number if numbers == 1 else slice(number, number + numbers))
            if layout.names:
                self._records.append((place, layout.names))
            offset, number = offset + struct.calcsize(f"={layout.format}"), number + numbers
        self._pick = picker(where)

    def __call__(self, handle: Any, ends: Collection[int]) -> Answers:
        """Answers: a number, a few, a record, or Unreadable, and then none follows if it is one of `ends`."""
        monotonic, failed = time.monotonic, dict[int, int]()
        times = [monotonic()]
        for ask, rest in self._calls:
            code = ask(handle, *rest)
            times.append(monotonic())
            if code:
                failed[len(times) - 2] = code
                if code in ends:
                    break
        answers: list[Any] = [*self._pick(self._layout.unpack(self._buffer))]
        for place, names in self._records:
            answers[place] = dict(zip(names, answers[place], strict=True))
        if failed:
            for place, code in failed.items():
                said = f"{self._calls[place][0].__name__}: {pynvml.NVMLError(code)}"
                answers[place] = Unreadable(said, code)
            del answers[len(times) - 1 :]
        return answers, times


def _function(name: str, find: Callable[[str], Any]) -> Callable[..., int]:
    """The library's function, or one that says that there is none."""
    try:
        found: Callable[..., int] = find(name)
    except pynvml.NVMLError:

        def found(*_: Any) -> int:
            return FUNCTION_NOT_FOUND

        found.__name__ = name
    return found
