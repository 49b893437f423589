"""Everything outside, as raw answers in the outside's own units."""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gputally.model import Namespaces, Process, ProcessKey, SelfUsage

Gpu = str | int | None
"""Whom an NVML call asks: a GPU by uuid, by index (only to learn its uuid), or the system."""
NO_ANSWER = -2
"""None of NVML's codes: in a recording, a call that had not returned."""


class BadRecording(Exception):
    """A folder that is no recording; the text names the file and what is wrong with it."""


class Clock(Protocol):
    """Time, and waiting for it."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def time(self) -> float:
        """Seconds since the epoch."""

    async def until(self, monotonic: float, unless: Future[Any] | None = None) -> None:
        """Wait until that moment or until the other thing is done; a moment that has passed is no wait."""


@dataclass(frozen=True)
class Access:
    """How a web server is to be approached; files are read anew for every request."""

    socket: str = ""
    """A unix socket to speak HTTP over, in place of the URL's host."""
    token_file: str = ""
    ca_file: str = ""
    verify: bool = True
    accept: str = "application/json"
    gzip: bool = False
    """It may answer compressed."""
    connect_seconds: float = 5.0
    seconds: float = 5.0
    """For all of a page."""
    most_bytes: int = 64 * 2**20
    """Of a page, after decompression."""


OPEN = Access()


class Machine(Protocol):
    """A computer with GPUs: the local one, a recorded one or a simulated one."""

    @property
    def name(self) -> str:
        """local, recorded or simulated."""

    @property
    def clock(self) -> Clock:
        """The time it lives in."""

    def nvml(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """Answer one NVML call as plain data, or raise Unreadable with NVML's code; may block."""

    def smi(self, arguments: Sequence[str], deadline: float) -> bytes:
        """What nvidia-smi writes, or Unreadable; blocks, at most for the deadline and a little."""

    def dcgm(self, call: str, *args: Any) -> Any:
        """Answer one DCGM call as plain data, or raise Unreadable with DCGM's code; may block."""

    def process(self, pid: int) -> Process | None:
        """What the kernel says of a process, which is watched from now on; None if it is not there."""

    def exists(self, pid: int) -> bool:
        """Whether there is such a process, though it may be hidden from us."""

    def namespaces(self) -> Namespaces | None:
        """Where this program stands among the kernel's namespaces; None where that cannot be told."""

    def file(self, path: str) -> bytes | None:
        """A small file, /proc included; None if not there, not for us, no file or too large; may block."""

    def dated(self, path: str, most: int) -> tuple[float, bytes]:
        """When a file was last written (Unix time), and what it holds, or Unreadable; may block."""

    def device(self, path: str) -> int:
        """How opening a device file goes: 0, or the kernel's number of the error; may block."""

    def ended(self) -> Sequence[ProcessKey]:
        """Watched processes that went since the question before."""

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        """Answer one gRPC call on a unix socket, or raise Unreadable with gRPC's status."""

    def stream(self, socket: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """The messages of a gRPC stream, as they come."""

    async def get(self, url: str, access: Access = OPEN) -> bytes:
        """The body of a web page, or Unreadable with the HTTP status."""

    def lines(self, url: str, access: Access = OPEN) -> AsyncIterator[bytes]:
        """The lines of a web page that does not end, as they come."""

    def folder(self, path: str) -> Mapping[str, str]:
        """Names in a folder, each with where it points to if it is a symbolic link, else empty; may block."""

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        """Command-line flags, only those wanted, of a process of the node that runs one of these commands."""

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        """Settings of another program's file, only those wanted; none where it cannot be read; may block."""

    def variable(self, name: str) -> str:
        """An environment variable of this program; empty where there is none."""

    def self_usage(self) -> SelfUsage:
        """What this program itself uses."""

    def close(self) -> None:
        """Let go of everything."""
