"""DCGM's library on this machine: the few calls that are needed, and their answers as plain data."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_double, c_int, c_longlong, c_size_t, c_uint, c_void_p
from functools import cached_property
from itertools import count
from typing import Any

from gputally.model import Unreadable

SONAMES = ("libdcgm.so.4", "libdcgm.so.3")
NOT_CONNECTED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = -21, -25, -20
ALL_GPUS = 0x7FFFFFFF
EMBEDDED_HANDLE = 0x7FFFFFFF
EMPTY_GROUP, ENTITY_GPU, COLLECT_BY_ITSELF, LOG_NOTHING = 1, 1, 1, 0
MOST_GPUS = 32

_HANDLE = c_size_t
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "dcgmInit": (),
    "dcgmConnect_v2": (c_char_p, c_void_p, c_void_p),
    "dcgmDisconnect": (_HANDLE,),
    "dcgmStartEmbedded_v2": (c_void_p,),
    "dcgmStopEmbedded": (_HANDLE,),
    "dcgmVersionInfo": (c_void_p,),
    "dcgmHostengineVersionInfo": (_HANDLE, c_void_p),
    "dcgmGetAllSupportedDevices": (_HANDLE, c_void_p, c_void_p),
    "dcgmGetDeviceAttributes": (_HANDLE, c_uint, c_void_p),
    "dcgmGroupCreate": (_HANDLE, c_int, c_char_p, c_void_p),
    "dcgmGroupAddDevice": (_HANDLE, c_size_t, c_uint),
    "dcgmGroupDestroy": (_HANDLE, c_size_t),
    "dcgmFieldGroupCreate": (_HANDLE, c_int, c_void_p, c_char_p, c_void_p),
    "dcgmFieldGroupDestroy": (_HANDLE, c_size_t),
    "dcgmWatchFields": (_HANDLE, c_size_t, c_size_t, c_longlong, c_double, c_int),
    "dcgmWatchPidFields": (_HANDLE, c_size_t, c_longlong, c_double, c_int),
    "dcgmGetPidInfo": (_HANDLE, c_size_t, c_void_p),
    "dcgmEntitiesGetLatestValues": (_HANDLE, c_void_p, c_uint, c_void_p, c_uint, c_uint, c_void_p),
}

# Layouts of DCGM 3.1 to 4.6: the size of a struct, and where in it lies what is read.
_CONNECT = struct.Struct("=4I")
_EMBEDDED = struct.Struct("=IIQQiI40x")
_VERSION_INFO = 516
_ATTRIBUTES, _UUID = 5220, slice(3120 + 1028, 3120 + 1028 + 256)
_PID_INFO, _FIRST_GPU, _GPU_RECORD = 17704, 552, 536
_VALUE = struct.Struct("=4xIIHHi4xq8s4088x")
_PID_NUMBERS = (
    ("gpuId", 0, "I"),
    ("energyConsumed", 8, "q"),
    ("startTime", 72, "q"),
    ("endTime", 80, "q"),
    ("maxGpuMemoryUsed", 392, "q"),
)


class LocalDcgm:
    """Calls by name, to the one host engine that was connected last."""

    def __init__(self, library: str | None = None) -> None:
        self._path = library
        self._handle: int | None = None
        self._embedded = False
        self._names = count(1)
        self._values: tuple[tuple[Any, Any], Any] = ((None, None), None)
        self._calls: dict[str, Callable[..., Any]] = {
            "dcgmConnect_v2": self._connect,
            "dcgmStartEmbedded_v2": self._start_embedded,
            "dcgmDisconnect": self._disconnect,
            "dcgmVersionInfo": self._library_version,
            "dcgmHostengineVersionInfo": self._engine_version,
            "dcgmGetAllSupportedDevices": self._devices,
            "dcgmGetDeviceAttributes": self._attributes,
            "dcgmGroupCreate": self._group,
            "dcgmGroupDestroy": lambda group: self._ask("dcgmGroupDestroy", group),
            "dcgmWatchFields": self._watch,
            "dcgmWatchPidFields": lambda *args: self._ask("dcgmWatchPidFields", *args),
            "dcgmGetPidInfo": self._pid_info,
            "dcgmEntitiesGetLatestValues": self._latest,
        }

    def __call__(self, call: str, *args: Any) -> Any:
        """Answer one call, or raise Unreadable with DCGM's return code."""
        return self._calls[call](*args)

    @cached_property
    def _library(self) -> ctypes.CDLL:
        library = _load(self._path)
        for name, arguments in _ARGUMENTS.items():
            try:
                function = library[name]
            except AttributeError:
                raise Unreadable(f"dcgm: the library has no {name}", FUNCTION_NOT_FOUND) from None
            function.argtypes, function.restype = arguments, c_int
            setattr(library, name, function)
        library.errorString.restype = c_char_p
        _check(library, "dcgmInit", library.dcgmInit())
        return library

    def _ask(self, call: str, *args: Any) -> None:
        """A call to the host engine."""
        if self._handle is None:
            raise Unreadable(f"{call}: not connected", NOT_CONNECTED)
        _check(self._library, call, getattr(self._library, call)(self._handle, *args))

    def _connect(self, address: str, timeout_ms: int) -> None:
        path = address.removeprefix("unix:")
        options = _CONNECT.pack(_version(_CONNECT.size, 2), 0, timeout_ms, int(path != address))
        handle = _HANDLE()
        code = self._library.dcgmConnect_v2(os.fsencode(path), options, ctypes.byref(handle))
        _check(self._library, f"dcgmConnect_v2({address})", code)
        self._handle, self._embedded = handle.value, False

    def _start_embedded(self) -> None:
        # A second start leaves the handle as it is, so it holds the right one from the beginning.
        head = (_version(_EMBEDDED.size, 1), COLLECT_BY_ITSELF, EMBEDDED_HANDLE, 0, LOG_NOTHING, 0)
        parameters = ctypes.create_string_buffer(_EMBEDDED.pack(*head), _EMBEDDED.size)
        _check(self._library, "dcgmStartEmbedded_v2", self._library.dcgmStartEmbedded_v2(parameters))
        self._handle, self._embedded = _EMBEDDED.unpack(parameters)[2], True

    def _disconnect(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            call = "dcgmStopEmbedded" if self._embedded else "dcgmDisconnect"
            _check(self._library, call, getattr(self._library, call)(handle))

    def _library_version(self) -> str:
        info = _room(_VERSION_INFO, 2)
        _check(self._library, "dcgmVersionInfo", self._library.dcgmVersionInfo(info))
        return _text(info.raw[4:])

    def _engine_version(self) -> str:
        info = _room(_VERSION_INFO, 2)
        self._ask("dcgmHostengineVersionInfo", info)
        return _text(info.raw[4:])

    def _devices(self) -> list[int]:
        ids, number = (c_uint * MOST_GPUS)(), c_int()
        self._ask("dcgmGetAllSupportedDevices", ids, ctypes.byref(number))
        return list(ids[: max(0, number.value)])

    def _attributes(self, gpu: int) -> dict[str, str]:
        attributes = _room(_ATTRIBUTES, 3)
        self._ask("dcgmGetDeviceAttributes", gpu, attributes)
        return {"uuid": _text(attributes.raw[_UUID])}

    def _group(self, gpus: Sequence[int]) -> int:
        group = c_size_t()
        self._ask("dcgmGroupCreate", EMPTY_GROUP, self._name(), ctypes.byref(group))
        for gpu in gpus:
            self._ask("dcgmGroupAddDevice", group.value, gpu)
        return group.value

    def _watch(self, fields: Sequence[int], every_us: int, keep_seconds: float) -> None:
        ids, group = (ctypes.c_ushort * len(fields))(*fields), c_size_t()
        self._ask("dcgmFieldGroupCreate", len(fields), ids, self._name(), ctypes.byref(group))
        try:
            self._ask("dcgmWatchFields", ALL_GPUS, group.value, every_us, keep_seconds, 0)
        except Unreadable:
            self._library.dcgmFieldGroupDestroy(self._handle, group.value)
            raise

    def _pid_info(self, group: int, pid: int) -> list[dict[str, int]]:
        info = _room(_PID_INFO, 2)
        struct.pack_into("=I", info, 4, pid)
        self._ask("dcgmGetPidInfo", group, info)
        (gpus,) = struct.unpack_from("=i", info, 12)
        starts = range(_FIRST_GPU, _FIRST_GPU + min(max(gpus, 0), MOST_GPUS) * _GPU_RECORD, _GPU_RECORD)
        return [
            {
                name: struct.unpack_from(f"={kind}", info, at + offset)[0]
                for name, offset, kind in _PID_NUMBERS
            }
            for at in starts
        ]

    def _latest(self, gpus: Sequence[int], fields: Sequence[int]) -> list[list[Any]]:
        """Rows of GPU, field, status, microseconds since the epoch, number; from the engine's cache only."""
        entities, ids, room = self._room_for(tuple(gpus), tuple(fields))
        self._ask("dcgmEntitiesGetLatestValues", entities, len(gpus), ids, len(fields), 0, room)
        return [
            [gpu, field, status, at, struct.unpack("=d" if kind == ord("d") else "=q", raw)[0]]
            for _, gpu, field, kind, status, at, raw in _VALUE.iter_unpack(room)
        ]

    def _room_for(self, gpus: tuple[int, ...], fields: tuple[int, ...]) -> Any:
        """What to ask with: half a megabyte for eight GPUs, so it is kept."""
        if self._values[0] != (gpus, fields):
            pairs = [number for gpu in gpus for number in (ENTITY_GPU, gpu)]
            entities = (c_uint * len(pairs))(*pairs)
            ids = (ctypes.c_ushort * len(fields))(*fields)
            room = ctypes.create_string_buffer(_VALUE.size * len(gpus) * len(fields))
            self._values = ((gpus, fields), (entities, ids, room))
        return self._values[1]

    def _name(self) -> bytes:
        return f"gputally-{os.getpid()}-{next(self._names)}".encode()


def _load(path: str | None) -> ctypes.CDLL:
    for name in (path,) if path else SONAMES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = str(error)
    if path:
        raise Unreadable(f"dcgm: cannot load --dcgm.library {path}: {reason}", LIBRARY_NOT_FOUND)
    raise Unreadable(
        f"dcgm: the loader finds no {' and no '.join(SONAMES)}; --dcgm.library names one", LIBRARY_NOT_FOUND
    )


def _check(library: ctypes.CDLL, call: str, code: int) -> None:
    if code != 0:
        words = library.errorString(code)
        raise Unreadable(f"{call}: {words.decode('utf-8', 'replace') if words else code}", code)


def _version(size: int, version: int) -> int:
    return size | version << 24


def _room(size: int, version: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(_version(size, version).to_bytes(4, "little"), size)


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
