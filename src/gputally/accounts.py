"""Accounts: what workloads, namespaces and GPUs have used so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gputally.model import Owner, ProcessKey
from gputally.tally import NamespaceUse

REASONS = (
    "no_process",
    "unknown_process",
    "unnamed",
    "no_host_pid",
    "gap",
    "mig_change",
    "clock",
    "exporter_down",
)
MOST_NAMESPACES = 1_000
OTHER = "other"

Place = tuple[Owner, str, str]
"""Whose, on which GPU, in which MIG instance."""
NamespaceKey = tuple[str, str, str]
"""Of which kind, in which namespace, on which GPU."""


def of_namespace(place: Place) -> NamespaceKey:
    """Where the namespace of an owner has its total."""
    return place[0].kind, place[0].namespace, place[1]


@dataclass(slots=True)
class Amounts:
    """What can be posted; times and energies in millionths."""

    energy_uj: int = 0
    estimated_uj: int = 0
    idle_uj: int = 0
    busy_us: int | None = None

    @property
    def all_uj(self) -> int:
        """Energy of both kinds."""
        return self.energy_uj + self.idle_uj

    def add(self, more: Amounts) -> None:
        """Add up."""
        self.count(more.energy_uj, more.estimated_uj, more.idle_uj, more.busy_us)

    def count(self, energy_uj: int, estimated_uj: int, idle_uj: int, busy_us: int | None) -> None:
        """Add up."""
        self.energy_uj += energy_uj
        self.estimated_uj += estimated_uj
        self.idle_uj += idle_uj
        if busy_us is not None:
            self.busy_us = (self.busy_us or 0) + busy_us


@dataclass
class Held:
    """Amounts that wait: for their owner's name, or for his series to have been seen at zero."""

    since: float
    amounts: Amounts = field(default_factory=Amounts)


@dataclass(slots=True, eq=False)
class Account:
    """A workload on one GPU."""

    seen_at: float
    totals: Amounts = field(default_factory=Amounts)
    held: Held | None = None
    shown: bool = False
    """A Tally has shown it while its amounts were held."""
    window_us: int = 0
    """Busy time since the last Tally."""
    window_uj: int = 0
    """Energy charged to it since the last Tally."""


@dataclass
class GpuAccount:
    """A whole GPU."""

    energy_uj: int | None = None
    idle_uj: int = 0
    unattributed_uj: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(REASONS, 0)))
    discarded_uj: int = 0
    resets: int = 0
    integrated: bool = False
    idle_watts: float | None = None
    idle_source: str = "unknown"
    trust: float | None = None
    window_seconds: float = 0.0
    """Time since the last Tally in which activity was known."""


@dataclass
class Total:
    """What a namespace used of one GPU."""

    posted_at: float
    amounts: Amounts = field(default_factory=Amounts)


class Namespaces:
    """Totals that outlive workloads: the auditor's series, bounded in number."""

    def __init__(self) -> None:
        self.totals: dict[NamespaceKey, Total] = {}
        self.folded = 0

    def post(self, key: NamespaceKey, amounts: Amounts, now: float) -> None:
        """Add to the namespace's total on that GPU."""
        total = self.totals.get(key)
        if total is None:
            total = self.totals[key] = Total(now)
            if len(self.totals) > MOST_NAMESPACES:
                self._fold()
        total.amounts.add(amounts)
        total.posted_at = now

    def rows(self, indexes: dict[str, int]) -> tuple[NamespaceUse, ...]:
        """One row per namespace and GPU that is there."""
        return tuple(
            NamespaceUse(kind, namespace, indexes[uuid], uuid, used.energy_uj, used.idle_uj, used.busy_us)
            for (kind, namespace, uuid), total in self.totals.items()
            if uuid in indexes and (used := total.amounts)
        )

    def _fold(self) -> None:
        """Lay the one that has been quiet longest to the others of its GPU."""
        _, key = min((total.posted_at, key) for key, total in self.totals.items() if key[1] != OTHER)
        total = self.totals.pop(key)
        others = self.totals.setdefault((OTHER, OTHER, key[2]), Total(total.posted_at))
        others.amounts.add(total.amounts)
        self.folded += 1


@dataclass
class Books:
    """All accounts together: what a restart must not lose."""

    gpus: dict[str, GpuAccount] = field(default_factory=dict)
    work: dict[Place, Account] = field(default_factory=dict)
    newborn: dict[Place, Account] = field(default_factory=dict)
    """Those of the accounts whose amounts are held."""
    pending: dict[tuple[ProcessKey, str, str], Held] = field(default_factory=dict)
    namespaces: Namespaces = field(default_factory=Namespaces)
    samples_dropped: Counter[str] = field(default_factory=Counter)
    series_dropped: Counter[str] = field(default_factory=Counter)
    nvml_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    changes: int = 0
    """How often totals of workloads were changed; what lies on desks is not in them yet."""

    def waiting_uj(self) -> Counter[str]:
        """Energy of each GPU that waits for a name, or for its series to be seen."""
        waiting: Counter[str] = Counter()
        for (_, uuid, _), held in self.pending.items():
            waiting[uuid] += held.amounts.all_uj
        for (_, uuid, _), account in self.newborn.items():
            if account.held is not None:
                waiting[uuid] += account.held.amounts.all_uj
        return waiting
