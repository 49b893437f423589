"""NVIDIA's management library on this machine: raw answers as plain data, through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

import pynvml

from gputally.machine import Gpu
from gputally.model import Unreadable

PLACES = (
    "/usr/local/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
    "/usr/lib/wsl/lib",
)
"""Where the library lies when the system loader does not find it: GKE, gpu-operator, WSL."""

SONAME = "libnvidia-ml.so.1"
FUNCTION_NOT_FOUND = 13
INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = 2**64 - 1
MOST_PROCESSES = 16_384

_LAYOUTS = {16: struct.Struct("=I4xQ"), 24: struct.Struct("=I4xQII"), 32: struct.Struct("=I4xQIIQ")}
_SAMPLE = struct.Struct("=I4xQIIII")


class LocalNvml:
    """Calls by name; GPUs by uuid."""

    def __init__(self, library: str | None = None) -> None:
        self._library = library
        self._handles: dict[str, Any] = {}
        self._buffers = threading.local()
        self._special: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
            "nvmlDeviceGetComputeRunningProcesses": self._list_of("Compute"),
            "nvmlDeviceGetGraphicsRunningProcesses": self._list_of("Graphics"),
            "nvmlDeviceGetMPSComputeRunningProcesses": self._list_of("MPSCompute"),
            "nvmlDeviceGetProcessUtilization": self._samples,
        }

    def __call__(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """Answer one call, or raise Unreadable with NVML's return code."""
        try:
            function = self._special.get(call) or getattr(pynvml, call, None)
            if function is None:
                raise Unreadable(f"{call}: nvidia-ml-py does not know this call", FUNCTION_NOT_FOUND)
            if gpu is None:
                return _plain(function(*args))
            if isinstance(gpu, int):
                return self._identify(gpu)
            return _plain(function(self._handle(gpu), *args))
        except pynvml.NVMLError as error:
            raise Unreadable(f"{call}: {error}", error.value) from None
        except pynvml.NVMLLibraryMismatchError as error:
            raise Unreadable(f"{call}: {error}", FUNCTION_NOT_FOUND) from None

    def _init(self) -> None:
        _load(self._library)
        pynvml.nvmlInit()

    def _shutdown(self) -> None:
        self._handles.clear()
        pynvml.nvmlShutdown()

    def _identify(self, index: int) -> str:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = str(_plain(pynvml.nvmlDeviceGetUUID(handle)))
        self._handles[uuid] = handle
        return uuid

    def _handle(self, uuid: str) -> Any:
        handle = self._handles.get(uuid)
        if handle is None:
            handle = self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return handle

    def _list_of(self, list_name: str) -> Callable[[Any], list[list[int | None]]]:
        versions = [f"nvmlDeviceGet{list_name}RunningProcesses{suffix}" for suffix in ("_v3", "_v2", "")]

        def processes(handle: Any) -> list[list[int | None]]:
            name = next((n for n in versions if _has(n)), versions[0])
            layout = _LAYOUTS[_stride(name)]
            raw = self._fill(name, layout.size, lambda call, room, buffer: call(handle, room, buffer))
            # A record: pid, memory, GPU instance, compute instance; the oldest lack the last two.
            return [
                [row[0], None if row[1] == NOT_AVAILABLE else row[1], *(row[2:4] or (0xFFFFFFFF, 0xFFFFFFFF))]
                for row in layout.iter_unpack(raw)
            ]

        return processes

    def _samples(self, handle: Any, last_seen: int) -> list[list[int]]:
        since = ctypes.c_ulonglong(last_seen)
        raw = self._fill(
            "nvmlDeviceGetProcessUtilization",
            _SAMPLE.size,
            lambda call, room, buffer: call(handle, buffer, room, since),
        )
        return [list(row) for row in _SAMPLE.iter_unpack(raw)]

    def _fill(self, name: str, size: int, call: Callable[[Any, Any, Any], int]) -> memoryview:
        """Call with this thread's buffer, which is larger than needed and grows when it is not."""
        function = _function(name)
        for _ in range(4):
            buffer = self._buffer()
            room = ctypes.c_uint(len(buffer) // size)
            code = call(function, ctypes.byref(room), buffer)
            if code == 0:
                return memoryview(buffer)[: room.value * size]
            if code != INSUFFICIENT_SIZE or room.value > MOST_PROCESSES:
                raise pynvml.NVMLError(code)
            self._buffers.own = ctypes.create_string_buffer(2 * size * max(room.value, len(buffer) // size))
        raise pynvml.NVMLError(INSUFFICIENT_SIZE)

    def _buffer(self) -> ctypes.Array[ctypes.c_char]:
        if not hasattr(self._buffers, "own"):
            self._buffers.own = ctypes.create_string_buffer(32 * 256)
        buffer: ctypes.Array[ctypes.c_char] = self._buffers.own
        return buffer


def _load(library: str | None) -> None:
    """Load the library under its soname, so that the binding gets this one and no other."""
    if library is not None:
        try:
            ctypes.CDLL(library)
        except OSError as error:
            raise Unreadable(f"nvml: cannot load --nvml.library {library}: {error}", 12) from None
        return
    for place in ("", *PLACES):
        try:
            ctypes.CDLL(os.path.join(place, SONAME))
        except OSError:
            continue
        return
    raise Unreadable(f"nvml: no {SONAME} in the loader's path nor in {', '.join(PLACES)}", 12)


def _function(name: str) -> Any:
    # A function object of our own: what ctypes learns about it does not reach the binding's.
    try:
        return pynvml.nvmlLib[name]
    except (AttributeError, TypeError):
        raise pynvml.NVMLError(FUNCTION_NOT_FOUND) from None


def _has(name: str) -> bool:
    return hasattr(pynvml.nvmlLib, name)


def _stride(name: str) -> int:
    """Bytes of one record; drivers around 535.54-535.98 widened the record without a new name."""
    if not name.endswith(("_v2", "_v3")):
        return 16
    widened = _has("nvmlDeviceGetConfComputeMemSizeInfo") and not _has(
        "nvmlDeviceGetRunningProcessDetailList"
    )
    return 32 if widened and name.endswith("_v3") else 24


def _memory_v2(handle: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)


def _plain(answer: Any) -> Any:
    """The answer as numbers, text, lists and dicts."""
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if isinstance(answer, ctypes.Structure):
        return {name: _plain(getattr(answer, name)) for name, *_ in answer._fields_}
    if isinstance(answer, list | tuple):
        return answer if answer and isinstance(answer[0], list) else [_plain(item) for item in answer]
    return answer
