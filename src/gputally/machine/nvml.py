"""NVIDIA's management library on this machine: raw answers as plain data, through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import inspect
import os
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pynvml

from gputally.machine import Gpu
from gputally.machine.nvml_kept import EventSet, Meters
from gputally.machine.nvml_numbers import LAYOUTS, Answers, Numbers
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
RECORDS = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
SAMPLES = "nvmlDeviceGetProcessUtilization"
ODD = (ValueError, TypeError, OSError, struct.error, ctypes.ArgumentError)
"""What comes of an answer that the binding, or we, cannot make sense of."""
Calls = tuple[tuple[Any, ...], ...]
LISTS = {f"nvmlDeviceGet{kind}RunningProcesses": kind for kind in ("Compute", "Graphics", "MPSCompute")}


class LocalNvml:
    """Calls by name; GPUs and MIG instances by uuid."""

    def __init__(self, library: str | None = None) -> None:
        self._library = library
        self._handles: dict[str, Any] = {}
        self._ready: dict[tuple[Gpu, str], Callable[..., Any]] = {}
        """Calls that were made before, on the handle that they were made on."""
        self._own = _Own()
        self._batches: dict[Calls, Calls] = {}
        self._tables = Tables()
        self._meters = Meters(self._tables.function)
        self._events = EventSet()
        self._of_system: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlEventSetWait": self._events.wait,
            "nvmlEventSetFree": self._events.free,
        }
        self._of_handle: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetFieldValues": self._tables.field_values,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._instance,
            "nvmlGpuInstanceGetInfo": _gpu_instance,
        }
        self._of_uuid: dict[str, Callable[..., Any]] = {
            "nvmlDeviceRegisterEvents": self._events.register,
            "nvmlGpmMetricsGet": self._meters.whole,
            "nvmlGpmMigMetricsGet": self._meters.instance,
        }

    def __call__(self, gpu: Gpu, call: str, *args: Any) -> Any:
        """Answer one call, or raise Unreadable with NVML's return code."""
        try:
            return (self._ready.get((gpu, call)) or self._prepare(gpu, call))(*args)
        except pynvml.NVMLError as error:
            raise Unreadable(f"{call}: {error}", error.value) from None
        except pynvml.NVMLLibraryMismatchError as error:
            raise Unreadable(f"{call}: {error}", FUNCTION_NOT_FOUND) from None
        except ODD as error:
            raise Unreadable(f"{call}: {error}") from None

    def batch(
        self, gpu: str, calls: Sequence[tuple[Any, ...]], ends: Collection[int]
    ) -> Callable[[], Answers] | None:
        """Calls that tell numbers, to be made again and again; None if some tell more."""
        if not all(call[0] in LAYOUTS for call in calls):
            return None
        together = self._together(*calls)

        def ask() -> Answers:
            try:
                handle = self._handle(gpu)  # each time: the GPU may have been found anew
            except pynvml.NVMLError as error:
                raise Unreadable(f"nvmlDeviceGetHandleByUUID: {error}", error.value) from None
            return self._numbers(together)(handle, ends)

        return ask

    def _together(self, *calls: tuple[Any, ...]) -> Calls:
        """Calls that are made together: the very same, whoever asks for them."""
        return self._batches.get(calls) or self._batches.setdefault(calls, calls)

    def _numbers(self, calls: Calls) -> Numbers:
        """This thread's own; found by which they are, since hashing them takes as long as making some."""
        numbers = self._own.numbers.get(id(calls))
        if numbers is None:
            numbers = self._own.numbers[id(calls)] = Numbers(calls, self._tables.function)
        return numbers

    def _prepare(self, gpu: Gpu, call: str) -> Callable[..., Any]:
        """The function behind a call, with its GPU; looked up once, since each is called very often."""
        if isinstance(gpu, int):
            return partial(self._identify, gpu)
        if gpu is None:
            return self._of_system.get(call) or partial(_plainly, _bound(call))
        handle = self._handle(gpu)
        ask: Callable[..., Any]
        if call == SAMPLES:
            ask = self._tables.samples_of(handle)
        elif call in LISTS:
            ask = self._tables.list_of(LISTS[call], handle)
        elif call in self._of_uuid:
            ask = partial(self._of_uuid[call], gpu, handle)
        elif call in RECORDS:
            ask = partial(self._record, call, handle)
        elif call in self._of_handle:
            ask = partial(self._of_handle[call], handle)
        else:
            ask = partial(_plainly, _bound(call), handle)
        self._ready[gpu, call] = ask
        return ask

    def _record(self, call: str, handle: Any) -> Any:
        (answer,), _ = self._numbers(self._together((call,)))(handle, ())
        if isinstance(answer, Unreadable):
            raise answer
        return answer

    def _init(self) -> None:
        _load(self._library)
        pynvml.nvmlInit()
        self._tables.forget()
        self._own = _Own()

    def _shutdown(self) -> None:
        self._events.free()
        self._meters.free()
        self._handles.clear()
        self._ready.clear()
        pynvml.nvmlShutdown()

    def _identify(self, index: int) -> str:
        return self._keep(pynvml.nvmlDeviceGetHandleByIndex(index))

    def _instance(self, parent: Any, index: int) -> str:
        """The uuid of the MIG instance in a place of its GPU."""
        return self._keep(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index))

    def _keep(self, handle: Any) -> str:
        """The uuid behind a handle; what was kept under it may be of a time before a reset."""
        uuid = str(_plainly(_bound("nvmlDeviceGetUUID"), handle))
        known = self._handles.get(uuid)
        if known is None or _address(known) != _address(handle):
            self._handles[uuid] = handle
            for question in [question for question in list(self._ready) if question[0] == uuid]:
                self._ready.pop(question, None)
        return uuid

    def _handle(self, uuid: str) -> Any:
        handle = self._handles.get(uuid)
        if handle is None:
            handle = self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return handle


class _Own(threading.local):
    """What a thread has for itself."""

    def __init__(self) -> None:
        self.numbers: dict[int, Numbers] = {}
        """Calls that it made together, by their id."""


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


def _address(handle: Any) -> int | None:
    """All that NVML is told of a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _bound(call: str) -> Callable[..., Any]:
    """The binding's own function, without what it wraps around: that fails at bytes that are no text."""
    function = getattr(pynvml, call, None)
    if function is None:
        raise Unreadable(f"{call}: nvidia-ml-py does not know this call", FUNCTION_NOT_FOUND)
    plain: Callable[..., Any] = inspect.unwrap(function)
    return plain


def _gpu_instance(parent: Any, number: int) -> dict[str, Any]:
    """What a GPU tells of its GPU instance of that number, without handles."""
    info = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(parent, number))
    return {name: _plain(getattr(info, name)) for name in ("id", "profileId", "placement")}


def _plainly(function: Callable[..., Any], *args: Any) -> Any:
    return _plain(function(*args))


def _plain(answer: Any) -> Any:
    """The answer as numbers, text, lists and dicts."""
    if answer is None or isinstance(answer, int | float | str | dict):
        return answer
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if isinstance(answer, ctypes.Structure):
        read = object.__getattribute__  # the binding's own fails at bytes that are no text
        return {name: _plain(read(answer, name)) for name, *_ in answer._fields_}
    if isinstance(answer, list | tuple):
        return [_plain(item) for item in answer]
    return answer
