"""NVML as a source: finds the GPUs, and reads each in a lane of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from operator import attrgetter

from gputally.counted import NO_LOSSES, Counters
from gputally.lanes import Lane, Turns
from gputally.machine import Machine
from gputally.model import Device, DeviceInfo, Losses, Pace, Reading, State, Unreadable
from gputally.sources.nvml_batch import Spent
from gputally.sources.nvml_codes import Meaning, meaning, state_of
from gputally.sources.nvml_driver import Driver
from gputally.sources.nvml_events import Events
from gputally.sources.nvml_gpu import Answers, Gpu
from gputally.sources.nvml_seats import Absent, Epochs, Seat, bare, updated
from gputally.sources.nvml_seats import Choice as Choice

TURN = 0.05
"""Seconds for which a GPU is waited for before the next one is asked beside it."""

log = logging.getLogger(__name__)

FIRST_RETURN, LAST_RETURN = 6, 60
"""Intervals after which a GPU that failed is asked again: at first, and in the end."""
COUNT_EVERY = 12
"""Intervals after which GPUs are counted, and say who they are, even if nothing happened."""
REST = 4.0
"""A GPU whose interval reading was slow is let alone for so many times as long."""
DENIED = (
    "GPU %d (%s): no permission for %s; what they tell is missing"
    " (MIG in a container needs NVIDIA_MIG_MONITOR_DEVICES=all)"
)
COUNTED = frozenset(row.name for row in fields(Counters))
NOTHING_COUNTED = Counters()

_PLACE = attrgetter("index", "uuid")


class NvmlSource:
    """All wanted GPUs of a machine."""

    name = "nvml"

    def __init__(
        self,
        machine: Machine,
        choice: Choice | None = None,
        *,
        interval: float = 5.0,
        deadline: float = 2.0,
        patience: float = 0.5,
        grace: float = 60.0,
        pcie_throughput: bool = False,
    ) -> None:
        self.driver = Driver(
            machine,
            deadline=deadline,
            patience=patience,
            grace=grace,
            count_every=COUNT_EVERY * interval,
        )
        self._machine = machine
        self._choice = choice or Choice()
        self._interval = interval
        self._deadline = deadline
        self._patience = patience
        self._pcie_throughput = pcie_throughput
        self._events = Events(machine)
        self._loads = self._counted = 0
        self._seats: dict[int, Seat] = {}
        self._absent = Absent()
        self._gone: frozenset[str] = frozenset()
        self._epochs = Epochs()
        self._spent = Spent()

    async def read(self, pace: Pace) -> Reading:
        """Every GPU as it is now; one that is late is taken up when its answer comes."""
        now = self._machine.clock.monotonic()
        self._gone = frozenset(self._absent.devices)
        try:
            await self.driver.resting(now, self._lanes())
            await self._enumerate(now)
        except Unreadable as error:
            return self._unread(error, pace, now)
        turns = Turns(self._deadline)
        hung = {seat.device.uuid for seat in self._seats.values() if seat.lane.stuck}
        for seat in self._seats.values():
            self._ask(seat, pace, now, turns, hung)
        waits = self._events.ask(turns) if pace is Pace.INTERVAL else None
        await turns.all(TURN)
        asked = (waits, *(seat.reading for seat in self._seats.values()))
        pending = [answer for answer in asked if answer is not None and not answer.done()]
        if pending:
            await asyncio.wait(pending, timeout=self._patience)
        self._spent.tidy()
        losses = [self._take(seat, now) for seat in self._seats.values()]
        self._events.take()
        shown, known = self._shown(), {seat.device.uuid for seat in self._seats.values()}
        self.driver.heed([0 if seat.lane.stuck else seat.code for seat in shown])
        return Reading(
            devices=self._devices(shown, now),
            stuck=self._stuck(),
            losses=Losses.sum(losses),
            calls=self._spent.so_far(now) if pace is Pace.INTERVAL else {},
            down=self._choice.nothing(self.driver.count, known, self._absent.devices),
        )

    @property
    def cannot_load(self) -> bool:
        """There is no library to ask."""
        return self.driver.cannot_load

    def doomed(self) -> str | None:
        """Why the process should end, once nothing but a restart helps and the grace time is over."""
        return self.driver.doom.due(self._machine.clock.monotonic())

    @property
    def resting(self) -> bool:
        """Whether it holds no GPU because it was told to."""
        return self.driver.rests

    def rest(self, seconds: float | None) -> None:
        """Let go of all GPUs for that long, so that they can be reset; None ends the rest."""
        self.driver.rest(None if seconds is None else self._machine.clock.monotonic() + seconds)

    async def close(self) -> None:
        """Shut the library down, unless a call that never returns holds it."""
        await self.driver.close(self._lanes())

    def _lanes(self) -> list[Lane]:
        return [self._events.lane, *(seat.lane for seat in self._seats.values())]

    def _stuck(self) -> dict[str, int]:
        return {lane.name: int(lane.stuck) for lane in (self.driver.lane, *self._lanes())}

    def _unread(self, error: Unreadable, pace: Pace, now: float) -> Reading:
        """What can be said while the driver cannot be asked: which GPUs there were, and what they counted."""
        self._forget()
        return Reading(
            devices=tuple(bare(device, State.UNREAD) for device in self._devices(self._shown(), now)),
            stuck=self._stuck(),
            calls=self._spent.so_far(now) if pace is Pace.INTERVAL else {},
            down=str(error),
            code=error.code,
        )

    async def _enumerate(self, now: float) -> None:
        """See how many GPUs there are, and have each say who it is at its next reading."""
        if not await self.driver.enumerate(now):
            return
        if self.driver.loads != self._loads:
            self._loads = self.driver.loads
            self._forget()
            self._absent.lose(now)
            self._events.renew()
        self._seat(self.driver.count)

    def _forget(self) -> None:
        """What GPUs could and could not was true of the driver that is gone."""
        for index in [i for i, seat in self._seats.items() if not seat.lane.busy]:
            seat = self._seats.pop(index)
            seat.lane.end()
            if self._choice.wanted(index, seat.device.uuid):
                self._absent.add(seat.device, State.UNREAD)
            if seat.reading is not None:
                seat.reading.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _seat(self, count: int) -> None:
        """One seat per index; GPUs that are no longer counted are remembered as lost."""
        counted, self._counted = self._counted, count
        if count != counted:
            for seat in self._seats.values():
                seat.not_before = 0.0  # its pause was for a GPU that may sit elsewhere now
        for index in range(count):
            if index not in self._seats and not self._choice.untouched(index):
                gpu = Gpu(self._machine, self._spent, index, pcie_throughput=self._pcie_throughput)
                self._seats[index] = Seat(Lane(f"gpu{index}"), gpu, Device(uuid="", index=index))
            elif index in self._seats:
                self._seats[index].identify = True
        for index in [i for i in self._seats if i >= count and not self._seats[i].lane.busy]:
            seat = self._seats.pop(index)
            seat.lane.end()
            self._absent.add(seat.device, State.LOST)

    def _ask(self, seat: Seat, pace: Pace, now: float, turns: Turns, hung: set[str]) -> None:
        if seat.reading is not None or seat.lane.busy or now < seat.not_before:
            return
        gpu = seat.gpu
        identify, seat.identify = seat.identify, False
        if now < seat.gauges_not_before:
            pace = Pace.TICK

        def wanted(uuid: str) -> bool:
            # After indexes shifted, the GPU here may be one that another lane is stuck in.
            return uuid not in hung and self._choice.wanted(gpu.index, uuid)

        events = self._events.set
        call = partial(gpu.read, pace, identify, wanted, events)
        seat.reading = turns.add(seat.lane, call)

    def _take(self, seat: Seat, now: float) -> Losses:
        """Fold the answers of a reading that is done into what is known of its GPU."""
        if seat.reading is None or not seat.reading.done():
            return NO_LOSSES
        reading, seat.reading = seat.reading, None
        try:
            answers = reading.result()
        except Unreadable as error:
            self._fail(seat, error, now)
        except Exception as error:  # whatever it is, it costs no other GPU its reading
            if repr(error) != seat.fault:
                log.exception(
                    "GPU %d (%s): it answers what cannot be read", seat.gpu.index, seat.gpu.ask.uuid
                )
            seat.fault = repr(error)
            self._fail(seat, Unreadable(repr(error)), now)
        else:
            seat.code, seat.pause, seat.not_before, seat.fault = None, 0.0, 0.0, ""
            if answers.pace is Pace.INTERVAL:
                seat.gauges_not_before = now + REST * answers.took
            denied, seat.device = seat.device.denied, self._device(seat, answers)
            if seat.device.denied != denied and set(seat.device.denied) - set(denied):
                log.warning(DENIED, seat.device.index, seat.device.uuid, ", ".join(seat.device.denied))
        if seat.lane.busy:
            return NO_LOSSES
        return seat.gpu.ask.losses()

    def _device(self, seat: Seat, answers: Answers) -> Device:
        before, values = self._seated(seat, answers.uuid), answers.values
        back = before.state in (State.LOST, State.RESET_REQUIRED) or answers.uuid in self._gone
        values["epoch"] = self.driver.loads + self._epochs.changes(answers, back)
        if answers.pace is Pace.INTERVAL:
            told = {name: values.pop(name) for name in values.keys() & COUNTED}
            values["counters"] = updated(NOTHING_COUNTED, told)
            return updated(seat.blank_of(answers.uuid, before.info), values)
        values["state"] = State.OK
        return updated(before, values)

    def _seated(self, seat: Seat, uuid: str) -> Device:
        """What is known of the GPU with that uuid in that seat; who sat there before is elsewhere or lost."""
        before = seat.device
        if before.uuid == uuid:
            return before
        self._absent.add(before, State.LOST)
        info = DeviceInfo(**self.driver.versions, **seat.gpu.info)
        return Device(uuid=uuid, index=before.index, info=info)

    def _fail(self, seat: Seat, error: Unreadable, now: float) -> None:
        if meaning(error.code) is Meaning.DRIVER:
            self.driver.lost(error.code, now)
        if meaning(error.code) is Meaning.STATE:
            self.driver.recount()
        if seat.lane.stuck:
            state = State.HUNG
        else:
            state = state_of(error.code)
            seat.code = error.code or 0
            seat.pause = min(max(2 * seat.pause, FIRST_RETURN * self._interval), LAST_RETURN * self._interval)
            seat.not_before = now + seat.pause
        seat.identify = True
        seat.device = bare(self._seated(seat, seat.gpu.ask.uuid), state)

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

    def _devices(self, shown: list[Seat], now: float) -> tuple[Device, ...]:
        seated: Mapping[str | int, Device] = {s.device.uuid or s.gpu.index: s.device for s in shown}
        self._absent.tidy(seated.keys(), now)
        devices = sorted((*self._absent.devices.values(), *seated.values()), key=_PLACE)
        return tuple(
            [
                updated(device, {"xids": xids}) if (xids := self._events.xids(device.uuid)) else device
                for device in devices
            ]
        )
