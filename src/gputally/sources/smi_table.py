"""What nvidia-smi writes, by the names and units of its header: columns to values in base units; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gputally.model import Unreadable
from gputally.sources.nvml_fields import Values, fan_ratio, ratio

ABSENT = (
    "",
    "N/A",
    "Not Supported",
    "Not Available",
    "Insufficient Permissions",
    "Unknown Error",
    "GPU is lost",
)
UNITS = {
    "": 1.0,
    "%": 1.0,
    "W": 1.0,
    "mW": 1e-3,
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "C": 1.0,
    "Hz": 1.0,
    "kHz": 1e3,
    "MHz": 1e6,
    "GHz": 1e9,
}
MOST_ROWS = 65_536


@dataclass(frozen=True)
class Column:
    """One column: what it is called, and which attributes of a Device or its info come from it."""

    name: str
    values: Callable[[Any], Values]
    is_text: bool = False
    is_info: bool = False


@dataclass(frozen=True)
class Table:
    """Rows by column name; text where the header gives no unit, else numbers in base units, None = absent."""

    columns: frozenset[str]
    rows: tuple[Mapping[str, str | None], ...]
    units: Mapping[str, str]
    malformed: int

    def number(self, row: Mapping[str, str | None], name: str) -> float | None:
        """A number in base units; None where it is absent, no number or of an unknown unit."""
        text = row.get(name)
        if text is None:
            return None
        match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?:\s*(%|[A-Za-z]+))?", text)
        scale = UNITS.get(self.units[name] or (match and match[2]) or "")
        return float(match[1]) * scale if match and scale is not None else None


def read_table(output: bytes, needed: Sequence[str]) -> Table:
    """A table as it was written; raises Unreadable where the header is none or lacks a needed column."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    header = [
        re.fullmatch(r"([a-z0-9_.]+)(?: \[(.+)\])?", cell.strip()) for cell in (lines or [""])[0].split(",")
    ]
    if not all(header):
        raise Unreadable(f"nvidia-smi: not a table: {(lines or ['nothing'])[0][:100]!r}")
    names = [match[1] for match in header if match]
    units = {match[1]: match[2] or "" for match in header if match}
    missing = [name for name in needed if name not in names]
    if missing or len(set(names)) != len(names):
        raise Unreadable(
            f"nvidia-smi: its table has no column {missing[0]}" if missing else "nvidia-smi: a column twice"
        )
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[1 : MOST_ROWS + 1]]
    if cells and not output.endswith(b"\n"):
        cells.pop()  # cut short: its last number may lack digits
    whole = [row for row in cells if len(row) == len(names)]
    rows = tuple({name: _present(cell) for name, cell in zip(names, row, strict=True)} for row in whole)
    return Table(frozenset(names), rows, units, len(lines) - 1 - len(whole))


def _present(cell: str) -> str | None:
    bare = cell.strip("[]")
    return None if bare in ABSENT or cell.startswith("ERR!") or bare.endswith("Error") else cell


def _ratio(name: str) -> Callable[[Any], Values]:
    return lambda number: {name: ratio(number)}


def _bytes(name: str) -> Callable[[Any], Values]:
    return lambda number: {name: round(number)}


def _plain(name: str) -> Callable[[Any], Values]:
    return lambda value: {name: value}


def _entry(name: str, key: str, whole: bool = False) -> Callable[[Any], Values]:
    return lambda number: {name: {key: round(number) if whole else number}}


def _state(text: Any) -> Values:
    match = re.fullmatch(r"P(\d{1,2})", text)
    return {"performance_state": int(match[1])} if match else {}


_CLOCKS = (("graphics", "graphics"), ("sm", "sm"), ("memory", "memory"), ("video", "video"))

GPU_COLUMNS = (
    Column("name", _plain("model"), is_text=True, is_info=True),
    Column("pci.bus_id", _plain("pci_bus_id"), is_text=True, is_info=True),
    Column("vbios_version", _plain("vbios_version"), is_text=True, is_info=True),
    Column("driver_version", _plain("driver_version"), is_text=True, is_info=True),
    Column("compute_cap", _plain("compute_capability"), is_text=True, is_info=True),
    Column("utilization.gpu", _ratio("utilization_ratio")),
    Column("utilization.memory", _ratio("memory_utilization_ratio")),
    Column("utilization.encoder", _ratio("encoder_utilization_ratio")),
    Column("utilization.decoder", _ratio("decoder_utilization_ratio")),
    *(
        Column(f"memory.{part}", _bytes(f"memory_{part}_bytes"))
        for part in ("total", "used", "free", "reserved")
    ),
    Column("power.draw", _plain("power_watts")),
    Column("enforced.power.limit", _plain("power_limit_watts")),
    Column("power.max_limit", _plain("power_limit_max_watts")),
    Column("temperature.gpu", _entry("temperature_celsius", "gpu")),
    Column("temperature.memory", _entry("temperature_celsius", "memory")),
    *(Column(f"clocks.current.{k}", _entry("clock_hertz", n, whole=True)) for n, k in _CLOCKS),
    *(Column(f"clocks.max.{k}", _entry("clock_max_hertz", n, whole=True)) for n, k in _CLOCKS[:3]),
    Column("pstate", _state, is_text=True),
    Column("fan.speed", lambda percent: {"fan_speed_ratio": fan_ratio(percent)}),
)


def values(table: Table, row: Mapping[str, str | None], info: bool) -> Values:
    """Attributes from one row, of the Device or of its info; mappings of one name are laid together."""
    found: Values = {}
    for column in GPU_COLUMNS:
        if column.name not in table.columns or column.is_info != info:
            continue
        value = row[column.name] if column.is_text else table.number(row, column.name)
        for name, part in (column.values(value) if value is not None else {}).items():
            found[name] = {**found.get(name, {}), **part} if isinstance(part, dict) else part
    return found
