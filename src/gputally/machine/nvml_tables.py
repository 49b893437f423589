"""NVML's calls that fill a table: process lists, utilization samples, field values."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pynvml

from gputally.model import Unreadable

FUNCTION_NOT_FOUND = 13
INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = 2**64 - 1
NO_INSTANCE = 2**32 - 1
MOST_PROCESSES = 16_384
FIRST_ROOM = 64
UNWRITTEN = 0xAA

_RECORDS = {16: struct.Struct("=I4xQ"), 24: struct.Struct("=I4xQII"), 32: struct.Struct("=I4xQIIQ")}
_WIDEST = max(_RECORDS)
_SAMPLE = struct.Struct("=I4xQIIII")
_FIELD = struct.Struct("=IIqqIi8s")
_VALUES = {0: "<d", 1: "<I4x", 2: "<Q", 3: "<Q", 4: "<q", 5: "<i4x", 6: "<H6x"}
"""NVML's value types: how the eight bytes of a value are read."""


Rows = list[tuple[int | None, ...]]


class Tables:
    """Calls on a handle; what was learned of a driver is forgotten with it."""

    def __init__(self) -> None:
        self._widths: dict[str, int] = {}
        self._functions: dict[str, Any] = {}
        self._newest: dict[str, str] = {}
        """Kind of process list -> the newest version of the call that the driver has."""

    def forget(self) -> None:
        """Another driver may have other functions, and lay its records out differently."""
        self._widths.clear()
        self._functions.clear()
        self._newest.clear()

    def list_of(self, kind: str, handle: Any) -> Callable[[], Rows]:
        """The call that lists processes of a kind; the same list again as long as it says the same."""
        name = self._newest_of(kind)
        ask = self._function(name)
        fill = _Filled(lambda room, buffer: ask(handle, room, buffer))
        written, rows = b"", Rows()

        def processes() -> Rows:
            nonlocal written, rows
            width, raw = self._records(name, fill)
            if raw != written:
                # A record: pid, memory, GPU instance, compute instance; the oldest lack the last two.
                rows = [
                    (
                        row[0],
                        None if row[1] == NOT_AVAILABLE else row[1],
                        *(row[2:4] or (NO_INSTANCE, NO_INSTANCE)),
                    )
                    for row in _RECORDS[width].iter_unpack(raw)
                ]
                written = raw
            return rows if raw else []

        return processes

    def samples_of(self, handle: Any) -> Callable[[int], Rows]:
        """The call for utilization samples since a time of the driver's.

        A sample: pid, time, SM, memory, encoder, decoder.
        """
        ask, since = self._function("nvmlDeviceGetProcessUtilization"), ctypes.c_ulonglong()
        fill = _Filled(lambda room, buffer: ask(handle, buffer, room, since))

        def samples(last_seen: int) -> Rows:
            since.value = last_seen
            raw, count = fill()
            return list(_SAMPLE.iter_unpack(raw[: count * _SAMPLE.size]))

        return samples

    def field_values(self, handle: Any, wanted: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Id of each wanted (id, scope) -> its value, or the code with which it failed."""
        buffer = ctypes.create_string_buffer(_request(tuple(map(tuple, wanted))), len(wanted) * _FIELD.size)
        code = self._function("nvmlDeviceGetFieldValues")(handle, len(wanted), buffer)
        if code:
            raise pynvml.NVMLError(code)
        return {
            str(id): {"error": code} if code else _value(kind, raw)
            for id, _, _, _, kind, code, raw in _FIELD.iter_unpack(buffer.raw)
        }

    def _newest_of(self, kind: str) -> str:
        if kind not in self._newest:
            versions = [f"nvmlDeviceGet{kind}RunningProcesses{suffix}" for suffix in ("_v3", "_v2", "")]
            self._newest[kind] = next((n for n in versions if hasattr(pynvml.nvmlLib, n)), versions[0])
        return self._newest[kind]

    def _records(self, name: str, fill: _Filled) -> tuple[int, bytes]:
        """Records of a list; how wide they are is seen in what the driver wrote, not believed of its name.

        Drivers around 535.54-535.98 widened the record behind an unchanged name.
        """
        width = self._widths.get(name)
        raw, count = fill(mark=width is None)
        if not count:
            return _WIDEST, b""
        if width is None:
            written = len(bytes(raw).rstrip(bytes([UNWRITTEN])))
            width = written // count
            if written % count or width not in _RECORDS:
                raise Unreadable(f"{name}: {count} records in {written} bytes are of no known layout")
            self._widths[name] = width
        return width, bytes(raw[: count * width])

    def _function(self, name: str) -> Any:
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = function(name)
        return known


class _Filled:
    """A call with a buffer of its own, which is larger than needed and grows when it is not."""

    def __init__(self, call: Callable[[Any, Any], int]) -> None:
        self._call = call
        self._room = ctypes.c_uint()
        self._at = ctypes.byref(self._room)
        self._grow(FIRST_ROOM)

    def __call__(self, *, mark: bool = False) -> tuple[memoryview, int]:
        """What was written, and how many records."""
        for _ in range(4):
            if mark:
                ctypes.memset(self._buffer, UNWRITTEN, len(self._buffer))
            self._room.value = self._most
            code = self._call(self._at, self._buffer)
            if code == 0:
                return self._view, self._room.value
            if code != INSUFFICIENT_SIZE or self._room.value > MOST_PROCESSES:
                raise pynvml.NVMLError(code)
            self._grow(2 * max(self._room.value, self._most))
        raise pynvml.NVMLError(INSUFFICIENT_SIZE)

    def _grow(self, most: int) -> None:
        # Room for so many of the widest records, so that none is written past the end.
        self._most = most
        self._buffer = ctypes.create_string_buffer(_WIDEST * most)
        self._view = memoryview(self._buffer).cast("B")


@lru_cache(maxsize=64)  # GPUs of one kind are asked for the same fields each time
def _request(wanted: tuple[tuple[int, int], ...]) -> bytes:
    return b"".join(_FIELD.pack(id, scope, 0, 0, 0, 0, bytes(8)) for id, scope in wanted)


def _value(kind: int, raw: bytes) -> Any:
    layout = _VALUES.get(kind)
    return {"error": None} if layout is None else struct.unpack(layout, raw)[0]


def function(name: str) -> Any:
    """The library's function of that name."""
    # A function object of our own: what ctypes learns about it does not reach the binding's.
    try:
        return pynvml.nvmlLib[name]
    except (AttributeError, TypeError):
        raise pynvml.NVMLError(FUNCTION_NOT_FOUND) from None
