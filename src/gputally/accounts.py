"""Accounts: what workloads, namespaces and GPUs have used so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gputally.model import Owner
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


@dataclass
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
        self.energy_uj += more.energy_uj
        self.estimated_uj += more.estimated_uj
        self.idle_uj += more.idle_uj
        if more.busy_us is not None:
            self.busy_us = (self.busy_us or 0) + more.busy_us


@dataclass
class Held:
    """Amounts that wait: for their owner's name, or for his series to have been seen at zero."""

    since: float
    amounts: Amounts = field(default_factory=Amounts)


@dataclass
class Account:
    """A workload on one GPU."""

    seen_at: float
    totals: Amounts = field(default_factory=Amounts)
    held: Held | None = None
    shown: bool = False
    """A Tally has shown it while its amounts were held."""
    window_us: int = 0
    """Busy time since the last Tally."""


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


class Namespaces:
    """Totals that outlive workloads: the auditor's series, bounded in number."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str, str], tuple[Amounts, float]] = {}
        self.folded = 0

    def post(self, owner: Owner, uuid: str, amounts: Amounts, now: float) -> None:
        """Add to the namespace's total on that GPU."""
        key = (owner.kind, owner.namespace, uuid)
        total, _ = self._used.get(key) or (Amounts(), now)
        total.add(amounts)
        self._used[key] = (total, now)
        if len(self._used) > MOST_NAMESPACES:
            self._fold()

    def rows(self, indexes: dict[str, int]) -> tuple[NamespaceUse, ...]:
        """One row per namespace and GPU that is there."""
        return tuple(
            NamespaceUse(kind, namespace, indexes[uuid], uuid, total.energy_uj, total.idle_uj, total.busy_us)
            for (kind, namespace, uuid), (total, _) in self._used.items()
            if uuid in indexes
        )

    def _fold(self) -> None:
        """Lay the one that has been quiet longest to the others of its GPU."""
        quiet = [(at, key) for key, (_, at) in self._used.items() if key[1] != OTHER]
        _, key = min(quiet)
        total, at = self._used.pop(key)
        others, _ = self._used.setdefault((OTHER, OTHER, key[2]), (Amounts(), at))
        others.add(total)
        self.folded += 1
