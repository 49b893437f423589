"""DCGM fields that can be told: their ids, old and new names, units and where the numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gputally.dialects.parties import Row
from gputally.metrics import COUNTER, GAUGE

Value = Callable[[Row], float | int | None]
NS = 1_000_000_000


class Field(NamedTuple):
    """One field; its help text and type are those of dcgm-exporter's own file."""

    id: int
    name: str
    renamed: str
    """Its name from DCGM 4.6 on, where that is another."""
    type: str
    is_default: bool
    help: str
    value: Value


def mib(size: int | None) -> int | None:
    """Whole MiB."""
    return None if size is None else size >> 20


def percent(ratio: float | None) -> int | None:
    """Whole percent."""
    return None if ratio is None else round(100 * ratio)


def watts(row: Row) -> float | None:
    """The row's part of the GPU's power."""
    power = row.device.power_watts
    return None if power is None or row.power_ratio is None else power * row.power_ratio


def millijoules(row: Row) -> int | None:
    """The row's part of the GPU's energy."""
    return None if row.energy_uj is None else row.energy_uj // 1000


def last_xid(row: Row) -> int | None:
    """The number of the newest Xid; 0 while there was none."""
    xids = row.device.xids
    return max(xids, key=lambda number: xids[number].last_time) if xids else 0


def _memory(name: str) -> Value:
    """Memory of the MIG instance, or of the whole GPU."""
    return _reading(lambda row: mib(getattr(row.instance or row.device, f"memory_{name}_bytes")))


def _utilization(name: str) -> Value:
    return _reading(lambda row: percent(getattr(row.device, f"{name}_ratio")))


def _clock(name: str) -> Value:
    return _reading(lambda row: _scaled(row.device.clock_hertz.get(name), 1_000_000))


def _temperature(sensor: str) -> Value:
    return _reading(lambda row: _whole(row.device.temperature_celsius.get(sensor)))


def _violation(reason: str) -> Value:
    return _reading(lambda row: _times(row.device.counters.throttle_seconds.get(reason), NS))


def _ecc(kind: str, scope: str) -> Value:
    return _reading(lambda row: row.device.counters.ecc_errors.get((kind, scope)))


def _nvlink(error: str) -> Value:
    return _reading(lambda row: row.device.counters.nvlink_errors.get(error))


def _remapped(cause: str) -> Value:
    return _reading(lambda row: row.device.remapped_rows.get(cause))


def nvlink_mb(row: Row) -> int | None:
    """Traffic of all links in both directions, in MB as DCGM counts it."""
    told = row.device.counters.nvlink_bytes
    return sum(told.values()) // 1_000_000 if told else None


def profiled(field: int) -> Value:
    """A field that only DCGM can tell."""
    return _reading(lambda row: _dcgm(row).get(field))


def _dcgm(row: Row) -> Mapping[int, float]:
    told: Mapping[int, float] = getattr(row.device, "dcgm_fields", {})
    return told


def _reading(value: Callable[[Row], Any]) -> Value:
    """A reading of the hardware: on every row but that of what belongs to nobody."""
    return lambda row: None if row.is_rest else value(row)


def _scaled(number: int | None, unit: int) -> int | None:
    return None if number is None else number // unit


def _times(number: float | None, unit: int) -> int | None:
    return None if number is None else round(number * unit)


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _prof(field: int, name: str, renamed: str, on: bool, help: str) -> Field:
    return Field(field, name, renamed, GAUGE, on, help, profiled(field))


_P = "DCGM_FI_PROF_"
_D = "DCGM_FI_DEV_"
_FRAMEBUFFER = "Framebuffer memory"
_THROTTLED = "Throttling duration due to"

FIELDS = (
    Field(100, _D + "SM_CLOCK", "", GAUGE, True, "SM clock frequency (in MHz).", _clock("sm")),
    Field(101, _D + "MEM_CLOCK", "", GAUGE, True, "Memory clock frequency (in MHz).", _clock("memory")),
    Field(
        140,
        _D + "MEMORY_TEMP",
        _D + "MEMORY_TEMP_CELSIUS",
        GAUGE,
        True,
        "Memory temperature (in C).",
        _temperature("memory"),
    ),
    Field(
        150,
        _D + "GPU_TEMP",
        _D + "GPU_TEMP_CELSIUS",
        GAUGE,
        True,
        "GPU temperature (in C).",
        _temperature("gpu"),
    ),
    Field(
        155,
        _D + "POWER_USAGE",
        _D + "BOARD_POWER_WATTS",
        GAUGE,
        True,
        "Power draw (in W); of a GPU that several pods have, each pod's part of it.",
        watts,
    ),
    Field(
        156,
        _D + "TOTAL_ENERGY_CONSUMPTION",
        "",
        COUNTER,
        True,
        "Total energy consumption since boot (in mJ); of a GPU that pods have, each pod's part.",
        millijoules,
    ),
    Field(
        202,
        _D + "PCIE_REPLAY_COUNTER",
        _D + "PCIE_REPLAY_TOTAL",
        COUNTER,
        True,
        "Total number of PCIe retries.",
        _reading(lambda row: row.device.counters.pcie_replays),
    ),
    Field(
        203,
        _D + "GPU_UTIL",
        _D + "GPU_UTIL_RATIO",
        GAUGE,
        True,
        "GPU utilization (in %).",
        _utilization("utilization"),
    ),
    Field(
        204,
        _D + "MEM_COPY_UTIL",
        "",
        GAUGE,
        True,
        "Memory utilization (in %).",
        _utilization("memory_utilization"),
    ),
    Field(
        206,
        _D + "ENC_UTIL",
        "",
        GAUGE,
        True,
        "Encoder utilization (in %).",
        _utilization("encoder_utilization"),
    ),
    Field(
        207,
        _D + "DEC_UTIL",
        "",
        GAUGE,
        True,
        "Decoder utilization (in %).",
        _utilization("decoder_utilization"),
    ),
    Field(
        230,
        _D + "XID_ERRORS",
        _D + "XID_ERROR",
        GAUGE,
        True,
        "Value of the last XID error encountered.",
        _reading(last_xid),
    ),
    *(
        Field(
            number,
            f"{_D}{name}_VIOLATION",
            "",
            COUNTER,
            False,
            f"{_THROTTLED} {what} (in ns).",
            _violation(by),
        )
        for number, name, what, by in (
            (240, "POWER", "power constraints", "sw_power_cap"),
            (241, "THERMAL", "thermal constraints", "thermal"),
            (242, "SYNC_BOOST", "sync-boost constraints", "sync_boost"),
            (243, "BOARD_LIMIT", "board limit constraints", "board_limit"),
            (244, "LOW_UTIL", "low utilization", "low_utilization"),
            (245, "RELIABILITY", "reliability constraints", "reliability"),
        )
    ),
    Field(250, _D + "FB_TOTAL", "", GAUGE, False, f"{_FRAMEBUFFER} total (in MiB).", _memory("total")),
    Field(251, _D + "FB_FREE", "", GAUGE, True, f"{_FRAMEBUFFER} free (in MiB).", _memory("free")),
    Field(252, _D + "FB_USED", "", GAUGE, True, f"{_FRAMEBUFFER} used (in MiB).", _memory("used")),
    Field(
        253, _D + "FB_RESERVED", "", GAUGE, True, f"{_FRAMEBUFFER} reserved (in MiB).", _memory("reserved")
    ),
    *(
        Field(
            number,
            f"{_D}ECC_{bit}_{span}_TOTAL",
            "",
            COUNTER,
            False,
            f"Total number of {what} ECC errors.",
            _ecc(*by),
        )
        for number, bit, span, what, by in (
            (310, "SBE", "VOL", "single-bit volatile", ("corrected", "volatile")),
            (311, "DBE", "VOL", "double-bit volatile", ("uncorrected", "volatile")),
            (312, "SBE", "AGG", "single-bit persistent", ("corrected", "aggregate")),
            (313, "DBE", "AGG", "double-bit persistent", ("uncorrected", "aggregate")),
        )
    ),
    *(
        Field(
            number,
            f"{_D}RETIRED_{name}",
            f"{_D}PAGE_RETIRED_{renamed}",
            COUNTER,
            False,
            f"Total number of {what}.",
            _reading(value),
        )
        for number, name, renamed, what, value in (
            (
                390,
                "SBE",
                "SBE_TOTAL",
                "retired pages due to single-bit errors",
                lambda row: row.device.retired_pages.get("multiple_single_bit_ecc_errors"),
            ),
            (
                391,
                "DBE",
                "DBE_TOTAL",
                "retired pages due to double-bit errors",
                lambda row: row.device.retired_pages.get("double_bit_ecc_error"),
            ),
            (
                392,
                "PENDING",
                "PENDING",
                "pages pending retirement",
                lambda row: row.device.retired_pages_pending,
            ),
        )
    ),
    Field(
        393,
        _D + "UNCORRECTABLE_REMAPPED_ROWS",
        _D + "ROW_REMAP_UNCORRECTABLE_TOTAL",
        COUNTER,
        True,
        "Number of remapped rows for uncorrectable errors",
        _remapped("uncorrected"),
    ),
    Field(
        394,
        _D + "CORRECTABLE_REMAPPED_ROWS",
        _D + "ROW_REMAP_CORRECTABLE_TOTAL",
        COUNTER,
        True,
        "Number of remapped rows for correctable errors",
        _remapped("corrected"),
    ),
    Field(
        395,
        _D + "ROW_REMAP_FAILURE",
        _D + "ROW_REMAP_FAILED",
        GAUGE,
        True,
        "Whether remapping of rows has failed",
        _reading(lambda row: row.device.remapped_rows_failed),
    ),
    *(
        Field(
            number,
            f"{_D}NVLINK_{name}_ERROR_COUNT_TOTAL",
            f"{_D}NVLINK_{name}_ERROR_TOTAL",
            COUNTER,
            False,
            f"Total number of NVLink {what}.",
            _nvlink(by),
        )
        for number, name, what, by in (
            (409, "CRC_FLIT", "flow-control CRC errors", "crc_flit"),
            (419, "CRC_DATA", "data CRC errors", "crc_data"),
            (429, "REPLAY", "retries", "replay"),
            (439, "RECOVERY", "recovery errors", "recovery"),
        )
    ),
    Field(
        449,
        _D + "NVLINK_BANDWIDTH_TOTAL",
        _D + "NVLINK_THROUGHPUT_TOTAL",
        COUNTER,
        True,
        "Total number of NVLink bandwidth counters for all lanes.",
        _reading(nvlink_mb),
    ),
    _prof(
        1001,
        _P + "GR_ENGINE_ACTIVE",
        _P + "GR_ENGINE_UTIL_RATIO",
        True,
        "Ratio of time the graphics engine is active.",
    ),
    _prof(
        1002,
        _P + "SM_ACTIVE",
        _P + "SM_UTIL_RATIO",
        False,
        "The ratio of cycles an SM has at least 1 warp assigned.",
    ),
    _prof(
        1003,
        _P + "SM_OCCUPANCY",
        _P + "SM_OCCUPANCY_RATIO",
        False,
        "The ratio of number of warps resident on an SM.",
    ),
    _prof(
        1004,
        _P + "PIPE_TENSOR_ACTIVE",
        _P + "TENSOR_UTIL_RATIO",
        True,
        "Ratio of cycles the tensor (HMMA) pipe is active.",
    ),
    _prof(
        1005,
        _P + "DRAM_ACTIVE",
        _P + "DRAM_UTIL_RATIO",
        True,
        "Ratio of cycles the device memory interface is active sending or receiving data.",
    ),
    _prof(
        1006,
        _P + "PIPE_FP64_ACTIVE",
        _P + "FP64_UTIL_RATIO",
        False,
        "Ratio of cycles the fp64 pipes are active.",
    ),
    _prof(
        1007,
        _P + "PIPE_FP32_ACTIVE",
        _P + "FP32_UTIL_RATIO",
        False,
        "Ratio of cycles the fp32 pipes are active.",
    ),
    _prof(
        1008,
        _P + "PIPE_FP16_ACTIVE",
        _P + "FP16_UTIL_RATIO",
        False,
        "Ratio of cycles the fp16 pipes are active.",
    ),
    _prof(
        1009,
        _P + "PCIE_TX_BYTES",
        "",
        True,
        "Data sent over the PCIe bus, headers included, in bytes per second.",
    ),
    _prof(
        1010,
        _P + "PCIE_RX_BYTES",
        "",
        True,
        "Data received over the PCIe bus, headers included, in bytes per second.",
    ),
    _prof(1011, _P + "NVLINK_TX_BYTES", "", False, "Data sent over NVLink, in bytes per second."),
    _prof(1012, _P + "NVLINK_RX_BYTES", "", False, "Data received over NVLink, in bytes per second."),
)

BY_NAME = {name: field for field in FIELDS for name in (field.name, field.renamed) if name}
BY_ID = {field.id: field for field in FIELDS}
