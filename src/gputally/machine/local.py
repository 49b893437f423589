"""This computer."""

from __future__ import annotations

import importlib
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gputally.machine import OPEN, Access, files, web
from gputally.machine.clocks import RealClock
from gputally.machine.disk import Disk
from gputally.machine.nvml import LocalNvml
from gputally.machine.processes import LocalProcesses, exists, read_file
from gputally.machine.smi import LocalSmi
from gputally.model import Namespaces, Process, ProcessKey, SelfUsage, Unreadable

if TYPE_CHECKING:
    from gputally.machine.nvml_apart import ApartNvml

MOST_FILE = 2**20


class LocalMachine:
    """The real library, the real /proc, the real clock."""

    name = "local"

    def __init__(
        self,
        nvml_library: str | None = None,
        proc_root: str = "/proc",
        dcgm_library: str | None = None,
        *,
        nvml_apart: bool = False,
    ) -> None:
        self.clock = RealClock()
        self._apart = _apart(nvml_library) if nvml_apart else None
        self.nvml: Callable[..., Any] = self._apart or LocalNvml(nvml_library)
        self._smi = LocalSmi()
        self._dcgm_library = dcgm_library
        self._proc_root = proc_root
        self._processes = LocalProcesses(proc_root)
        self._folders = files.Folders()
        self._disk = Disk()

    def smi(self, arguments: Sequence[str], deadline: float) -> bytes:
        """Run nvidia-smi."""
        return self._smi(arguments, deadline)

    def dcgm(self, call: str, *args: Any) -> Any:
        """Ask DCGM's library, which is loaded by the first call."""
        return self._dcgm(call, *args)

    @cached_property
    def _dcgm(self) -> Callable[..., Any]:
        from gputally.machine.dcgm import LocalDcgm  # most machines never need it

        return LocalDcgm(self._dcgm_library)

    def process(self, pid: int) -> Process | None:
        """Ask the kernel."""
        return self._processes.read(pid)

    def exists(self, pid: int) -> bool:
        """Ask the kernel without /proc."""
        return exists(pid)

    def namespaces(self) -> Namespaces | None:
        """Ask the kernel."""
        return self._processes.namespaces()

    def file(self, path: str) -> bytes | None:
        """Read it; what is under /proc from the /proc we were given."""
        if path.startswith("/proc/"):
            return read_file(self._proc_root + path.removeprefix("/proc"))
        return read_file(path, MOST_FILE)

    def dated(self, path: str, most: int) -> tuple[float, bytes]:
        """Read it, and say when it was written."""
        return files.dated(path, most)

    def device(self, path: str) -> int:
        """Open it, and close it again."""
        return files.device(path)

    def ended(self) -> Sequence[ProcessKey]:
        """Ask the kernel who went."""
        return self._processes.ended()

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        """Ask a gRPC server."""
        await self._reach(socket)
        from gputally.machine import grpc

        return await grpc.call(socket, method, request)

    async def stream(self, socket: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Follow a gRPC stream."""
        await self._reach(socket)
        from gputally.machine import grpc

        async with aclosing(grpc.messages(socket, method, request)) as messages:
            async for message in messages:
                yield message

    async def _reach(self, socket: str) -> None:
        """Look whether it is there, and load what speaks gRPC, where the loop need not wait for the disk."""

        def look() -> None:
            if not files.is_there(socket):
                raise Unreadable(f"{socket}: not there, or not for us to see")
            # 1.6 MiB that a host without Kubernetes need not carry.
            importlib.import_module("gputally.machine.grpc")

        await self._disk.ask(os.path.dirname(socket), look)

    async def get(self, url: str, access: Access = OPEN) -> bytes:
        """Ask a web server."""
        return await web.get(url, access, self._disk)

    def lines(self, url: str, access: Access = OPEN) -> AsyncIterator[bytes]:
        """Follow a web page."""
        return web.lines(url, access, self._disk)

    def folder(self, path: str) -> Mapping[str, str]:
        """List a folder."""
        return self._folders.list(path)

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        """Look through /proc; dear, so not to be asked often."""
        return files.flags(self._proc_root, commands, wanted)

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        """Read the file."""
        return files.settings(read_file(path, MOST_FILE) or b"", wanted)

    def variable(self, name: str) -> str:
        """Look into our own environment."""
        return os.environ.get(name, "")

    def self_usage(self) -> SelfUsage:
        """What this program uses, by its own account in the kernel."""
        return own_usage()

    def close(self) -> None:
        """Stop watching processes; the library is shut down by its source."""
        if self._apart is not None:
            self._apart.close()
        self._smi.close()
        self._processes.close()


def _apart(library: str | None) -> ApartNvml:
    from gputally.machine.nvml_apart import ApartNvml  # few machines want it

    return ApartNvml(library)


def own_usage() -> SelfUsage:
    """What this program uses now."""
    cpu_seconds = time.process_time()
    try:
        return SelfUsage(
            cpu_seconds=cpu_seconds,
            resident_bytes=int(_statm().split()[1]) * resource.getpagesize(),
            # Kernels before 6.2 do not tell how many there are; listing them opens one.
            open_fds=os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1,
            threads=os.stat("/proc/self/task").st_nlink - 2,
        )
    except OSError:
        return SelfUsage(cpu_seconds=cpu_seconds)


def _statm() -> bytes:
    # Not by `open`, which asks the kernel three times as much about the file.
    statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(statm, 256)
    finally:
        os.close(statm)
