"""Who has a GPU: all of its energy put down to somebody, as exporters do that name one owner per GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gputally.accounts import Books
from gputally.model import Device, Owner, Snapshot
from gputally.tally import Claim, Gpu

NAMED = ("pod", "slurm", "job")
"""Kinds of owners that are told by name; all others together are nobody by name."""

Holding = tuple[Owner | None, str]
"""Who, in which MIG instance."""
NOBODY: Holding = (None, "")


@dataclass(slots=True)
class _Total:
    energy_uj: int
    seen_at: float


class ClaimBook:
    """Totals per GPU that add up to the GPU's: shares where it is shared, the rest to whoever is alone on it.

    A total only grows, and an owner that comes back within the retention goes on where it was.
    """

    def __init__(self, books: Books, retention: float) -> None:
        self._books = books
        self._retention = retention
        self._counted = {uuid: account.energy_uj or 0 for uuid, account in books.gpus.items()}
        self._totals: dict[str, dict[Holding, _Total]] = {}

    def rows(self, snapshot: Snapshot, gpus: Iterable[Gpu]) -> Mapping[str, tuple[Claim, ...]]:
        """Everyone who has each GPU now, and nobody by name unless somebody has it alone."""
        return {gpu.device.uuid: self._claims(gpu, snapshot) for gpu in gpus}

    def _claims(self, gpu: Gpu, snapshot: Snapshot) -> tuple[Claim, ...]:
        uuid, now = gpu.device.uuid, snapshot.monotonic
        used = (gpu.energy_uj or 0) - self._counted.get(uuid, 0)
        totals = self._totals.get(uuid)
        if totals is None:
            base = max(0, (gpu.device.energy_uj or 0) - (gpu.energy_uj or 0))
            totals = self._totals[uuid] = {NOBODY: _Total(base, now)}
        self._counted[uuid] = gpu.energy_uj or 0
        present, others = _present(gpu.device, snapshot)
        sole = (
            next(iter(present)) if len(present) == 1 and not others and not gpu.device.instances else NOBODY
        )
        parts = self._charged(uuid)
        rest = max(0, used - sum(parts.values()))
        parts[sole] = parts.get(sole, 0) + rest
        for holding in dict.fromkeys((*parts, *present)):
            total = totals.setdefault(holding, _Total(0, now))
            total.energy_uj += parts.get(holding, 0)
        whole = sum(parts.values())
        shown = present if sole in present else {**present, NOBODY: None}
        for holding in shown:
            totals[holding].seen_at = now
        self._forget(totals, now)
        return tuple(
            Claim(
                *holding,
                totals[holding].energy_uj,
                parts.get(holding, 0) / whole if whole else float(holding == sole),
            )
            for holding in shown
        )

    def _charged(self, uuid: str) -> dict[Holding, int]:
        """What attribution charged to each since the last Tally."""
        parts: dict[Holding, int] = {}
        for (owner, place, mig), account in self._books.work.items():
            if place == uuid and account.window_uj:
                holding = (owner, mig) if owner.kind in NAMED else NOBODY
                parts[holding] = parts.get(holding, 0) + account.window_uj
        return parts

    def _forget(self, totals: dict[Holding, _Total], now: float) -> None:
        for holding in [h for h, t in totals.items() if h != NOBODY and now - t.seen_at > self._retention]:
            del totals[holding]


def _present(device: Device, snapshot: Snapshot) -> tuple[dict[Holding, None], bool]:
    """Named owners to whom the GPU is granted or who hold a context, and whether others hold one."""
    present: dict[Holding, None] = {
        (grant.owner, grant.mig): None for grant in snapshot.grants or () if grant.uuid == device.uuid
    }
    others = False
    for holder in device.holders or ():
        process = snapshot.processes.get(holder.pid)
        owner = None if process is None else snapshot.owners[process.key]
        if owner is not None and owner.kind in NAMED:
            present.setdefault((owner, holder.mig))
        else:
            others = True
    return present, others
