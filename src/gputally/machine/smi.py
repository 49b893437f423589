"""nvidia-smi on this machine: one child at a time, read within bounds, and never waited for without end."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from gputally.model import Unreadable

COMMAND = "nvidia-smi"
PLACES = (
    "/usr/local/nvidia/bin",
    "/run/nvidia/driver/usr/bin",
    "/home/kubernetes/bin/nvidia/bin",
    "/usr/lib/wsl/lib",
)
"""Where it lies when it is not on the PATH: GKE, gpu-operator, WSL."""
MOST_BYTES = 4 * 2**20
REAPED_WITHIN = 0.5
"""Seconds that a child which was killed is given to go; one in the driver's hands may never do so."""


class LocalSmi:
    """Runs nvidia-smi; one that cannot be killed is left alone, and no other is started beside it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __call__(self, arguments: Sequence[str], deadline: float) -> bytes:
        """What it wrote, or Unreadable; comes back within the deadline and a little."""
        self._reap()
        child = self._begin(arguments)
        try:
            output = _read(child, time.monotonic() + deadline)
        except Unreadable:
            self._abandon(child)
            raise
        self._child = None
        if child.returncode:
            raise Unreadable(f"{COMMAND}: {_first_line(output) or f'ended with {child.returncode}'}")
        return output

    def close(self) -> None:
        """Kill what runs, and wait for nothing."""
        with self._lock:
            if self._child is not None and self._child.poll() is None:
                _kill(self._child)

    def _reap(self) -> None:
        if self._child is None:
            return
        if self._child.poll() is None:
            raise Unreadable(
                f"{COMMAND}: process {self._child.pid} was killed and has not ended, so no other is started; "
                "the driver may hang",
                errno.ETIMEDOUT,
            )
        self._child = None

    def _begin(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = shutil.which(COMMAND) or shutil.which(COMMAND, path=":".join(PLACES))
        if command is None:
            raise Unreadable(f"{COMMAND}: not on the PATH nor in {', '.join(PLACES)}", errno.ENOENT)
        try:
            child = subprocess.Popen(  # noqa: S603  a fixed command with arguments of our own
                [command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            raise Unreadable(f"{command}: {error.strerror}") from None
        with self._lock:
            self._child = child
        return child

    def _abandon(self, child: subprocess.Popen[bytes]) -> None:
        """Kill it; it stays ours, to be reaped by whoever asks next, should it not go now."""
        _kill(child)
        if child.stdout is not None:
            child.stdout.close()
        if _gone(child, time.monotonic() + REAPED_WITHIN):
            self._child = None


def _read(child: subprocess.Popen[bytes], until: float) -> bytes:
    """Everything it writes until it ends, within the time and the bound."""
    assert child.stdout is not None
    fd = child.stdout.fileno()
    os.set_blocking(fd, False)
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            if not selector.select(left):
                break
            piece = os.read(fd, 65_536)
            output += piece
            if len(output) > MOST_BYTES:
                raise Unreadable(f"{COMMAND}: wrote more than {MOST_BYTES} bytes")
            if not piece and _gone(child, until):
                child.stdout.close()
                return bytes(output)
    raise Unreadable(f"{COMMAND}: had not ended at its deadline", errno.ETIMEDOUT)


def _gone(child: subprocess.Popen[bytes], until: float) -> bool:
    # Polled, so that it is plain to see: subprocess.run() waits without end for a child that it killed.
    while child.poll() is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.005)
    return True


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _first_line(output: bytes) -> str:
    return output[:500].decode("utf-8", "replace").strip().partition("\n")[0].strip()
