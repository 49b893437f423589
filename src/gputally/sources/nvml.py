"""NVML as a source: starts the library, finds the GPUs, and reads each in a lane of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import Device, DeviceInfo, Losses, Pace, Reading, State, Unreadable
from gputally.sources.nvml_gpu import DRIVER_GONE, GPU_IS_LOST, GPU_NOT_FOUND, RESET_REQUIRED, Answers, Gpu

ENUMERATE_EVERY = 60.0
LIBRARY_NOT_FOUND = 12
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
FIRST_RETURN, LAST_RETURN = 30.0, 300.0
STATES: dict[int | None, State] = {
    GPU_IS_LOST: State.LOST,
    GPU_NOT_FOUND: State.LOST,
    RESET_REQUIRED: State.RESET_REQUIRED,
}
FIX = (
    "is the NVIDIA driver loaded and its library visible here (in a container: the nvidia runtime or CDI)? "
    "--nvml.library names another library; --machine simulated shows gputally without a GPU"
)


class Choice:
    """Which GPUs are wanted: all, or some by index and some by uuid."""

    def __init__(self, gpus: tuple[str, ...] = ()) -> None:
        self.all = not gpus
        self.indexes = frozenset(int(g) for g in gpus if g.isdigit())
        self.uuids = frozenset(g for g in gpus if not g.isdigit())

    def untouched(self, index: int) -> bool:
        """A GPU that need not even be asked who it is."""
        return not self.all and not self.uuids and index not in self.indexes

    def wanted(self, index: int, uuid: str) -> bool:
        """A GPU that is to be read."""
        return self.all or index in self.indexes or uuid in self.uuids


@dataclass
class Seat:
    """An index on the bus: its lane, its GPU, what was last known of it."""

    lane: Lane
    gpu: Gpu
    device: Device
    reading: asyncio.Task[Answers] | None = None
    identify: bool = True
    pause: float = 0.0
    not_before: float = 0.0


class NvmlSource:
    """All wanted GPUs of a machine."""

    name = "nvml"

    def __init__(
        self, machine: Machine, choice: Choice | None = None, *, deadline: float = 2.0, patience: float = 0.5
    ) -> None:
        self._machine = machine
        self._choice = choice or Choice()
        self._deadline = deadline
        self._patience = patience
        self._driver = Lane("driver")
        self._started: asyncio.Task[tuple[int, Mapping[str, Any]]] | None = None
        self._versions: Mapping[str, Any] = {}
        self.cannot_load = False
        """There is no library to ask."""
        self._initialised = False
        self._up = False
        self._retry_after, self._retry_at = FIRST_RETRY, 0.0
        self._enumerate_at = 0.0
        self._reason = ""
        self._seats: dict[int, Seat] = {}
        self._missing: dict[str, Device] = {}

    async def read(self, pace: Pace) -> Reading:
        """Every GPU as it is now; one that is late is taken up when its answer comes."""
        now = self._machine.clock.monotonic()
        if not self._up or now >= self._enumerate_at:
            await self._enumerate(now)
        for seat in self._seats.values():
            self._ask(seat, pace, now)
        pending = [seat.reading for seat in self._seats.values() if seat.reading is not None]
        if pending:
            await asyncio.wait(pending, timeout=self._patience)
        losses = [self._take(seat, now) for seat in self._seats.values()]
        devices = {seat.device.uuid or seat.gpu.index: seat.device for seat in self._shown()}
        return Reading(
            devices=tuple(
                sorted((*self._missing.values(), *devices.values()), key=lambda d: (d.index, d.uuid))
            ),
            stuck={lane.name: int(lane.stuck) for lane in self._lanes()},
            losses=Losses.sum(losses),
        )

    async def close(self) -> None:
        """Shut the library down, unless a call that never returns holds it."""
        self._up = False
        if not self._initialised or any(lane.busy for lane in self._lanes()):
            return
        try:
            await self._driver.ask(lambda: self._machine.nvml(None, "nvmlShutdown"), deadline=1.0)
        except Unreadable:
            return

    def _lanes(self) -> list[Lane]:
        return [self._driver, *(seat.lane for seat in self._seats.values())]

    async def _enumerate(self, now: float) -> None:
        """Start the library if need be, count the GPUs, and have each say who it is at its next reading."""
        if now < self._retry_at:
            raise Unreadable(self._reason)
        if self._started is None:
            self._started = asyncio.ensure_future(self._driver.ask(self._start, max(self._deadline, 5.0)))
        await asyncio.wait((self._started,), timeout=self._patience)
        if not self._started.done():
            if not self._up:
                raise Unreadable("nvml: the driver has not answered yet")
            return
        task, self._started = self._started, None
        try:
            count, self._versions = task.result()
        except Unreadable as error:
            self.cannot_load = error.code == LIBRARY_NOT_FOUND
            raise self._down(str(error), now) from None
        self.cannot_load = False
        if not self._up:
            self._forget()
        self._up = True
        self._retry_after, self._retry_at = FIRST_RETRY, 0.0
        self._enumerate_at = now + ENUMERATE_EVERY
        self._seat(count)

    def _start(self) -> tuple[int, Mapping[str, Any]]:
        ask = self._machine.nvml
        if not self._up:
            if self._initialised:  # by a driver that went
                _or_none(lambda: ask(None, "nvmlShutdown"))
            ask(None, "nvmlInit")
            self._initialised = True
        count = ask(None, "nvmlDeviceGetCount")
        versions = {"driver_version": _or_none(lambda: str(ask(None, "nvmlSystemGetDriverVersion")))}
        cuda = _or_none(lambda: int(ask(None, "nvmlSystemGetCudaDriverVersion")))
        if cuda is not None:
            versions["cuda_version"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        return count, versions

    def _down(self, reason: str, now: float) -> Unreadable:
        """The whole source is down: forget the epoch, try again after a pause that grows."""
        self._up = False
        self._reason = f"{reason}; {FIX}"
        self._retry_at = now + self._retry_after
        self._retry_after = min(2 * self._retry_after, LAST_RETRY)
        self._forget()
        return Unreadable(self._reason)

    def _forget(self) -> None:
        """What GPUs could and could not was true of the driver that is gone."""
        for index in [i for i, seat in self._seats.items() if not seat.lane.busy]:
            self._seats.pop(index).lane.end()

    def _seat(self, count: int) -> None:
        """One seat per index; GPUs that are no longer counted are remembered as lost."""
        for index in range(count):
            if index not in self._seats and not self._choice.untouched(index):
                gpu = Gpu(self._machine, index)
                self._seats[index] = Seat(Lane(f"gpu{index}"), gpu, Device(uuid="", index=index))
            elif index in self._seats:
                self._seats[index].identify = True
        for index in [i for i in self._seats if i >= count and not self._seats[i].lane.busy]:
            seat = self._seats.pop(index)
            seat.lane.end()
            if seat.device.uuid:
                self._missing[seat.device.uuid] = _bare(seat.device, State.LOST)

    def _ask(self, seat: Seat, pace: Pace, now: float) -> None:
        if seat.reading is not None or seat.lane.busy or now < seat.not_before:
            return
        gpu, hung = seat.gpu, {s.device.uuid for s in self._seats.values() if s.lane.stuck}
        identify, seat.identify = seat.identify, False

        def wanted(uuid: str) -> bool:
            # After indexes shifted, the GPU here may be one that another lane is stuck in.
            return uuid not in hung and self._choice.wanted(gpu.index, uuid)

        call = seat.lane.ask(lambda: gpu.read(pace, identify, wanted), self._deadline)
        seat.reading = asyncio.ensure_future(call)

    def _take(self, seat: Seat, now: float) -> Losses:
        """Fold the answers of a reading that is done into what is known of its GPU."""
        if seat.reading is None or not seat.reading.done():
            return Losses()
        reading, seat.reading = seat.reading, None
        try:
            answers = reading.result()
        except Unreadable as error:
            self._fail(seat, error, now)
        else:
            seat.pause = seat.not_before = 0.0
            seat.device = self._device(seat.device, answers)
            self._missing.pop(answers.uuid, None)
        return Losses() if seat.lane.busy else seat.gpu.losses()

    def _device(self, before: Device, answers: Answers) -> Device:
        if answers.info is not None or before.uuid != answers.uuid:
            info = DeviceInfo(**self._versions, **(answers.info or {}))
            before = Device(uuid=answers.uuid, index=before.index, info=info)
        if answers.pace is Pace.INTERVAL:
            return Device(answers.uuid, before.index, info=before.info, **answers.values)
        return replace(before, state=State.OK, **answers.values)

    def _fail(self, seat: Seat, error: Unreadable, now: float) -> None:
        if error.code in DRIVER_GONE:
            self._enumerate_at = 0.0
            self._up = False
        if seat.lane.stuck:
            state = State.HUNG
        else:
            state = STATES.get(error.code, State.FAILING)
            seat.pause = min(max(2 * seat.pause, FIRST_RETURN), LAST_RETURN)
            seat.not_before = now + seat.pause
        seat.identify = True
        seat.device = _bare(seat.device, state)

    def _shown(self) -> list[Seat]:
        """Seats whose GPU is wanted; of two seats that claim one GPU, the one that hangs in it."""
        devices = [(seat.device, seat) for seat in self._seats.values()]
        seats = [
            seat
            for device, seat in devices
            if self._choice.wanted(device.index, device.uuid)
            and (device.uuid or device.state is not State.OK)
        ]
        return sorted(seats, key=lambda seat: seat.lane.stuck)


def _bare(device: Device, state: State) -> Device:
    """What is left of a GPU that does not answer: its name, and how it is."""
    return Device(uuid=device.uuid, index=device.index, info=device.info, state=state)


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Unreadable:
        return None
