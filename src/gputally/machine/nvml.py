"""NVIDIA's management library on this machine: raw answers as plain data, through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import pynvml

from gputally.machine import Gpu
from gputally.machine.nvml_kept import EventSet, Meters
from gputally.machine.nvml_tables import FUNCTION_NOT_FOUND, Tables
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


class LocalNvml:
    """Calls by name; GPUs and MIG instances by uuid."""

    def __init__(self, library: str | None = None) -> None:
        self._library = library
        self._handles: dict[str, Any] = {}
        self._tables = Tables()
        self._meters = Meters()
        self._events = EventSet()
        self._of_system: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlEventSetWait": self._events.wait,
            "nvmlEventSetFree": self._events.free,
        }
        self._of_handle: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
            "nvmlDeviceGetComputeRunningProcesses": self._tables.list_of("Compute"),
            "nvmlDeviceGetGraphicsRunningProcesses": self._tables.list_of("Graphics"),
            "nvmlDeviceGetMPSComputeRunningProcesses": self._tables.list_of("MPSCompute"),
            "nvmlDeviceGetProcessUtilization": self._tables.samples,
            "nvmlDeviceGetFieldValues": self._tables.field_values,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._instance,
        }
        self._of_uuid: dict[str, Callable[..., Any]] = {
            "nvmlDeviceRegisterEvents": self._events.register,
            "nvmlGpmMetricsGet": self._meters.whole,
            "nvmlGpmMigMetricsGet": self._meters.instance,
        }

    def __call__(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """Answer one call, or raise Unreadable with NVML's return code."""
        try:
            if isinstance(gpu, int):
                return self._identify(gpu)
            if gpu is None:
                return _plain((self._of_system.get(call) or _bound(call))(*args))
            if call in self._of_uuid:
                return self._of_uuid[call](gpu, self._handle(gpu), *args)
            if call in self._of_handle:
                return _plain(self._of_handle[call](self._handle(gpu), *args))
            return _plain(_bound(call)(self._handle(gpu), *args))
        except pynvml.NVMLError as error:
            raise Unreadable(f"{call}: {error}", error.value) from None
        except pynvml.NVMLLibraryMismatchError as error:
            raise Unreadable(f"{call}: {error}", FUNCTION_NOT_FOUND) from None

    def _init(self) -> None:
        _load(self._library)
        pynvml.nvmlInit()
        self._tables.forget()

    def _shutdown(self) -> None:
        self._events.free()
        self._meters.free()
        self._handles.clear()
        pynvml.nvmlShutdown()

    def _identify(self, index: int) -> str:
        return self._keep(pynvml.nvmlDeviceGetHandleByIndex(index))

    def _instance(self, parent: Any, index: int) -> str:
        """The uuid of the MIG instance in a place of its GPU."""
        return self._keep(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index))

    def _keep(self, handle: Any) -> str:
        """The uuid behind a handle; what was kept under it may be of a time before a reset."""
        uuid = str(_plain(pynvml.nvmlDeviceGetUUID(handle)))
        self._handles[uuid] = handle
        return uuid

    def _handle(self, uuid: str) -> Any:
        handle = self._handles.get(uuid)
        if handle is None:
            handle = self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return handle


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


def _bound(call: str) -> Callable[..., Any]:
    """The binding's own function."""
    function: Callable[..., Any] | None = getattr(pynvml, call, None)
    if function is None:
        raise Unreadable(f"{call}: nvidia-ml-py does not know this call", FUNCTION_NOT_FOUND)
    return function


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
