"""DCGM fields that can be told: their ids, old and new names, types, help texts and numbers."""

from __future__ import annotations

from typing import NamedTuple

from gputally.dialects.dcgm import values as v
from gputally.dialects.dcgm.values import Value
from gputally.metrics import COUNTER, GAUGE


class Field(NamedTuple):
    """One field; its help text and type are those of dcgm-exporter's own file."""

    id: int
    name: str
    renamed: str
    """Its name from DCGM 4.6 on, where that is another."""
    type: str
    help: str
    value: Value
    is_default: bool


def _gauge(id: int, name: str, help: str, value: Value, renamed: str = "", on: bool = True) -> Field:
    return Field(id, _full(name), _full(renamed), GAUGE, help, value, on)


def _counter(id: int, name: str, help: str, value: Value, renamed: str = "", on: bool = True) -> Field:
    return Field(id, _full(name), _full(renamed), COUNTER, help, value, on)


def _prof(id: int, name: str, help: str, renamed: str = "", on: bool = False) -> Field:
    return _gauge(id, f"PROF_{name}", help, v.profiled(id), f"PROF_{renamed}" if renamed else "", on)


def _full(name: str) -> str:
    return f"DCGM_FI_{name if name.startswith('PROF_') else 'DEV_' + name}" if name else ""


def _violation(id: int, name: str, why: str, reason: str) -> Field:
    help = f"Throttling duration due to {why} (in ns)."
    return _counter(id, f"{name}_VIOLATION", help, v.violation(reason), on=False)


def _ecc(id: int, name: str, what: str, kind: str, scope: str) -> Field:
    help = f"Total number of {what} ECC errors."
    return _counter(id, f"ECC_{name}_TOTAL", help, v.ecc(kind, scope), on=False)


def _nvlink(id: int, name: str, what: str, error: str) -> Field:
    help = f"Total number of NVLink {what}."
    renamed = f"NVLINK_{name}_ERROR_TOTAL"
    return _counter(id, f"NVLINK_{name}_ERROR_COUNT_TOTAL", help, v.nvlink_errors(error), renamed, on=False)


def _retired(id: int, name: str, what: str, cause: str) -> Field:
    help = f"Total number of retired pages due to {what} errors."
    value = v.reading(lambda row: row.device.retired_pages.get(cause))
    return _counter(id, f"RETIRED_{name}", help, value, f"PAGE_RETIRED_{name}_TOTAL", on=False)


_POWER = "Power draw (in W); of a GPU that several pods have, each pod's part of it."
_ENERGY = "Total energy consumption since boot (in mJ); of a GPU that pods have, each pod's part."
_PENDING = v.reading(lambda row: row.device.retired_pages_pending)
_REPLAYS = v.reading(lambda row: row.device.counters.pcie_replays)
_FAILED = v.reading(lambda row: row.device.remapped_rows_failed)
_LINKS = "Total number of NVLink bandwidth counters for all lanes."
_DRAM = "Ratio of cycles the device memory interface is active sending or receiving data."
_UNCORRECTED = "Number of remapped rows for uncorrectable errors"
_CORRECTED = "Number of remapped rows for correctable errors"
_PCIE = "The rate of data {} over the PCIe bus, headers and payloads, in bytes per second."
_NVLINK = "The rate of data {} over NVLink, headers and payloads, in bytes per second."

FIELDS = (
    _gauge(100, "SM_CLOCK", "SM clock frequency (in MHz).", v.clock("sm")),
    _gauge(101, "MEM_CLOCK", "Memory clock frequency (in MHz).", v.clock("memory")),
    _gauge(140, "MEMORY_TEMP", "Memory temperature (in C).", v.temperature("memory"), "MEMORY_TEMP_CELSIUS"),
    _gauge(150, "GPU_TEMP", "GPU temperature (in C).", v.temperature("gpu"), "GPU_TEMP_CELSIUS"),
    _gauge(155, "POWER_USAGE", _POWER, v.watts, "BOARD_POWER_WATTS"),
    _counter(156, "TOTAL_ENERGY_CONSUMPTION", _ENERGY, v.millijoules),
    _counter(202, "PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", _REPLAYS, "PCIE_REPLAY_TOTAL"),
    _gauge(203, "GPU_UTIL", "GPU utilization (in %).", v.utilization("utilization"), "GPU_UTIL_RATIO"),
    _gauge(204, "MEM_COPY_UTIL", "Memory utilization (in %).", v.utilization("memory_utilization")),
    _gauge(206, "ENC_UTIL", "Encoder utilization (in %).", v.utilization("encoder_utilization")),
    _gauge(207, "DEC_UTIL", "Decoder utilization (in %).", v.utilization("decoder_utilization")),
    _gauge(230, "XID_ERRORS", "Value of the last XID error encountered.", v.reading(v.last_xid), "XID_ERROR"),
    _violation(240, "POWER", "power constraints", "sw_power_cap"),
    _violation(241, "THERMAL", "thermal constraints", "thermal"),
    _violation(242, "SYNC_BOOST", "sync-boost constraints", "sync_boost"),
    _violation(243, "BOARD_LIMIT", "board limit constraints", "board_limit"),
    _violation(244, "LOW_UTIL", "low utilization", "low_utilization"),
    _violation(245, "RELIABILITY", "reliability constraints", "reliability"),
    _gauge(250, "FB_TOTAL", "Framebuffer memory total (in MiB).", v.memory("total"), on=False),
    _gauge(251, "FB_FREE", "Framebuffer memory free (in MiB).", v.memory("free")),
    _gauge(252, "FB_USED", "Framebuffer memory used (in MiB).", v.memory("used")),
    _gauge(253, "FB_RESERVED", "Framebuffer memory reserved (in MiB).", v.memory("reserved")),
    _ecc(310, "SBE_VOL", "single-bit volatile", "corrected", "volatile"),
    _ecc(311, "DBE_VOL", "double-bit volatile", "uncorrected", "volatile"),
    _ecc(312, "SBE_AGG", "single-bit persistent", "corrected", "aggregate"),
    _ecc(313, "DBE_AGG", "double-bit persistent", "uncorrected", "aggregate"),
    _retired(390, "SBE", "single-bit", "multiple_single_bit_ecc_errors"),
    _retired(391, "DBE", "double-bit", "double_bit_ecc_error"),
    _counter(
        392,
        "RETIRED_PENDING",
        "Total number of pages pending retirement.",
        _PENDING,
        "PAGE_RETIRED_PENDING",
        on=False,
    ),
    _counter(
        393,
        "UNCORRECTABLE_REMAPPED_ROWS",
        _UNCORRECTED,
        v.remapped("uncorrected"),
        "ROW_REMAP_UNCORRECTABLE_TOTAL",
    ),
    _counter(
        394,
        "CORRECTABLE_REMAPPED_ROWS",
        _CORRECTED,
        v.remapped("corrected"),
        "ROW_REMAP_CORRECTABLE_TOTAL",
    ),
    _gauge(395, "ROW_REMAP_FAILURE", "Whether remapping of rows has failed", _FAILED, "ROW_REMAP_FAILED"),
    _nvlink(409, "CRC_FLIT", "flow-control CRC errors", "crc_flit"),
    _nvlink(419, "CRC_DATA", "data CRC errors", "crc_data"),
    _nvlink(429, "REPLAY", "retries", "replay"),
    _nvlink(439, "RECOVERY", "recovery errors", "recovery"),
    _counter(449, "NVLINK_BANDWIDTH_TOTAL", _LINKS, v.reading(v.nvlink_megabytes), "NVLINK_THROUGHPUT_TOTAL"),
    _prof(
        1001,
        "GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.",
        "GR_ENGINE_UTIL_RATIO",
        on=True,
    ),
    _prof(1002, "SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.", "SM_UTIL_RATIO"),
    _prof(1003, "SM_OCCUPANCY", "The ratio of number of warps resident on an SM.", "SM_OCCUPANCY_RATIO"),
    _prof(
        1004,
        "PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        "TENSOR_UTIL_RATIO",
        on=True,
    ),
    _prof(1005, "DRAM_ACTIVE", _DRAM, "DRAM_UTIL_RATIO", on=True),
    _prof(1006, "PIPE_FP64_ACTIVE", "Ratio of cycles the fp64 pipes are active.", "FP64_UTIL_RATIO"),
    _prof(1007, "PIPE_FP32_ACTIVE", "Ratio of cycles the fp32 pipes are active.", "FP32_UTIL_RATIO"),
    _prof(1008, "PIPE_FP16_ACTIVE", "Ratio of cycles the fp16 pipes are active.", "FP16_UTIL_RATIO"),
    _prof(1009, "PCIE_TX_BYTES", _PCIE.format("transmitted"), on=True),
    _prof(1010, "PCIE_RX_BYTES", _PCIE.format("received"), on=True),
    _prof(1011, "NVLINK_TX_BYTES", _NVLINK.format("transmitted")),
    _prof(1012, "NVLINK_RX_BYTES", _NVLINK.format("received")),
)

BY_NAME = {name: field for field in FIELDS for name in (field.name, field.renamed) if name}
BY_ID = {field.id: field for field in FIELDS}
