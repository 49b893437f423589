"""Simulated machines for tests, and how to ask them."""

from __future__ import annotations

import json
from typing import Any

from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.machine.simulation.answers import ANSWERS
from gputally.machine.simulation.board import BOARD_ANSWERS
from gputally.model import Unreadable

PRETRAIN, TURNS, MPS, MIG, BESIDE, IDLE = 0, 2, 4, 5, 6, 7
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetClockInfo": (1,),
    "nvmlDeviceGetMaxClockInfo": (2,),
    "nvmlDeviceGetTemperature": (0,),
    "nvmlDeviceGetProcessUtilization": (0,),
    "nvmlDeviceGetFieldValues": ([[82, 0], [197, 0], [29, 0]],),
    "nvmlGpmMetricsGet": ([1, 2, 10],),
    "nvmlGpmMigMetricsGet": (2, [1]),
    "nvmlGpuInstanceGetInfo": (2,),
    "nvmlDeviceGetTemperatureThreshold": (1,),
}


def a_machine(**how: Any) -> tuple[SimulatedMachine, VirtualClock]:
    clock = VirtualClock(start=1_000.0)
    return SimulatedMachine(clock, **{"aged": 5.0} | how), clock


def uuid(machine: SimulatedMachine, index: int) -> str:
    return str(machine.nvml(index, "nvmlDeviceGetUUID"))


def answer(machine: SimulatedMachine, gpu: str, call: str, *args: Any) -> Any:
    """What comes back, be it only a code."""
    try:
        return machine.nvml(gpu, call, *(args or ARGUMENTS.get(call, ())))
    except Unreadable as unreadable:
        return unreadable.code


def everything(machine: SimulatedMachine) -> str:
    """All that can be asked, as text."""
    uuids = [uuid(machine, index) for index in range(machine.nvml(None, "nvmlDeviceGetCount"))]
    answers = [[answer(machine, gpu, call) for call in (*ANSWERS, *BOARD_ANSWERS)] for gpu in uuids]
    listed = [row[0] for gpu in uuids for row in answer(machine, gpu, "nvmlDeviceGetComputeRunningProcesses")]
    truth = [(machine.truth(gpu), machine.truth_busy_us(gpu), machine.truth_idle_uj(gpu)) for gpu in uuids]
    return json.dumps(answers) + repr([machine.process(pid) for pid in listed]) + repr(truth)
