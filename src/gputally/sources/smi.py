"""nvidia-smi as a source, where NVML cannot be loaded: one query for GPUs and one for their processes."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable

from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import YIELDED, Device, DeviceInfo, Holder, Losses, Pace, Reading, State, Unreadable
from gputally.sources.nvml import Choice
from gputally.sources.smi_table import GPU_COLUMNS, Table, read_table, values

FORMAT = "--format=csv,nounits"
PROCESSES = "gpu_uuid,pid,used_gpu_memory"
FORKS_AT_MOST = 12
"""Queries of the first reading: an old nvidia-smi names the columns it does not know one by one."""
SPARE = 2.0
"""Seconds beyond its deadline that a child is given to be killed, before the lane counts as stuck."""
NOT_YET = "nvidia-smi: has not answered yet"
UUID = re.compile(r"GPU-[0-9a-fA-F-]{36}")

Held = dict[str, dict[int, int | None]]
"""uuid -> pid -> bytes of memory."""


class SmiSource:
    """Every wanted GPU as nvidia-smi tells it, at the interval's pace."""

    name = "smi"

    def __init__(
        self,
        machine: Machine,
        choice: Choice | None = None,
        *,
        deadline: float = 5.0,
        patience: float = 0.5,
        needed: Callable[[], bool] | None = None,
        resting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._machine = machine
        self._choice = choice or Choice()
        self._deadline = deadline
        self._patience = patience
        self._needed = needed
        """Whether there is no better source just now; None = this one is wanted whatever there is."""
        self._resting = resting
        """Whether GPUs are to be let alone: nvidia-smi opens them all."""
        self._lane = Lane("smi")
        self._columns = ["index", "uuid", *(column.name for column in GPU_COLUMNS)]
        self._asking: asyncio.Task[tuple[tuple[Device, ...], Losses]] | None = None
        self._devices: tuple[Device, ...] = ()
        self._reason = NOT_YET
        self._missing = False

    async def read(self, pace: Pace) -> Reading | None:
        """The GPUs as they were last told; None while nobody needs this source."""
        if self._needed is not None and not self._needed():
            await self._take()  # what a child still had to say is of no use now
            self._devices, self._reason = (), NOT_YET
            return None
        if self._resting():
            await self._take()
            self._devices, self._reason = (), NOT_YET
            raise Unreadable("nvidia-smi: told to let go of the GPUs", YIELDED)
        if self._asking is None and pace is not Pace.TICK:
            self._asking = asyncio.ensure_future(self._lane.ask(self._ask, self._whole_deadline()))
        losses = await self._take()
        if self._missing and self._needed is not None:
            return None
        stuck = {self._lane.name: int(self._lane.stuck)}
        return Reading(self._devices, stuck=stuck, losses=losses, down=self._reason)

    async def close(self) -> None:
        """Nothing is held; a child that runs is killed with the machine."""

    def _whole_deadline(self) -> float:
        return 2 * self._deadline + SPARE if self._devices else FORKS_AT_MOST * self._deadline

    async def _take(self) -> Losses:
        """Take up what was told since the reading before, waited for a little."""
        if self._asking is None:
            return Losses()
        await asyncio.wait((self._asking,), timeout=self._patience)
        if not self._asking.done():
            return Losses()
        task, self._asking = self._asking, None
        try:
            self._devices, losses = task.result()
        except Unreadable as error:
            self._reason = str(error)
            state = State.HUNG if error.code == errno.ETIMEDOUT or self._lane.stuck else State.FAILING
            self._devices = tuple(_silent(device, state) for device in self._devices)
            self._missing = error.code == errno.ENOENT
            return Losses()
        self._reason, self._missing = "", False
        return losses

    def _ask(self) -> tuple[tuple[Device, ...], Losses]:
        gpus = self._gpus()
        asked_at = self._machine.clock.monotonic()
        held, refused = self._holders()
        listed_at = self._machine.clock.monotonic()
        told = [_device(gpus, number, asked_at, held, listed_at) for number in range(len(gpus.rows))]
        devices = [device for device in told if device is not None]
        malformed = gpus.malformed + refused + len(gpus.rows) - len(devices)
        wanted = [device for device in devices if self._choice.wanted(device.index, device.uuid)]
        unique = {device.uuid: device for device in wanted}
        losses = Losses({"smi_malformed": malformed} if malformed else {})
        return tuple(sorted(unique.values(), key=lambda device: device.index)), losses

    def _gpus(self) -> Table:
        """Every GPU; columns that this nvidia-smi does not know are not asked for again."""
        for _ in range(FORKS_AT_MOST - 1):
            try:
                output = self._machine.smi((f"--query-gpu={','.join(self._columns)}", FORMAT), self._deadline)
                return read_table(output, ("uuid",))
            except Unreadable as error:
                unknown = re.search(r'Field "([a-z0-9_.]+)" is not a valid field', str(error))
                if unknown is None or unknown[1] not in self._columns[2:]:
                    raise
                self._columns.remove(unknown[1])
        raise Unreadable("nvidia-smi: it knows too few of the columns asked for")

    def _holders(self) -> tuple[Held | None, int]:
        """Who holds memory, and how many rows made no sense; None where the list cannot be had."""
        try:
            output = self._machine.smi((f"--query-compute-apps={PROCESSES}", FORMAT), self._deadline)
            table = read_table(output, ("gpu_uuid", "pid"))
        except Unreadable:
            return None, 0
        held: Held = {}
        refused = table.malformed
        for row in table.rows:
            uuid, pid = row["gpu_uuid"] or "", row["pid"] or ""
            if not UUID.fullmatch(uuid) or not re.fullmatch(r"[1-9]\d{0,9}", pid):
                refused += 1
                continue
            used = table.number(row, "used_gpu_memory") if "used_gpu_memory" in table.columns else None
            memory = held.setdefault(uuid, {})
            known = [
                m for m in (memory.get(int(pid)), None if used is None else round(used)) if m is not None
            ]
            memory[int(pid)] = max(known, default=None)
        return held, refused


def _device(table: Table, number: int, at: float, held: Held | None, listed_at: float) -> Device | None:
    row = table.rows[number]
    uuid, index = row["uuid"] or "", row.get("index") or str(number)
    if not UUID.fullmatch(uuid) or not re.fullmatch(r"\d{1,4}", index):
        return None
    return Device(
        uuid,
        int(index),
        info=DeviceInfo(**values(table, row, info=True)),
        read_at=at,
        gauges_at=at,
        holders=None if held is None else tuple(Holder(p, m) for p, m in held.get(uuid, {}).items()),
        listed_at=listed_at,
        **values(table, row, info=False),
    )


def _silent(device: Device, state: State) -> Device:
    return Device(device.uuid, device.index, info=device.info, state=state)
