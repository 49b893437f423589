"""The cast of a simulated node: its GPUs, its workloads, and where each of them lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gputally.machine.simulation.rhythm import SLOTS_PER_SECOND, STEADY, Rhythm

GIB = 2**30
MIB = 2**20


class Sharing(Enum):
    """How processes share a GPU."""

    TIME_SLICED = "time-sliced"
    """They take turns."""
    MPS = "mps"
    """They run at once."""
    MIG = "mig"
    """Instances run at once; inside an instance they take turns."""


@dataclass(frozen=True)
class Board:
    """A GPU as it was bought and set up."""

    idle_watts: int = 65
    limit_watts: int = 700
    memory_bytes: int = 80 * GIB
    sharing: Sharing = Sharing.TIME_SLICED


@dataclass(frozen=True)
class Life:
    """When a workload lives, in seconds from the driver's start; `every` = it comes again and again."""

    start: float = 0.0
    lasts: float | None = None
    every: float | None = None

    def __post_init__(self) -> None:
        """Refuse a life that begins again before it ended: two would share one pid."""
        if self.every is not None and not (self.lasts and 0 < self.lasts <= self.every):
            raise ValueError(f"lives of {self.lasts} s cannot begin every {self.every} s")

    def span(self, turn: int) -> tuple[int, int | None]:
        """First slot of a life and the slot after its last."""
        start = _slots(self.start) + turn * (_slots(self.every) if self.every else 0)
        return start, None if self.lasts is None else start + _slots(self.lasts)

    def turn(self, slot: int) -> int | None:
        """Which life it is in that slot."""
        turn = max(0, self.newest(slot))
        start, end = self.span(turn)
        return turn if start <= slot and (end is None or slot < end) else None

    def newest(self, slot: int) -> int:
        """The life that began last, lived out or not; negative before the first."""
        if not self.every:
            return 0
        return (slot - _slots(self.start)) // _slots(self.every)


@dataclass(frozen=True)
class OwnerReference:
    """Who controls a pod."""

    kind: str
    name: str
    api_version: str = "apps/v1"


@dataclass(frozen=True)
class Grant:
    """A device that was allocated to a pod: a GPU, or one MIG instance of it."""

    gpu: int
    instance: int | None = None


@dataclass(frozen=True)
class Pod:
    """A pod; `{run}` in a name stands for what is new in every life."""

    namespace: str
    name: str
    container: str
    owners: tuple[OwnerReference, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    grants: tuple[Grant, ...] = ()
    qos: str = "burstable"


@dataclass(frozen=True)
class DockerContainer:
    """A container that Docker runs beside Kubernetes."""

    name: str
    image: str


@dataclass(frozen=True)
class Unit:
    """A systemd unit."""

    name: str


@dataclass(frozen=True)
class Session:
    """Somebody logged in."""

    user: int = 1000
    number: int = 3


@dataclass(frozen=True)
class Root:
    """Nowhere in particular: started beside all units, in the root of the cgroups."""


Home = Pod | DockerContainer | Unit | Session | Root


@dataclass(frozen=True)
class Workload:
    """Somebody who uses GPUs: one process on each of `gpus`."""

    home: Home
    gpus: tuple[int, ...]
    """Indices of the GPUs it uses, granted or not; none = it holds what it was granted and does nothing."""
    watts: int = 0
    """What it draws while it runs, above idle."""
    rhythm: Rhythm = STEADY
    life: Life = Life()
    comm: str = "python3"
    memory_bytes: int = 4 * GIB
    wobble_permille: int = 30
    """A burst draws up to so much more or less than `watts`."""
    instance: int | None = None
    """GPU instance, where the GPU is in MIG mode."""
    mps_server: bool = False
    memory_percent: int = 40
    encoder_percent: int = 0
    decoder_percent: int = 0
    """What it takes of the other engines while it runs."""


def _slots(seconds: float) -> int:
    return round(seconds * SLOTS_PER_SECOND)
