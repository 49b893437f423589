"""Builds the fake libdcgm and plays the host engine behind it while another process uses it."""

import ctypes
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from tests.fakes.shared import COMPILER, HERE, I32, U32, U64, Text96, assertions, create, layout

__all__ = ["CALLS", "OFF", "ON", "UNSUPPORTED", "FakeDcgm", "build"]

CALLS = tuple(re.findall(r"X\((dcgm\w+)\)", (HERE / "dcgm.h").read_text()))
OFF, ON, UNSUPPORTED = range(3)
BLANK = 0x7FFFFFFFFFFFFFF0
BLANK_FLOAT = 2.0**47
RUBBISH = 93875164274848
"""What was once seen as the start of a process on a GPU without accounting."""

I64 = Annotated[int, ctypes.c_int64]
F64 = Annotated[float, ctypes.c_double]
Text128 = Annotated[str, ctypes.c_char * 128]
Text256 = Annotated[str, ctypes.c_char * 256]
Bytes = Annotated[ctypes.Array[ctypes.c_ubyte], ctypes.c_ubyte * 2048]


@layout
class Call(ctypes.Structure):
    """What one call does, and how often it was made."""

    __slots__ = ()

    count: U64
    rc: I32
    delay_us: U32
    hang: U32


@layout
class Process(ctypes.Structure):
    """The accounting record of one process on one GPU."""

    __slots__ = ()

    pid: U32
    sm: U32
    start_us: I64
    end_us: I64
    memory: I64


@layout
class Field(ctypes.Structure):
    """The latest value of one field."""

    __slots__ = ()

    id: U32
    type: U32
    status: I32
    age_us: U32
    integer: I64
    real: F64


ProcessTable = Annotated[ctypes.Array[Process], Process * 64]
FieldTable = Annotated[ctypes.Array[Field], Field * 64]
CallRow = Annotated[ctypes.Array[Call], Call * len(CALLS)]


@layout
class Gpu(ctypes.Structure):
    """One GPU as the host engine sees it."""

    __slots__ = ()

    uuid: Text96
    accounting: U32
    process_count: U32
    field_count: U32
    power_mw: U32

    energy_since_us: I64
    watched_us: I64
    unwatched_us: I64
    every_us: I64
    retention_us: I64

    process_table: ProcessTable
    field_table: FieldTable

    def run(self, pid: int, *, start: float | None = None, sm: int = 0, memory: int = 1 << 30) -> None:
        """Begins the record of a process; records that ended longer ago than the retention go now."""
        now = time.time()
        start_us = round((now if start is None else start) * 1e6)
        kept = [row for row in self._records() if not self._is_over(row, now * 1e6)]
        self._replace([*kept, Process(pid, sm, start_us, 0, memory)])

    def end(self, pid: int, at: float | None = None) -> None:
        """Ends a process; its record stays."""
        rows = self._records()
        for row in rows:
            if row.pid == pid and not row.end_us:
                row.end_us = round((time.time() if at is None else at) * 1e6)
        self._replace(rows)

    def tell(self, id: int, value: float, *, status: int = 0, age: float = 0.0) -> None:
        """Sets the latest value of a field: a float is a double there, an int an int64."""
        rows = [Field.from_buffer_copy(row) for row in self.field_table[: self.field_count] if row.id != id]
        real = isinstance(value, float)
        number = (0, value) if real else (value, 0.0)
        rows.append(Field(id, ord("d" if real else "i"), status, round(age * 1e6), *number))
        for place, row in enumerate(rows):
            self.field_table[place] = row
        self.field_count = len(rows)

    def _records(self) -> list[Process]:
        return [Process.from_buffer_copy(row) for row in self.process_table[: self.process_count]]

    def _is_over(self, row: Process, now_us: float) -> bool:
        return bool(row.end_us) and now_us - row.end_us > self.retention_us

    def _replace(self, rows: list[Process]) -> None:
        for place, row in enumerate(rows):
            self.process_table[place] = row
        self.process_count = len(rows)


GpuTable = Annotated[ctypes.Array[Gpu], Gpu * 16]


@layout
class Control(ctypes.Structure):
    """The whole shared file."""

    __slots__ = ()

    size: U64
    calls: CallRow
    library_version: Text256
    engine_version: Text256
    address: Text128
    is_unix: U32
    up: U32
    root: U32
    login_fails: U32
    profiling: U32
    shortest_wins: U32
    rubbish_us: I64
    other_client_us: I64
    epoch: U32
    connected: U32
    embedded: U32
    count: U32
    watched: Bytes
    gpus: GpuTable


class FakeDcgm:
    """A host engine: `library` and `env` are for the process under test, the rest steers it."""

    def __init__(self, folder: Path, uuids: Iterable[str], *, library: Path, address: str = "127.0.0.1:5555"):
        self.library = library
        self.env = {"FAKE_DCGM_CONTROL": str(folder / "dcgm.control")}
        self.control = create(folder / "dcgm.control", Control)
        self.control.address = address.removeprefix("unix:")
        self.control.is_unix = int(address.startswith("unix:"))
        self.control.library_version = "version:4.6.0;arch:x86_64"
        names = list(uuids)
        self.gpus = [self.control.gpus[place] for place in range(len(names))]
        for gpu, uuid in zip(self.gpus, names, strict=True):
            gpu.uuid, gpu.accounting, gpu.power_mw = uuid, ON, 200_000
        self.control.count = len(names)
        self.control.profiling, self.control.rubbish_us = 1, RUBBISH
        self.start()

    def start(self, version: str = "4.6.0") -> None:
        """Starts the host engine: it knows of no client, no watch and no sample."""
        self.control.engine_version = f"version:{version};arch:x86_64"
        self.control.epoch += 1
        self.control.connected = 0
        ctypes.memset(self.control.watched, 0, ctypes.sizeof(self.control.watched))
        for gpu in self.gpus:
            gpu.watched_us = gpu.unwatched_us = 0
        self.control.up = 1

    def stop(self) -> None:
        """Kills the host engine."""
        self.control.up = 0

    def answer(self, call: str, rc: int) -> None:
        """Makes a call return this code; 0 ends it."""
        self._entry(call).rc = rc

    def delay(self, call: str, seconds: float) -> None:
        """Makes a call take this long."""
        self._entry(call).delay_us = round(seconds * 1e6)

    def hang(self, call: str) -> None:
        """Makes a call hang until `release`."""
        self._entry(call).hang = 1

    def release(self) -> None:
        """Lets every hanging call go on."""
        for entry in self.control.calls:
            entry.hang = 0

    def calls(self, call: str) -> int:
        """How often a call was made."""
        return self._entry(call).count

    def watches(self, field: int) -> bool:
        """Whether somebody watches a field by name."""
        return bool(self.control.watched[field])

    def _entry(self, call: str) -> Call:
        return self.control.calls[CALLS.index(call)]


def build(folder: Path, major: int = 4) -> Path:
    """Compiles the library into the folder, under the soname of a major version."""
    library, check = folder / f"libdcgm.so.{major}", folder / "dcgm_layout.c"
    check.write_text("\n".join(layout_check()))
    options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{HERE}"]
    linking = [f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run([*COMPILER, *options, *linking, str(HERE / "dcgm.c"), str(check)], check=True)
    return library


def layout_check() -> Iterator[str]:
    """Has the compiler hold every size and offset here against those in dcgm.h."""
    return assertions("dcgm.h", (Call, Process, Field, Gpu, Control))
