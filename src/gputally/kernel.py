"""What the kernel says of processes, and of where we stand among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ProcessKey(NamedTuple):
    """A process for ever: its number, and when it started (clock ticks since boot)."""

    pid: int
    start: int


@dataclass(frozen=True)
class Process:
    """What the kernel says of a process."""

    key: ProcessKey
    comm: str
    cgroup: str
    started_at: float | None = None
    """Unix time at which it started."""
    started_monotonic: float | None = None
    """The same by the machine's monotonic clock, and never later than it truly was."""


@dataclass(frozen=True)
class Namespaces:
    """Where this program stands among the kernel's namespaces."""

    pid_inode: int
    """The number of its PID namespace."""
    own_pid: int
    own_cgroup: str
    init_cgroup: str | None
    """The cgroup of the process that is number 1 to us; None where it cannot be read."""
