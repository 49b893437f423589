"""A program under measurement, seen from outside: its CPU clock, its memory, its answers."""

from __future__ import annotations

import gzip
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.node import GPUS, Node

PATIENCE = 30.0
QUIET = 0.1
"""Seconds for which the CPU clock must stand still before work counts as done."""
AS_PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


@dataclass(frozen=True)
class Program:
    """How a program is started, and how its work is told from outside."""

    name: str
    module: str
    arguments: tuple[str, ...]
    per_gpu: str
    """A series it has once per GPU."""
    per_workload: str
    """A series it has once per workload or process on a GPU."""
    collects: str
    """The call it makes once per GPU whenever it collects."""
    publishes: str = "nvmlDeviceGetPowerUsage"
    """The call it makes once per GPU when what it collects is then published."""

    def command(self, port: int, on: Node) -> list[str]:
        """What is run to have it listen on loopback."""
        more = on.flags if self.module == "gputally" else ()
        return [
            sys.executable,
            "-m",
            self.module,
            *(word.format(port=port) for word in self.arguments),
            *more,
        ]


GPUTALLY = Program(
    "gputally",
    "gputally",
    ("serve", "--web.listen-address", "127.0.0.1:{port}", "--tick", "1s", "--interval", "5s"),
    "gputally_gpu_memory_used_bytes{",
    "gputally_workload_active{",
    "nvmlDeviceGetTotalEnergyConsumption",
)
WITH_KUBERNETES = replace(GPUTALLY, name="with Kubernetes")
NVITOP = Program(
    "nvitop-exporter",
    "nvitop_exporter",
    ("--bind-address", "127.0.0.1", "--port", "{port}", "--interval", "1.0"),
    "gpu_memory_used_MiB{",
    "process_info_info{",
    "nvmlDeviceGetPowerUsage",
)


@dataclass(frozen=True)
class Scrape:
    """One answer: its text, and its size on the wire."""

    text: str
    wire_bytes: int

    def count(self, series: str = "") -> int:
        """Samples whose line begins so."""
        return sum(line.startswith(series) for line in self.text.splitlines() if not line.startswith("#"))


@dataclass(frozen=True)
class Daemon:
    """A running program."""

    program: Program
    pid: int
    connection: http.client.HTTPConnection
    start_seconds: float

    def cpu(self) -> float:
        """CPU seconds used so far, exact to the nanosecond: the kernel's clock of that process."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def settled(self) -> float:
        """CPU seconds used, once the program has nothing more to do."""
        used, since = self.cpu(), time.monotonic()
        give_up = since + PATIENCE
        while time.monotonic() - since < QUIET:
            time.sleep(0.01)
            if (now := self.cpu()) != used:
                used, since = now, time.monotonic()
            if since > give_up:
                raise RuntimeError(f"{self.program.name} never rests: it cannot be measured on this machine")
        return used

    def resident_bytes(self) -> int:
        """Memory held, shared pages of libraries included."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def scrape(self) -> Scrape:
        """Ask as Prometheus asks: on the connection of the scrape before, if it was left open."""
        return _scrape(self.connection)


@contextmanager
def running(program: Program, on: Node) -> Iterator[Daemon]:
    """The program over the node's NVML, from its first answer about all GPUs until it is ended."""
    port = _free_port()
    log = on.fake.library.parent / f"{program.module}.log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GPUTALLY_")}
    with log.open("wb") as errors:
        began = time.monotonic()
        process = subprocess.Popen(
            program.command(port, on), env=clean | on.env, stdout=errors, stderr=errors
        )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        while not _tells_all(program, connection):
            if process.poll() is not None or time.monotonic() - began > PATIENCE:
                raise RuntimeError(f"{program.name} does not answer; it said:\n{log.read_text()[-2000:]}")
            time.sleep(0.01)
        yield Daemon(program, process.pid, connection, time.monotonic() - began)
    finally:
        connection.close()
        process.kill()
        process.wait()


def _tells_all(program: Program, connection: http.client.HTTPConnection) -> bool:
    try:
        return _scrape(connection).count(program.per_gpu) == GPUS
    except (OSError, http.client.HTTPException):
        connection.close()
        return False


def _scrape(connection: http.client.HTTPConnection) -> Scrape:
    connection.request("GET", "/metrics", headers=AS_PROMETHEUS)
    answer = connection.getresponse()
    body = answer.read()
    packed = answer.headers.get("Content-Encoding") == "gzip"
    return Scrape((gzip.decompress(body) if packed else body).decode(), len(body))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
