"""The process that holds the NVML library, so that a crash of the library ends this one and no other.

Its first argument is the descriptor on which it is handed channels, one for each thread of whoever started
it; the second is the library. Each channel has a thread here, so that a call that hangs delays nobody. When
whoever started it ends, however that may be, the descriptor says so, and this process ends too.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from gputally.machine.nvml import LocalNvml
from gputally.machine.nvml_letters import receive, send
from gputally.model import Unreadable

OTHERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are meant for whoever started us, and may be sent to all of a group or a unit."""


def main(descriptor: int, library: str) -> NoReturn:
    """Take channels until there is nobody left to hand any over."""
    for number in OTHERS:
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    nvml = LocalNvml(library or None)
    with socket.socket(fileno=descriptor) as door:
        while True:
            word, channels, *_ = socket.recv_fds(door, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not word:
                os._exit(0)  # whatever threads are stuck in the driver
            for channel in channels:
                held = socket.socket(fileno=channel)
                threading.Thread(target=_serve, args=(held, nvml), daemon=True).start()


def _serve(channel: socket.socket, nvml: LocalNvml) -> None:
    with channel:
        while True:
            try:
                gpu, call, arguments = receive(channel)
            except (EOFError, OSError):
                return
            answer = _answer(nvml, gpu, call, arguments)
            try:
                send(channel, answer)
            except OSError:
                return
            except (TypeError, ValueError) as error:
                send(channel, {"code": None, "reason": f"{call}: {error}"})


def _answer(nvml: LocalNvml, gpu: Any, call: str, arguments: list[Any]) -> dict[str, Any]:
    try:
        return {"answer": nvml(gpu, call, *arguments)}
    except Unreadable as error:
        return {"code": error.code, "reason": str(error)}
    except Exception as error:  # noqa: BLE001  the outermost loop here: whoever asked is told
        return {"code": None, "reason": f"{call}: {error!r}"}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
