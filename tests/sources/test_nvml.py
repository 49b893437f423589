"""The NVML source over machines that answer by a script: epochs, codes, what is asked how often."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gputally.dialects.native import METRICS
from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.model import Device, Holder, Pace, Reading, State, Unreadable
from gputally.sources.nvml import NvmlSource
from gputally.sources.nvml_codes import CODES, Meaning, meaning, state_of
from gputally.sources.nvml_fields import FIELD_VALUES, SELDOM
from gputally.sources.nvml_seldom import SLOWLY
from gputally.sources.nvml_values import FIELD_ROWS

GPU, OTHER = "GPU-a", "GPU-b"
Answers = dict[tuple[str | int | None, str], Any]


class Scripted(SimulatedMachine):
    """Answers from a table that a test changes; an int below zero is a code, with its sign turned."""

    def __init__(self, gpus: Mapping[str, Mapping[str, Any]]) -> None:
        self.clock: VirtualClock = VirtualClock(start=1_000.0)
        super().__init__(self.clock, cast=(), boards=())
        self.gpus = {uuid: dict(answers) for uuid, answers in gpus.items()}
        self.order = [uuid for uuid in self.gpus if uuid.startswith("GPU-")]
        self.init: int | None = None
        self.asked: Counter[str] = Counter()

    def nvml(self, gpu: str | int | None, call: str, *args: Any) -> Any:
        self.asked[call] += 1
        if gpu is None:
            return self._of_system(call)
        if isinstance(gpu, int):
            return self.order[gpu]
        answer = self.gpus[gpu].get(f"{call}({args[0]})" if args else call, self.gpus[gpu].get(call, -3))
        if isinstance(answer, int) and answer < 0:
            raise Unreadable(call, -answer)
        return answer

    def _of_system(self, call: str, *args: Any) -> Any:
        if call == "nvmlInit" and self.init is not None:
            raise Unreadable(call, self.init)
        if call.startswith("nvmlSystem"):
            raise Unreadable(call, 3)
        return {"nvmlDeviceGetCount": len(self.order), "nvmlEventSetWait": []}.get(call)


ALIVE = {"nvmlDeviceGetTotalEnergyConsumption": 5, "nvmlDeviceGetPowerUsage": 90_000}
DIVIDED = ALIVE | {
    "nvmlDeviceGetMigMode": [1, 1],
    "nvmlDeviceGetMaxMigDeviceCount": 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": -6,
    "nvmlDeviceGetMigDeviceHandleByIndex(0)": "MIG-1",
}
PART = {"nvmlDeviceGetGpuInstanceId": 7, "nvmlDeviceGetComputeInstanceId": 0}


def play(machine: Scripted, *acts: Callable[[], object], pace: Pace = Pace.INTERVAL) -> list[Reading]:
    """One reading, then one after each act, five seconds later."""

    async def read() -> list[Reading]:
        source = NvmlSource(machine, patience=30.0)
        readings = [await source.read(pace)]
        for act in acts:
            act()
            machine.clock.jump(machine.clock.monotonic() + 5.0)
            readings.append(await source.read(pace))
        return readings

    return asyncio.run(read())


def devices(readings: list[Reading]) -> list[Device]:
    return [device for reading in readings for device in reading.devices]


def nothing() -> None:
    """Only time passes."""


def test_the_epoch_grows_when_the_layout_changes_and_only_then() -> None:
    machine = Scripted({GPU: DIVIDED, "MIG-1": PART, "MIG-2": PART})
    gpu = machine.gpus[GPU]
    readings = play(
        machine,
        nothing,
        lambda: gpu.update({"nvmlDeviceGetMigDeviceHandleByIndex(0)": "MIG-2"}),
        nothing,
        lambda: gpu.update({"nvmlDeviceGetMigMode": [0, 0]}),
    )
    assert [device.epoch for device in devices(readings)] == [1, 1, 2, 2, 3]
    uuids = [None if d.instances is None else [i.uuid for i in d.instances] for d in devices(readings)]
    assert uuids == [["MIG-1"], ["MIG-1"], ["MIG-2"], ["MIG-2"], None]
    assert {device.slices for device in devices(readings)[:4]} == {7}


def test_the_epoch_grows_when_the_driver_is_loaded_anew() -> None:
    machine = Scripted({GPU: ALIVE})
    gpu = machine.gpus[GPU]
    readings = play(
        machine, nothing, lambda: gpu.update(nvmlDeviceGetPowerUsage=-1), lambda: gpu.update(ALIVE)
    )
    assert [device.epoch for device in devices(readings)] == [1, 1, 1, 2]
    assert machine.asked["nvmlInit"] == 2


def test_the_epoch_grows_when_a_lost_gpu_comes_back_and_other_epochs_do_not() -> None:
    machine = Scripted({GPU: ALIVE, OTHER: ALIVE})
    gpu = machine.gpus[GPU]
    waiting = [nothing] * 7
    readings = play(
        machine, lambda: gpu.update(nvmlDeviceGetPowerUsage=-15), lambda: gpu.update(ALIVE), *waiting
    )
    ours = [d for d in devices(readings) if d.uuid == GPU]
    assert [device.state for device in ours][:3] == [State.OK, State.LOST, State.LOST]
    assert (ours[-1].state, ours[-1].epoch) == (State.OK, 2)
    assert {d.epoch for d in devices(readings) if d.uuid == OTHER} == {1}


def test_two_gpus_that_change_places_are_no_new_epoch() -> None:
    machine = Scripted({GPU: ALIVE, OTHER: ALIVE})
    waiting = [nothing] * 13
    readings = play(machine, lambda: machine.order.reverse(), *waiting)
    assert [(d.uuid, d.index) for d in readings[-1].devices] == [(OTHER, 0), (GPU, 1)]
    assert {(d.epoch, d.state) for d in devices(readings)} == {(1, State.OK)}


def test_a_tick_asks_two_things_of_a_gpu() -> None:
    machine = Scripted({GPU: ALIVE | {"nvmlDeviceGetProcessUtilization": -6}})

    async def read() -> Counter[str]:
        source = NvmlSource(machine, patience=30.0)
        await source.read(Pace.INTERVAL)
        machine.asked.clear()
        machine.clock.jump(1_001.0)
        await source.read(Pace.TICK)
        return machine.asked

    assert asyncio.run(read()) == {
        "nvmlDeviceGetTotalEnergyConsumption": 1,
        "nvmlDeviceGetProcessUtilization": 1,
    }


def test_a_gpu_without_counter_and_samples_is_well_between_intervals() -> None:
    machine = Scripted({GPU: {"nvmlDeviceGetUtilizationRates": {"gpu": 3, "memory": 1}}})

    async def read() -> Reading:
        source = NvmlSource(machine, patience=30.0)
        await source.read(Pace.INTERVAL)
        machine.clock.jump(1_001.0)
        return await source.read(Pace.TICK)

    [device] = asyncio.run(read()).devices
    assert (device.state, device.utilization_ratio) == (State.OK, 0.03)


def test_a_gpu_whose_answers_make_no_sense_is_failing_and_the_others_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Scripted({GPU: ALIVE | {LIST: ["not a record"]}, OTHER: ALIVE})
    gpu = machine.gpus[GPU]
    readings = play(machine, *[nothing] * 7, lambda: gpu.update({LIST: []}), *[nothing] * 12)
    states = [[device.state for device in reading.devices] for reading in readings]
    assert states[0] == states[8] == [State.FAILING, State.OK]
    assert states[-1] == [State.OK, State.OK]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert GPU in caplog.text


def test_a_gpu_that_a_new_driver_does_not_have_is_lost_and_after_an_hour_forgotten() -> None:
    machine = Scripted({GPU: ALIVE, OTHER: ALIVE})

    def go() -> None:
        machine.gpus[GPU].update(nvmlDeviceGetPowerUsage=-9)
        machine.init = 9

    def come_back() -> None:
        machine.gpus[GPU].update(ALIVE)
        machine.init, machine.order = None, [GPU]

    def wait(seconds: float) -> Callable[[], None]:
        return lambda: machine.clock.jump(machine.clock.monotonic() + seconds)

    readings = play(machine, go, nothing, come_back, wait(60), wait(3500), wait(100))
    states = [[device.state for device in reading.devices] for reading in readings]
    assert [(bool(reading.down), reading.code) for reading in readings[1:4]] == [
        (False, None),
        (True, 9),
        (False, None),
    ]
    assert states[2] == [State.UNREAD, State.UNREAD]
    assert states[3:6] == [[State.OK, State.LOST]] * 3
    assert states[6] == [State.OK]


def test_what_a_whole_gpu_could_not_is_asked_again_in_another_layout() -> None:
    machine = Scripted({GPU: DIVIDED, "MIG-1": PART})
    gpu = machine.gpus[GPU]
    gpu["nvmlDeviceGetUtilizationRates"] = -3
    united = {"nvmlDeviceGetMigMode": [0, 0], "nvmlDeviceGetUtilizationRates": {"gpu": 50, "memory": 5}}
    readings = play(machine, nothing, lambda: gpu.update(united))
    assert [d.utilization_ratio for d in devices(readings)] == [None, None, 0.5]


@pytest.mark.parametrize("code", [*(code for code in CODES if code > 0), 31, 12345])
def test_every_code_is_absent_retried_or_a_state(code: int) -> None:
    machine = Scripted({GPU: ALIVE})
    [_, reading] = play(machine, lambda: machine.gpus[GPU].update(nvmlDeviceGetPowerUsage=-code))
    [device] = reading.devices
    assert device.power_watts is None
    if meaning(code) in (Meaning.STATE, Meaning.DRIVER):
        assert device.state is state_of(code) is not State.OK
    else:
        assert device.state is State.OK
    counted = sum(reading.losses.nvml_errors.values())
    assert counted == (meaning(code) not in (Meaning.ABSENT, Meaning.EMPTY))
    assert device.denied == (("nvmlDeviceGetPowerUsage",) if code == 4 else ())


def test_F45_a_clock_that_is_set_hides_nobody_for_long() -> None:
    machine = Scripted({GPU: ALIVE | {"nvmlDeviceGetProcessUtilization": []}})
    gpu = machine.gpus[GPU]

    def busy(timestamp_us: int) -> None:
        gpu["nvmlDeviceGetProcessUtilization"] = [[101, timestamp_us, 50, 0, 0, 0]]

    def set_back() -> None:
        machine.clock.set(-7200.0)
        busy(3_000_000)

    readings = play(
        machine,
        lambda: busy(10_000_000_000),
        lambda: busy(10_005_000_000),
        set_back,
        lambda: busy(8_000_000),
        lambda: busy(2**63),
        lambda: busy(18_000_000),
        pace=Pace.TICK,
    )
    told = [(device.clock_jumped, device.activities is not None) for device in devices(readings)]
    assert told == [
        (False, False),
        (False, True),
        (False, True),
        (True, False),
        (False, True),
        (True, False),
        (False, True),
    ]


LIMIT = "nvmlDeviceGetEnforcedPowerLimit"


def test_what_hardly_changes_is_kept_for_30_seconds_and_then_asked_again() -> None:
    machine = Scripted({GPU: ALIVE | {LIMIT: 400_000}})
    readings = play(machine, lambda: machine.gpus[GPU].update({LIMIT: 300_000}), *[nothing] * 5)
    assert [d.power_limit_watts for d in devices(readings)] == [400.0] * 6 + [300.0]
    assert machine.asked[LIMIT] == 2


def test_what_is_asked_seldom_is_said_to_be() -> None:
    calls = {call[0] for row in SELDOM for call in row.calls}
    calls |= {call[0] for row in FIELD_ROWS if row.instead is not None for call in row.instead.calls}
    fields = {str(row.id) for row in FIELD_ROWS if row.slow}
    told = f"asked every {SLOWLY:g} s"
    said = set()
    for metric in METRICS:
        _, batch, numbers = metric.source.partition(FIELD_VALUES)
        seldom = {word for word in re.findall(r"nvml\w+", metric.source) if word in calls}
        seldom |= {number for number in re.findall(r"\b\d+\b", numbers if batch else "") if number in fields}
        said |= seldom
        assert (told in metric.source) == bool(seldom), metric.name
        assert not seldom or " now" not in metric.help, metric.name
    assert (calls | fields) - said == {"nvmlDeviceGetAccountingMode", "nvmlDeviceGetEccMode"}, "by their ends"


def test_what_hardly_changes_is_asked_again_at_once_when_it_failed_or_the_gpu_fell_silent() -> None:
    machine = Scripted({GPU: ALIVE | {LIMIT: -999}})
    readings = play(machine, lambda: machine.gpus[GPU].update({LIMIT: 400_000}))
    assert [d.power_limit_watts for d in devices(readings)] == [None, 400.0]
    machine = Scripted({GPU: ALIVE | {LIMIT: 400_000}})
    gpu = machine.gpus[GPU]
    ill, well = {"nvmlDeviceGetPowerUsage": -15}, ALIVE | {LIMIT: 300_000}
    readings = play(machine, lambda: gpu.update(ill), lambda: gpu.update(well), *[nothing] * 6)
    told = [d.power_limit_watts for d in devices(readings)]
    assert told[:2] == [400.0, None]
    assert told[-1] == 300.0
    assert 400.0 not in told[2:]


def test_a_slow_field_that_failed_is_asked_again_at_the_next_interval_and_then_kept() -> None:
    fields: dict[str, Any] = {"82": 40, "29": {"error": 999}, "30": 2}
    machine = Scripted({GPU: ALIVE | {FIELD_VALUES: fields}})
    readings = play(
        machine, lambda: fields.update({"29": 7, "30": 3}), lambda: fields.update({"29": 8, "82": 41})
    )
    pages = [d.retired_pages for d in devices(readings)]
    single, double = "multiple_single_bit_ecc_errors", "double_bit_ecc_error"
    assert pages == [{double: 2}, {double: 2, single: 7}, {double: 2, single: 7}]
    assert [d.temperature_celsius["memory"] for d in devices(readings)] == [40, 40, 41]


def test_a_field_that_makes_no_sense_costs_no_other() -> None:
    fields: dict[str, Any] = {"82": [40], "197": 5, "30": 2}
    (device,), losses = (
        (reading := play(Scripted({GPU: ALIVE | {FIELD_VALUES: fields}}))[0]).devices,
        reading.losses,
    )
    assert (device.state, device.counters.pcie_bytes) == (State.OK, {"transmit": 5})
    assert device.retired_pages == {"double_bit_ecc_error": 2}
    assert losses.nvml_errors == {(FIELD_VALUES, "malformed"): 1}


def test_what_stands_in_for_a_field_is_asked_as_soon_as_the_field_is_known_to_be_absent() -> None:
    fields: dict[str, Any] = {"82": 40, "94": 1}
    machine = Scripted(
        {GPU: ALIVE | {FIELD_VALUES: fields, "nvmlDeviceGetViolationStatus": {"violationTime": 9}}}
    )
    later = lambda: fields.update({str(number): {"error": 3} for number in range(74, 80)})  # noqa: E731
    told = [d.counters.throttle_seconds for d in devices(play(machine, later, nothing))]
    assert told[0] == {}
    assert len(told[1]) == len(told[2]) == 6
    assert machine.asked["nvmlDeviceGetViolationStatus"] == 6


def test_a_call_that_is_denied_every_time_is_told_every_time() -> None:
    machine = Scripted({GPU: ALIVE | {"nvmlDeviceGetTotalEnergyConsumption": -4}})
    told = {d.denied for d in devices(play(machine, *[nothing] * 7))}
    assert told == {("nvmlDeviceGetTotalEnergyConsumption",)}


LIST = "nvmlDeviceGetComputeRunningProcesses"
NOWHERE = 2**32 - 1


def test_holders_stay_the_very_same_while_the_lists_say_the_same() -> None:
    machine = Scripted({GPU: ALIVE | {LIST: [[7, 5, NOWHERE, NOWHERE]]}})
    gpu = machine.gpus[GPU]
    more = [[7, 5, NOWHERE, NOWHERE], [8, 6, NOWHERE, NOWHERE]]
    first, same, equal, other = devices(
        play(machine, nothing, lambda: gpu.update({LIST: list(gpu[LIST])}), lambda: gpu.update({LIST: more}))
    )
    assert first.holders == (Holder(7, 5),)
    assert same.holders is first.holders
    assert equal.holders is first.holders
    assert other.holders == (Holder(7, 5), Holder(8, 6))


def test_a_list_that_was_believed_is_doubted_when_it_tells_of_more_memory_than_there_is() -> None:
    memory = {"total": 10, "used": 5, "free": 5, "reserved": 0}
    machine = Scripted(
        {GPU: ALIVE | {LIST: [[7, 8, NOWHERE, NOWHERE]], "nvmlDeviceGetMemoryInfo_v2": memory}}
    )
    readings = play(
        machine,
        lambda: machine.gpus[GPU].update({"nvmlDeviceGetMemoryInfo_v2": memory | {"total": 7}}),
        nothing,
    )
    assert [device.holders for device in devices(readings)] == [(Holder(7, 8),), None, None]
    dropped = [reading.losses.samples.get("implausible_process_list", 0) for reading in readings]
    assert dropped == [0, 1, 1]


def test_what_slow_rows_tell_later_does_not_change_what_was_told() -> None:
    ecc, accounting = "nvmlDeviceGetEccMode", "nvmlDeviceGetAccountingMode"
    machine = Scripted({GPU: ALIVE | {ecc: [1, 1], accounting: -999, "nvmlDeviceGetMigMode": [0, 0]}})
    before, after, kept = devices(play(machine, lambda: machine.gpus[GPU].update({accounting: 1}), nothing))
    assert before.mode_enabled == {"mig": False, "ecc": True}
    assert after.mode_enabled == kept.mode_enabled == {"mig": False, "ecc": True, "accounting": True}


class Slow(Scripted):
    """Takes a second over every call about processes."""

    def nvml(self, gpu: str | int | None, call: str, *args: Any) -> Any:
        if "Process" in call:
            self.clock.jump(self.clock.monotonic() + 1.0)
        return super().nvml(gpu, call, *args)


def test_a_process_is_named_by_the_time_the_driver_answered_and_not_when_others_did() -> None:
    machine = Slow(
        {
            GPU: ALIVE
            | {LIST: [[7, 5, NOWHERE, NOWHERE]], "nvmlDeviceGetProcessUtilization": [[7, 5, 9, 0, 0, 0]]}
        }
    )

    async def read() -> list[Device]:
        source = NvmlSource(machine, patience=30.0)
        readings = [await source.read(pace) for pace in (Pace.INTERVAL, Pace.TICK)]
        return [reading.devices[0] for reading in readings]

    first, tick = asyncio.run(read())
    assert first.read_at is not None
    assert first.listed_at is not None
    assert tick.read_at is not None
    assert first.listed_at >= first.read_at + 2.0
    assert tick.listed_at == first.listed_at <= tick.read_at
    assert tick.sampled_at == tick.read_at + 1.0
