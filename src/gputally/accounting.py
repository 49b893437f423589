"""Accounting mode: whether the driver keeps records of processes; the one place that changes a node."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from gputally.config import Config
from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.service import open_machine
from gputally.sources.nvml import Choice
from gputally.sources.nvml_driver import FIX

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 4, 13
GUEST_OF_VGPU = 2
FIRST_ANSWER = 5.0


async def accounting(config: Config, action: str) -> bool:
    """Say of every chosen GPU how it is, having turned it on if asked to; tells whether all are on."""
    machine = open_machine(config, live=False)
    try:
        count = await Lane("driver").ask(lambda: _count(machine), FIRST_ANSWER)
    except Unreadable as error:
        print(f"gputally: {error}; {FIX}", file=sys.stderr)
        return False
    choice, step = Choice(config.gpus), {"status": _status, "enable": _enable}[action]
    asked = [_ask(machine, index, choice, step, config.nvml_deadline) for index in range(count)]
    answers = [answer for answer in await asyncio.gather(*asked) if answer is not None]
    for line, _ in answers:
        print(line)
    if not answers:
        print(f"no GPU is chosen: there are {count}, and --gpus is {','.join(config.gpus) or 'empty'}")
    return bool(answers) and all(on for _, on in answers)


def _count(machine: Machine) -> int:
    machine.nvml(None, "nvmlInit")
    return int(machine.nvml(None, "nvmlDeviceGetCount"))


async def _ask(
    machine: Machine,
    index: int,
    choice: Choice,
    step: Callable[[Machine, str], tuple[str, bool]],
    deadline: float,
) -> tuple[str, bool] | None:
    """The line of one GPU, and whether its accounting is on; None if it is not chosen."""

    def told() -> tuple[str, bool] | None:
        uuid = str(machine.nvml(index, "nvmlDeviceGetUUID"))
        if not choice.wanted(index, uuid):
            return None
        text, on = step(machine, uuid)
        return f"GPU {index} ({uuid}): {text}", on

    try:
        return await Lane(f"gpu{index}").ask(told, deadline)
    except Unreadable as error:
        return f"GPU {index}: not known: {error}", False


def _status(machine: Machine, uuid: str) -> tuple[str, bool]:
    try:
        on = bool(machine.nvml(uuid, "nvmlDeviceGetAccountingMode"))
    except Unreadable as error:
        return _why_not(machine, uuid, error), False
    return ("accounting is on" if on else "accounting is off"), on


def _enable(machine: Machine, uuid: str) -> tuple[str, bool]:
    text, on = _status(machine, uuid)
    if on or not text.endswith("off"):
        return text, on
    try:
        machine.nvml(uuid, "nvmlDeviceSetAccountingMode", 1)
    except Unreadable as error:
        return _why_not(machine, uuid, error), False
    return "accounting is on now, until the driver is unloaded", True


def _why_not(machine: Machine, uuid: str, error: Unreadable) -> str:
    if error.code == NO_PERMISSION:
        return (
            "accounting is off: only root may turn it on (in a container: uid 0 and the GPU's device files)"
        )
    if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
        return f"not known: {error}"
    if _or_none(lambda: machine.nvml(uuid, "nvmlDeviceGetMigMode")[0]):
        return "accounting is not supported while MIG mode is on"
    if _or_none(lambda: machine.nvml(uuid, "nvmlDeviceGetVirtualizationMode")) == GUEST_OF_VGPU:
        return "accounting is not supported in a virtual GPU; the host of the virtual machine can have it"
    return "accounting is not supported by this GPU or its driver"


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Unreadable:
        return None
