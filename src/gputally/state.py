"""Totals and what was learned, kept in a folder so that a restart loses nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from gputally import files, intensity
from gputally.accounts import REASONS, Account, Amounts, Books, GpuAccount, Total
from gputally.attribute import GpuMemory, Memory
from gputally.idle import Floor
from gputally.ledger import Ledger
from gputally.meter import Meter
from gputally.model import Owner

log = logging.getLogger(__name__)

NAME = "gputally-state.json"
FORMAT = "gputally-state 1"
MOST_BYTES = 64 * 2**20


class Refused(Exception):
    """A state file that cannot be used; the text says why."""


class State:
    """A folder of ours with one file in it."""

    def __init__(self, path: str, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._folder = files.open_folder(path)

    @property
    def file(self) -> str:
        """Where it is."""
        return f"{self._path}/{NAME}"

    def load(self, monotonic: float, time: float) -> tuple[Books, Memory]:
        """What the exporter before this one knew; nothing where there is none or it cannot be used."""
        try:
            data = files.read(self._folder, NAME, MOST_BYTES)
            if data is None:
                return Books(), {}
            return _decode(_unseal(data), self._boot, monotonic, time)
        except (files.Unsafe, Refused) as error:
            log.error("%s is not used, and totals start anew: %s", self.file, error)
            with suppress(OSError):  # what it was can still be looked at
                os.rename(NAME, f"{NAME}.refused", src_dir_fd=self._folder, dst_dir_fd=self._folder)
            return Books(), {}

    def save(self, sealed: bytes) -> None:
        """Write what `seal` made; raises OSError where that cannot be done."""
        files.write(self._folder, NAME, sealed)

    def seal(self, ledger: Ledger, time: float) -> bytes:
        """Everything that must not be lost, as the bytes of a file."""
        ledger.file()
        body = json.dumps(_encode(ledger.books, ledger.memory, self._boot, time), separators=(",", ":"))
        digest = hashlib.sha256(body.encode()).hexdigest()
        return f"{FORMAT} {digest}\n{body}\n".encode()


def _unseal(data: bytes) -> Any:
    head, _, body = data.partition(b"\n")
    name, _, digest = head.decode("ascii", "replace").rpartition(" ")
    if name != FORMAT:
        raise Refused(f"it does not begin with {FORMAT!r}")
    if hashlib.sha256(body.removesuffix(b"\n")).hexdigest() != digest:
        raise Refused("its checksum is wrong: it is damaged or was changed")
    return json.loads(body)


def _encode(books: Books, memory: Memory, boot: str, time: float) -> dict[str, Any]:
    """What waits for a name that only this process can learn is nobody's for the next one."""
    gpus = {
        uuid: {**vars(account), "unattributed_uj": dict(account.unattributed_uj)}
        for uuid, account in books.gpus.items()
    }
    for (_, uuid, _), held in books.pending.items():
        gpus[uuid]["unattributed_uj"]["unnamed"] += held.amounts.all_uj
    namespaces = {key: asdict(total.amounts) for key, total in books.namespaces.totals.items()}
    work = []
    for (owner, uuid, mig), account in books.work.items():
        total = Amounts(**asdict(account.totals))
        if account.held is not None:
            total.add(account.held.amounts)
            _add(namespaces[owner.kind, owner.namespace, uuid], account.held.amounts)
        work.append([list(owner), uuid, mig, account.seen_at, asdict(total)])
    return {
        "boot": boot,
        "time": time,
        "gpus": gpus,
        "namespaces": [[list(key), amounts] for key, amounts in namespaces.items()],
        "work": work,
        "folded": books.namespaces.folded,
        "samples_dropped": dict(books.samples_dropped),
        "series_dropped": dict(books.series_dropped),
        "nvml_errors": [[list(key), count] for key, count in books.nvml_errors.items()],
        "memory": {uuid: _encode_memory(known) for uuid, known in memory.items()},
    }


def _add(amounts: dict[str, Any], more: Amounts) -> None:
    total = Amounts(**amounts)
    total.add(more)
    amounts.update(asdict(total))


def _encode_memory(known: GpuMemory) -> dict[str, Any]:
    return {
        "meter": known.meter._asdict(),
        "floor": list(known.floor.samples),
        "intensity": intensity.freeze(known.intensity, Owner),
    }


def _decode(state: Any, boot: str, monotonic: float, time: float) -> tuple[Books, Memory]:
    """Accounts as they were; counters of the hardware only where the machine has not been restarted."""
    try:
        books = Books(
            gpus={uuid: _gpu(account) for uuid, account in state["gpus"].items()},
            work={
                (Owner(*owner), uuid, mig): Account(monotonic, Amounts(**amounts))
                for owner, uuid, mig, _, amounts in state["work"]
            },
            samples_dropped=Counter(state["samples_dropped"]),
            series_dropped=Counter(state["series_dropped"]),
            nvml_errors=Counter({(call, code): n for (call, code), n in state["nvml_errors"]}),
        )
        for (kind, namespace, uuid), amounts in state["namespaces"]:
            books.namespaces.totals[kind, namespace, uuid] = Total(monotonic, Amounts(**amounts))
        books.namespaces.folded = state["folded"]
        away = max(0.0, time - state["time"])
        memory = {
            uuid: _memory(known, monotonic - away)
            for uuid, known in state["memory"].items()
            if state["boot"] == boot
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"it is not as this version writes it ({type(error).__name__}: {error})") from None
    return books, memory


def _gpu(account: dict[str, Any]) -> GpuAccount:
    unattributed = Counter({**dict.fromkeys(REASONS, 0), **account["unattributed_uj"]})
    return GpuAccount(**{**account, "unattributed_uj": unattributed, "window_seconds": 0.0})


def _memory(known: dict[str, Any], read_at: float) -> GpuMemory:
    meter = Meter(**{**known["meter"], "read_at": read_at, "moved_at": read_at})
    floor = Floor(tuple(float(watts) for watts in known["floor"]))
    return GpuMemory(meter, floor, intensity.thaw(known["intensity"], Owner._make), resumed=True)
