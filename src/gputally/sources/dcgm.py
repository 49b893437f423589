"""DCGM beside NVML: profiling fields of GPUs, and its records of processes, in a lane of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from gputally.counted import DcgmRecord
from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import Device, Losses, Pace, Reading, Unreadable
from gputally.sources.dcgm_engine import Engine, Terms
from gputally.sources.dcgm_fields import attributes, out_of_range

log = logging.getLogger(__name__)

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
PATIENCE_TO_OPEN = 5.0
T = TypeVar("T")


class DcgmSource:
    """One host engine; asked once per interval, in one call for all GPUs and one per process record."""

    name = "dcgm"

    def __init__(
        self,
        machine: Machine,
        terms: Terms,
        *,
        records: bool,
        deadline: float = 2.0,
        patience: float = 0.25,
    ) -> None:
        self._machine = machine
        self._terms = terms
        self._wants_records = records
        self._deadline = deadline
        self._patience = patience
        self._lane = Lane("dcgm")
        self._engine = Engine(machine, terms)
        self._expected = terms.address != "auto"
        """Whether its absence is a fault: it was named, or it once was there."""
        self._open = False
        self._reason: str | None = None
        """Why it is down; empty while it is up, None until it is known."""
        self._round: asyncio.Task[None] | None = None
        self._retry_after, self._retry_at = FIRST_RETRY, 0.0
        self._values: Mapping[str, Mapping[int, float]] = {}
        self._cut = 0
        self._records: dict[int, Mapping[str, DcgmRecord]] = {}

    @property
    def stuck(self) -> Mapping[str, int]:
        """Its one lane, where it is expected to be."""
        return {self._lane.name: int(self._lane.stuck)} if self._expected else {}

    async def read(self, pace: Pace, devices: Sequence[Device]) -> Reading | None:
        """What it last told; at the interval it is asked anew, and waited for a little."""
        now = self._machine.clock.monotonic()
        if not devices:
            await self._rest(now)
        elif pace is Pace.INTERVAL:
            if self._round is None and not self._lane.busy and now >= self._retry_at:
                self._round = asyncio.ensure_future(self._ask_all(devices))
            if self._round is not None:
                await asyncio.wait((self._round,), timeout=self._patience)
        self._take(now)
        if self._reason is None or (self._reason and not self._expected):
            return None
        if self._reason:
            raise Unreadable(self._reason)
        told = tuple(self._device(device) for device in devices if device.uuid in self._values)
        cut, self._cut = self._cut, 0
        return Reading(told, losses=Losses(samples={"profiling_out_of_range": cut} if cut else {}))

    async def close(self) -> None:
        """Disconnect, unless a call that never returns holds the library."""
        if self._round is not None:
            self._round.cancel()
        if self._open and not self._lane.busy:
            with suppress(Unreadable):
                await self._lane.ask(self._engine.close, 1.0)

    async def _rest(self, now: float) -> None:
        """With no GPU found, or all let go of to be reset, our own host engine must not hold them either."""
        self._take(now)
        if self._open and self._round is None:
            await self.close()
            self._open, self._values, self._records = False, {}, {}
            self._reason = "dcgm: there is no GPU to tell of"

    async def _ask_all(self, devices: Sequence[Device]) -> None:
        if not self._open:
            await self._lane.ask(self._engine.open, max(self._deadline, PATIENCE_TO_OPEN))
            self._open = True
        self._values = await self._ask(self._engine.values)
        self._cut += sum(map(out_of_range, self._values.values()))
        self._expected, self._reason = True, ""
        self._retry_after = FIRST_RETRY
        if self._wants_records:
            await self._ask_records(devices)

    async def _ask_records(self, devices: Sequence[Device]) -> None:
        """Each process in turn, those longest unasked first: over TCP a record takes 90 ms."""
        accounted = frozenset(device.uuid for device in devices if device.mode_enabled.get("accounting"))
        there = await self._ask(lambda: self._engine.watch_records(accounted))
        pids = _pids(device for device in devices if device.uuid in accounted) if there else set()
        self._records = {pid: told for pid, told in self._records.items() if pid in pids}
        until = self._machine.clock.monotonic() + self._terms.interval / 2
        for pid in [*sorted(pids - self._records.keys()), *self._records]:
            if self._machine.clock.monotonic() > until:
                return
            told = await self._ask(partial(self._engine.record, pid))
            self._records.pop(pid, None)
            self._records[pid] = told

    async def _ask(self, call: Callable[[], T]) -> T:
        return await self._lane.ask(call, self._deadline)

    def _take(self, now: float) -> None:
        """See how a round ended; after a failure nothing that was told before is true."""
        if self._round is None or not self._round.done():
            return
        ended, self._round = self._round, None
        try:
            ended.result()
        except Unreadable as error:
            self._open, self._values, self._records = False, {}, {}
            self._reason = str(error)
            self._retry_at = now + self._retry_after
            self._retry_after = min(2 * self._retry_after, LAST_RETRY)
            log.debug("dcgm: %s", error)

    def _device(self, device: Device) -> Device:
        numbers = self._values[device.uuid]
        records = {pid: told[device.uuid] for pid, told in self._records.items() if device.uuid in told}
        told: dict[str, Any] = {"dcgm_fields": numbers, "dcgm_records": records, **attributes(numbers)}
        return Device(device.uuid, device.index, **told)


def _pids(devices: Iterable[Device]) -> set[int]:
    return {holder.pid for device in devices for holder in device.holders or ()}
