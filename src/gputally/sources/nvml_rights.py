"""Whether the kernel still lets us open the driver's device; asked only when every GPU refuses."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import Unreadable

DEVICE = "/dev/nvidiactl"


class Rights:
    """Asks in a lane of its own, since opening a device of a driver that is stuck may never return."""

    def __init__(self, machine: Machine, deadline: float, told: Callable[[bool], None]) -> None:
        self._machine = machine
        self._deadline = deadline
        self._told = told
        """Is told whether they are gone."""
        self._lane = Lane("nvidiactl")
        self._asking: asyncio.Task[None] | None = None
        self._doubted = False

    def doubt(self) -> None:
        """Every GPU refuses: have it asked whether that is because of us, unless it is being asked."""
        self._doubted = True
        if self._asking is None and not self._lane.busy:
            self._asking = asyncio.ensure_future(self._ask())

    def trust(self) -> None:
        """A GPU answers, so the rights are there; what was asked meanwhile is of no use."""
        if not self._doubted:
            return
        self._doubted = False
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._told(False)

    async def _ask(self) -> None:
        try:
            error = await self._lane.ask(lambda: self._machine.device(DEVICE), self._deadline)
        except Unreadable:
            error = 0  # it hangs, and that is no refusal
        self._asking = None
        # Rules of a container's devices say EPERM; EACCES would be the file's own rights, and was so before.
        self._told(error == errno.EPERM)
