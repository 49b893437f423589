"""What is counted: by a GPU itself, by its driver, by DCGM, and by us of our own calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Xid:
    """How often a GPU reported an error of one number, and when last (Unix time)."""

    count: int
    last_time: float


@dataclass(frozen=True)
class Counters:
    """What a GPU counts since its driver was loaded; kept as it was while the GPU does not answer."""

    throttle_seconds: Mapping[str, float] = field(default_factory=dict)
    pcie_bytes: Mapping[str, int] = field(default_factory=dict)
    """transmit, receive -> bytes; the hardware's counter may wrap."""
    pcie_replays: int | None = None
    nvlink_bytes: Mapping[str, int] = field(default_factory=dict)
    nvlink_errors: Mapping[str, int] = field(default_factory=dict)
    ecc_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(corrected or uncorrected, volatile or aggregate) -> errors."""


class DcgmRecord(NamedTuple):
    """What DCGM tells of a process on a GPU: energy of the whole GPU since it began to use it (Unix time)."""

    gpu_energy_joules: float
    started_at: float


@dataclass(frozen=True)
class CallTime:
    """How often something was asked so far, and how long it took together."""

    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Losses:
    """What was thrown away or went wrong since the reading before; the ledger adds it up."""

    samples: Mapping[str, int] = field(default_factory=dict)
    nvml_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(call, code) -> how often."""

    @staticmethod
    def sum(parts: Iterable[Losses]) -> Losses:
        """All of them together."""
        told = [part for part in parts if part.samples or part.nvml_errors]
        if not told:
            return NO_LOSSES
        samples: Counter[str] = Counter()
        errors: Counter[tuple[str, str]] = Counter()
        for part in told:
            samples.update(part.samples)
            errors.update(part.nvml_errors)
        return Losses(samples, errors)


NO_LOSSES = Losses()


@dataclass(frozen=True)
class SelfUsage:
    """What the exporter itself uses."""

    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    open_fds: int | None = None
    threads: int | None = None
