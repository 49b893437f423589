"""What one tick gives to the ledger: shares of GPUs, of their processes and of grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NamedTuple

from gputally.meter import Used
from gputally.model import Grant, ProcessKey
from gputally.weights import Seat


class ProcessShare(NamedTuple):
    """What a process did on a GPU, and what it is charged."""

    key: ProcessKey
    uuid: str
    mig: str = ""
    busy_us: int | None = None
    energy_uj: int = 0
    estimated_uj: int = 0
    """The part of it that was divided between several active processes."""
    idle_uj: int = 0


class Charge(NamedTuple):
    """What processes on a GPU did, and what they are charged; numbers are in the order of the seats."""

    uuid: str
    seats: tuple[Seat, ...]
    energy_uj: Sequence[int]
    busy_us: Sequence[int] | None = None
    """None where nobody was seen busy."""
    divided: bool = False
    """The energy was divided between several active processes; else it is measured."""
    idle_uj: Sequence[int] | None = None

    def each(self) -> Iterator[ProcessShare]:
        """One by one."""
        nothing = repeat(0)
        estimated_uj = self.energy_uj if self.divided else nothing
        columns = (self.busy_us or repeat(None), self.energy_uj, estimated_uj, self.idle_uj or nothing)
        for (key, mig), numbers in zip(self.seats, zip(*columns, strict=False), strict=True):
            yield ProcessShare(key, self.uuid, mig, *numbers)


@dataclass(frozen=True)
class GrantShare:
    """Idle energy charged to a grant, whether or not anybody uses it."""

    grant: Grant
    idle_uj: int


class GpuShare(NamedTuple):
    """What a GPU used, and the part of it that no process is charged."""

    uuid: str
    used: Used = Used()
    idle_uj: int = 0
    unattributed_uj: Mapping[str, int] = {}
    activity_seconds: float | None = None
    idle_watts: float | None = None
    idle_source: str = "unknown"
    trust: float | None = None


@dataclass(frozen=True)
class Shares:
    """All that one tick gives to the ledger."""

    gpus: tuple[GpuShare, ...] = ()
    charges: tuple[Charge, ...] = ()
    grants: tuple[GrantShare, ...] = ()

    @property
    def processes(self) -> Iterator[ProcessShare]:
        """Every charge, one process after the other; one that is charged idle energy, too, may come twice."""
        return chain.from_iterable(charge.each() for charge in self.charges)
