"""NVML's calls that fill a table: process lists, utilization samples, field values."""

from __future__ import annotations

import ctypes
import struct
import threading
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
MOST_FORMS = 64

_RECORDS = {16: struct.Struct("=I4xQ"), 24: struct.Struct("=I4xQII"), 32: struct.Struct("=I4xQIIQ")}
_WIDEST = max(_RECORDS)
_SAMPLE = struct.Struct("=I4xQIIII")
_FIELD = "IIqqIi"
"""Id, scope, time, time it took, type of its value, return code; and then the value."""
_VALUES = ("d", "I4x", "Q", "Q", "q", "i4x", "H6x")
"""By NVML's value types: how the eight bytes of a value are read."""

Rows = list[tuple[int | None, ...]]
Wanted = Sequence[Sequence[int]]


class Tables:
    """Calls on a handle; what was learned of a driver is forgotten with it.

    All GPUs that a thread asks share its buffers: what was just used is still near, and costs less.
    """

    def __init__(self) -> None:
        self._own = _Own()
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
        ask = self.function(name)
        written, rows = b"", Rows()

        def fill(size: Any, buffer: Any) -> int:
            code: int = ask(handle, size, buffer)
            return code

        def processes() -> Rows:
            nonlocal written, rows
            width, room = self._widths.get(name), self._own.room
            count = room.fill(fill, mark=width is None)
            if not count:
                return []
            width = width or self._width(name, room.view, count)
            told = bytes(room.view[: count * width])
            if told != written:
                # A record: pid, memory, GPU instance, compute instance; the oldest lack the last two.
                rows = [
                    (
                        row[0],
                        None if row[1] == NOT_AVAILABLE else row[1],
                        *(row[2:4] or (NO_INSTANCE, NO_INSTANCE)),
                    )
                    for row in _RECORDS[width].iter_unpack(told)
                ]
                written = told
            return rows

        return processes

    def samples_of(self, handle: Any) -> Callable[[int], Rows]:
        """The call for samples since a time of the driver's: pid, time, SM, memory, encoder, decoder."""
        ask, since = self.function("nvmlDeviceGetProcessUtilization"), ctypes.c_ulonglong()

        def fill(size: Any, buffer: Any) -> int:
            code: int = ask(handle, buffer, size, since)
            return code

        def samples(last_seen: int) -> Rows:
            since.value, room = last_seen, self._own.room
            count = room.fill(fill)
            return list(_SAMPLE.iter_unpack(room.view[: count * _SAMPLE.size]))

        return samples

    def field_values(self, handle: Any, wanted: Wanted) -> dict[str, Any]:
        """Id of each wanted (id, scope) -> its value, or the code with which it failed."""
        form = self._own.form(wanted)
        ctypes.memmove(form.buffer, form.request, len(form.request))  # nothing of the answer before is left
        if code := self.function("nvmlDeviceGetFieldValues")(handle, len(wanted), form.buffer):
            raise pynvml.NVMLError(code)
        kinds, codes, values = form.read()
        if not any(codes) and max(kinds, default=0) < len(_VALUES):
            return dict(zip(form.names, values, strict=True))
        told = zip(form.names, kinds, codes, values, strict=True)
        return {
            name: value if not code and kind < len(_VALUES) else {"error": code or None}
            for name, kind, code, value in told
        }

    def function(self, name: str) -> Any:
        """The library's function of that name."""
        known = self._functions.get(name)
        if known is None:
            known = self._functions[name] = _function(name)
        return known

    def _newest_of(self, kind: str) -> str:
        if kind not in self._newest:
            versions = [f"nvmlDeviceGet{kind}RunningProcesses{suffix}" for suffix in ("_v3", "_v2", "")]
            self._newest[kind] = next((n for n in versions if hasattr(pynvml.nvmlLib, n)), versions[0])
        return self._newest[kind]

    def _width(self, name: str, raw: memoryview, count: int) -> int:
        """How wide records are, which is seen in what the driver wrote, not believed of the call's name.

        Drivers around 535.54-535.98 widened the record behind an unchanged name.
        """
        written = len(bytes(raw).rstrip(bytes([UNWRITTEN])))
        width = written // count
        if written % count or width not in _RECORDS:
            raise Unreadable(f"{name}: {count} records in {written} bytes are of no known layout")
        self._widths[name] = width
        return width


class _Own(threading.local):
    """What a thread has for itself."""

    def __init__(self) -> None:
        self.room = _Room()
        self._forms: dict[tuple[tuple[int, ...], ...], _Form] = {}
        self._asked: dict[int, tuple[Wanted, _Form]] = {}
        """Lists that were handed in before, by their id, which is theirs as long as they are kept here."""

    def form(self, wanted: Wanted) -> _Form:
        """The one for those numbered fields; GPUs of one kind are asked for the same each time."""
        known = self._asked.get(id(wanted))
        if known is None:
            known = self._asked[id(wanted)] = (wanted, self._form(tuple(map(tuple, wanted))))
        return known[1]

    def _form(self, wanted: tuple[tuple[int, ...], ...]) -> _Form:
        if len(self._asked) > MOST_FORMS:
            self._asked.clear()
            self._forms.clear()
        return self._forms.get(wanted) or self._forms.setdefault(wanted, _Form(wanted))


class _Form:
    """A question for numbered fields, and room for its answer."""

    def __init__(self, wanted: Wanted) -> None:
        self.names = [str(id) for id, _ in wanted]
        self.request = b"".join(_layout((0,)).pack(id, scope, 0, 0, 0, 0, 0.0) for id, scope in wanted)
        self.buffer = ctypes.create_string_buffer(len(self.request))
        self._layout = _layout((0,) * len(wanted))

    def read(self) -> tuple[Sequence[int], Sequence[int], Sequence[Any]]:
        """Of each field the type, the return code and the value; types hardly ever change."""
        told = self._layout.unpack(self.buffer)
        layout = _layout(told[4::7])
        if layout is not self._layout:
            self._layout = layout
            told = layout.unpack(self.buffer)
        return told[4::7], told[5::7], told[6::7]


class _Room:
    """A buffer for records, which is larger than needed and grows when it is not."""

    def __init__(self) -> None:
        self._size = ctypes.c_uint()
        self._at = ctypes.byref(self._size)
        self._grow(FIRST_ROOM)

    def fill(self, call: Callable[[Any, Any], int], *, mark: bool = False) -> int:
        """Have a call write its records, and tell how many there are."""
        tries = 4
        while True:
            if mark:
                ctypes.memset(self._buffer, UNWRITTEN, len(self._buffer))
            self._size.value = self._most
            code = call(self._at, self._buffer)
            if not code:
                return self._size.value
            tries -= 1
            if code != INSUFFICIENT_SIZE or self._size.value > MOST_PROCESSES or not tries:
                raise pynvml.NVMLError(code)
            self._grow(2 * max(self._size.value, self._most))

    def _grow(self, most: int) -> None:
        # Room for so many of the widest records, so that none is written past the end.
        self._most = most
        self._buffer = ctypes.create_string_buffer(_WIDEST * most)
        self.view = memoryview(self._buffer).cast("B")


@lru_cache(MOST_FORMS)
def _layout(kinds: tuple[int, ...]) -> struct.Struct:
    """Fields with values of these types; of one that is not known, the value is not read."""
    values = [_VALUES[kind] if kind < len(_VALUES) else "8s" for kind in kinds]
    return struct.Struct("=" + "".join([f"{_FIELD}{value}" for value in values]))


def _function(name: str) -> Any:
    # A function object of our own: what ctypes learns about it does not reach the binding's.
    try:
        return pynvml.nvmlLib[name]
    except (AttributeError, TypeError):
        raise pynvml.NVMLError(FUNCTION_NOT_FOUND) from None
