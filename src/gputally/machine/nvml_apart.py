"""NVML in a process of its own: the answers of LocalNvml, and a crash of the library is one of them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from gputally.machine import Gpu
from gputally.machine.nvml_letters import receive, send
from gputally.model import Unreadable

INIT, SHUTDOWN = "nvmlInit", "nvmlShutdown"
UNINITIALIZED = 1
"""NVML's code for a library that was not started; to the source it means that the driver is lost."""
FIRST_PAUSE, LAST_PAUSE = 5.0, 300.0
"""Seconds before a process that died is replaced: at first, and when it dies again and again."""
PARTING, DYING = 1.0, 0.5
"""Seconds that a process has to end when it is no longer needed, and that a dead one has to be gone."""


class ApartNvml:
    """Started by nvmlInit, ended by nvmlShutdown; each of our threads has a channel of its own."""

    def __init__(self, library: str | None = None) -> None:
        self._library = library or ""
        self._lock = threading.Lock()  # for who is the child; never held while a call is out
        self._child: _Child | None = None
        self._pause, self._not_before = FIRST_PAUSE, 0.0
        self._end = "has not begun"
        self._own = threading.local()

    def __call__(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """Have one call made, or raise Unreadable with NVML's return code, or because the child died."""
        child = self._begun() if call == INIT else self._child
        if child is None:
            raise self._unreadable(call)
        try:
            channel = self._channel(child)
            send(channel, (gpu, call, args))
            told = receive(channel)
            answer, failed = told.get("answer"), "answer" not in told
        except (OSError, EOFError, ValueError, AttributeError):
            self._lose(child)
            raise self._unreadable(call) from None
        if call == SHUTDOWN or (call == INIT and failed):
            self._part(child)
        if failed:
            raise Unreadable(str(told.get("reason")), told.get("code"))
        return answer

    def close(self) -> None:
        """Let the child end by itself: it does so when nobody can ask it any more."""
        with self._lock:
            if self._child is not None:
                self._child.door.close()

    def _begun(self) -> _Child:
        """The child; a new one if there is none, and if it is time."""
        with self._lock:
            if self._child is None:
                if time.monotonic() < self._not_before:
                    raise self._unreadable(INIT)
                try:
                    self._child = _Child(self._library)
                except OSError as error:
                    self._wait_longer(f"cannot be started: {error.strerror}")
                    raise self._unreadable(INIT) from None
            return self._child

    def _channel(self, child: _Child) -> socket.socket:
        """Our thread's own way to this child."""
        own = self._own
        if getattr(own, "child", None) is not child:
            channel = child.channel()
            if hasattr(own, "channel"):
                own.channel.close()
            own.channel, own.child = channel, child
        held: socket.socket = own.channel
        return held

    def _lose(self, child: _Child) -> None:
        """It died, or says what it never would: whatever is left of it goes, and the next one has to wait."""
        with self._lock:
            if self._child is not child:
                return
            self._child = None
            if time.monotonic() - child.began > LAST_PAUSE:
                self._pause = FIRST_PAUSE
            self._wait_longer(child.kill())

    def _part(self, child: _Child) -> None:
        """It let go of the GPUs; with the process goes all that a library may have kept open."""
        with self._lock:
            if self._child is child:
                self._child = None
        child.part()

    def _wait_longer(self, why: str) -> None:
        self._end = why
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LAST_PAUSE)

    def _unreadable(self, call: str) -> Unreadable:
        return Unreadable(f"{call}: the process that holds the NVML library {self._end}", UNINITIALIZED)


class _Child:
    """One process, and the door through which it is handed channels; the kernel shuts it if we are killed."""

    def __init__(self, library: str) -> None:
        self.began = time.monotonic()
        self.door, theirs = socket.socketpair()
        with theirs:
            # -P: nothing is loaded from whatever folder we were started in.
            command = [
                sys.executable,
                "-P",
                "-m",
                "gputally.machine.nvml_child",
                str(theirs.fileno()),
                library,
            ]
            try:
                self._process = subprocess.Popen(  # noqa: S603  our own interpreter, and our own module
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            except OSError:
                self.door.close()
                raise

    def channel(self) -> socket.socket:
        """A new one, at whose other end a thread of the child waits."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self.door, [b"."], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        return ours

    def part(self) -> None:
        """Let it end by itself, or else kill it."""
        self.door.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PARTING)
        self.kill()

    def kill(self) -> str:
        """End what is left of it, and say how it ended."""
        self.door.close()
        with suppress(subprocess.TimeoutExpired):
            ended = self._process.wait(DYING)
            return f"was ended by {signal.Signals(-ended).name}" if ended < 0 else f"ended with code {ended}"
        self._process.kill()
        # One that the driver keeps from ending is waited for by the module, when it starts another.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PARTING)
        return "was killed, for it did not answer as it should"
