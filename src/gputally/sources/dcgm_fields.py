"""What DCGM is asked about a GPU, and which of its answers can be believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gputally.counted import DcgmRecord

RATIOS = {
    1001: "graphics",
    1002: "sm",
    1003: "sm_occupancy",
    1004: "tensor",
    1005: "dram",
    1006: "fp64",
    1007: "fp32",
    1008: "fp16",
}
"""DCGM's number of a ratio -> the part of the GPU that it tells of, as NVML's meters name it."""
PCIE = {1009: "transmit", 1010: "receive"}
NVLINK = {1011: "transmit", 1012: "receive"}
"""DCGM calls them bytes, and gives bytes per second over its last period."""

PROFILING_FIELDS = (*RATIOS, *PCIE, *NVLINK)
DEVICE_FIELDS = (140, 150, 206, 207, 251, 252, 253, 393, 394, 395, 449)
"""Of dcgm-exporter's default fields, those that the watch of processes does not hold.

Up to DCGM 4.1.0 the shortest retention that any client asks of a field is in force, so a field of
that watch, asked for here with a retention of its own, would cut the window of the process records.
"""
FIELDS = (*DEVICE_FIELDS, *PROFILING_FIELDS)

BLANK = 0x7FFFFFFFFFFFFFF0
BLANK_FLOAT = 2.0**47
AHEAD_US = 60 * 10**6


def believable(row: list[Any], oldest_us: float) -> bool:
    """Whether a row of latest values is a number, and of now: what DCGM no longer reads it still tells."""
    _, _, status, at, number = row
    if status != 0 or at < oldest_us:
        return False
    return number < (BLANK_FLOAT if isinstance(number, float) else BLANK) and not math.isnan(number)


def attributes(numbers: Mapping[int, float]) -> dict[str, Mapping[str, float]]:
    """Attributes of a Device from DCGM's numbers; a ratio beyond 0 to 1 is cut there."""
    return {
        "activity_ratio": {p: min(max(numbers[f], 0.0), 1.0) for f, p in RATIOS.items() if f in numbers},
        "pcie_bytes_per_second": _rates(PCIE, numbers),
        "nvlink_bytes_per_second": _rates(NVLINK, numbers),
    }


def _rates(directions: Mapping[int, str], numbers: Mapping[int, float]) -> dict[str, float]:
    return {name: numbers[field] for field, name in directions.items() if numbers.get(field, -1) >= 0}


def out_of_range(numbers: Mapping[int, float]) -> int:
    """How many ratios had to be cut."""
    return sum(not 0.0 <= numbers.get(field, 0.0) <= 1.0 for field in RATIOS)


def records(rows: Iterable[Mapping[str, int]], now_us: float, window_us: float) -> dict[int, DcgmRecord]:
    """DCGM's GPU id -> its record of a living process, where the number is what it is said to be."""
    return {
        row["gpuId"]: DcgmRecord(row["energyConsumed"] / 1000, row["startTime"] / 1e6)
        for row in rows
        if _is_whole(row, now_us, window_us)
    }


def _is_whole(row: Mapping[str, int], now_us: float, window_us: float) -> bool:
    """A living process, not older than what DCGM keeps, and more than one sample, which would be 0."""
    lives = row["endTime"] == 0 and now_us - window_us <= row["startTime"] <= now_us + AHEAD_US
    return lives and 0 < row["energyConsumed"] < BLANK
