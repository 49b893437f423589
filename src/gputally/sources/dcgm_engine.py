"""One connection to a DCGM host engine, as its lane uses it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gputally.counted import DcgmRecord
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.sources.dcgm_fields import DEVICE_FIELDS, FIELDS, PROFILING_FIELDS, believable, records

log = logging.getLogger(__name__)

NO_DATA, NOT_WATCHED = -14, -16
CONNECTION_LOST = (-21, -10, -11)
USUAL_ADDRESS = "127.0.0.1:5555"
KEEP_SECONDS = 600.0
"""As dcgm-exporter asks: before DCGM 4.1.1 a shorter time would cut what other clients see."""
MOST_SAMPLES = 2880
"""Of a window; each costs the host engine some 4 kB per GPU with twenty processes."""
LOOK_AGAIN = 60.0
NOBODY = 4_194_304
"""A pid that Linux never gives: 2^22 is its limit."""


@dataclass(frozen=True)
class Terms:
    """How a host engine is asked."""

    address: str
    interval: float
    window: float
    """For how long it is to keep what process records are made of."""
    max_age: float
    timeout: float

    @property
    def every_us(self) -> int:
        """Microseconds between two samples of the window."""
        return round(max(self.interval, self.window / MOST_SAMPLES) * 1e6)


@dataclass
class Engine:
    """A host engine: the GPUs it knows, and what is watched there."""

    machine: Machine
    terms: Terms
    _uuids: dict[int, str] = field(default_factory=dict)
    _profiled: bool = False
    _group: int | None = None
    _recorded: frozenset[str] = frozenset()
    _liars: frozenset[int] = frozenset()
    _look_at: float = 0.0
    _told: dict[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Connect, see that somebody is there, and watch; whatever was open before is closed."""
        self.close()
        try:
            self._connect()
            self._watch(DEVICE_FIELDS)
            self._look()
        except Unreadable:
            self.close()
            raise

    def values(self) -> Mapping[str, Mapping[int, float]]:
        """uuid -> DCGM's numbers by field."""
        if self.machine.clock.monotonic() >= self._look_at:
            self._look()
        rows = self.machine.dcgm("dcgmEntitiesGetLatestValues", list(self._uuids), FIELDS)
        oldest_us = (self.machine.clock.time() - self.terms.max_age) * 1e6
        numbers: dict[str, dict[int, float]] = {uuid: {} for uuid in self._uuids.values()}
        for row in rows:
            if row[0] in self._uuids and believable(row, oldest_us):
                numbers[self._uuids[row[0]]][row[1]] = row[4]
        return numbers

    def watch_records(self, accounted: frozenset[str]) -> bool:
        """Have records kept of processes on exactly these GPUs; tells whether there are any.

        Only those whose accounting mode is on: for others a host engine that may would turn it on.
        """
        known = frozenset(accounted & set(self._uuids.values()))
        if known != self._recorded:
            self._end_records()
            self._recorded = known
            if known:
                self._attempt("records of processes", lambda: self._begin_records(known))
        return self._group is not None

    def record(self, pid: int) -> Mapping[str, DcgmRecord]:
        """uuid -> what is told of a process there."""
        now_us, window_us = self.machine.clock.time() * 1e6, self.terms.window * 1e6
        found = records(self._pid_info(pid), now_us, window_us)
        return {
            self._uuids[gpu]: record
            for gpu, record in found.items()
            if gpu in self._uuids and gpu not in self._liars
        }

    def close(self) -> None:
        """Let go, in whatever state it is."""
        self._uuids, self._profiled, self._look_at = {}, False, 0.0
        self._group, self._recorded, self._liars = None, frozenset(), frozenset()
        with suppress(Unreadable):
            self.machine.dcgm("dcgmDisconnect")

    def _connect(self) -> None:
        ask = self.machine.dcgm
        address = USUAL_ADDRESS if self.terms.address == "auto" else self.terms.address
        if address == "embedded":
            ask("dcgmStartEmbedded_v2")
        else:
            ask("dcgmConnect_v2", address, round(self.terms.timeout * 1000))
        # A login that failed is called a success and leaves a dead handle: only an answer is proof.
        engine, library = _major(ask("dcgmHostengineVersionInfo")), _major(ask("dcgmVersionInfo"))
        if engine != library:
            raise Unreadable(
                f"dcgm: the host engine is of DCGM {engine}, the library of DCGM {library}; "
                "--dcgm.library names one of the same major version"
            )

    def _look(self) -> None:
        """What may change while connected: the GPUs, whether they can be profiled, whose records are true."""
        ask = self.machine.dcgm
        ids = ask("dcgmGetAllSupportedDevices")
        self._uuids = {gpu: ask("dcgmGetDeviceAttributes", gpu)["uuid"] for gpu in ids}
        if not self._profiled:
            self._attempt("profiling fields", self._profile)
        if self._group is not None:
            self._find_liars()
        else:
            self._recorded = frozenset()  # what was refused is tried again
        self._look_at = self.machine.clock.monotonic() + LOOK_AGAIN

    def _profile(self) -> None:
        self._watch(PROFILING_FIELDS)
        self._profiled = True

    def _watch(self, fields: tuple[int, ...]) -> None:
        self.machine.dcgm("dcgmWatchFields", fields, round(self.terms.interval * 1e6), KEEP_SECONDS)

    def _begin_records(self, accounted: frozenset[str]) -> None:
        ids = [gpu for gpu, uuid in self._uuids.items() if uuid in accounted]
        self._group = self.machine.dcgm("dcgmGroupCreate", ids)
        try:
            self.machine.dcgm("dcgmWatchPidFields", self._group, self.terms.every_us, self.terms.window, 0)
            self._find_liars()
        except Unreadable:
            self._end_records()
            raise

    def _end_records(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            with suppress(Unreadable):
                self.machine.dcgm("dcgmGroupDestroy", group)

    def _find_liars(self) -> None:
        """GPUs without accounting (under MIG) have a record, of rubbish, of every pid, also of nobody's."""
        self._liars = frozenset(row["gpuId"] for row in self._pid_info(NOBODY))

    def _pid_info(self, pid: int) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = self.machine.dcgm("dcgmGetPidInfo", self._group, pid)
        except Unreadable as error:
            if error.code not in (NO_DATA, NOT_WATCHED):
                raise
            return []
        return rows

    def _attempt(self, what: str, step: Callable[[], None]) -> None:
        """Something the engine may refuse while it gives the rest; said once per reason."""
        try:
            step()
            reason = ""
        except Unreadable as error:
            if error.code in CONNECTION_LOST:
                raise
            reason = str(error)
        if reason and self._told.get(what) != reason:
            log.warning("dcgm gives no %s: %s", what, reason)
        self._told[what] = reason


def _major(version: str) -> str:
    """The first number of a build text such as version:4.6.0;arch:x86_64;…"""
    found = re.search(r"version:(\d+)", version)
    return found[1] if found else "unknown"
