"""What NVML wants kept between two calls: samples of the GPU's meters, and the set of events."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pynvml

NO_DATA = 21
TIMEOUT = 10
APART = 0.1
"""Seconds that two samples must lie apart."""
MOST_EVENTS = 64
XID = 0x8
_METRIC = struct.Struct("=Iid24x")
"""Metric, return code, value; three texts about it."""


class Meters:
    """The older sample of each GPU and instance; each is asked by one thread at a time."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find
        self._older: dict[tuple[str, int | None], tuple[Any, float]] = {}
        self._spare: list[Any] = []
        self._own = _Own()

    def whole(self, uuid: str, handle: Any, metrics: Sequence[int]) -> dict[str, Any]:
        """Metric -> value over the time since this GPU was last asked."""
        return self._since((uuid, None), "nvmlGpmSampleGet", (handle,), metrics)

    def instance(self, uuid: str, handle: Any, gpu_instance: int, metrics: Sequence[int]) -> dict[str, Any]:
        """The same of one MIG instance."""
        args = (handle, ctypes.c_uint(gpu_instance))
        return self._since((uuid, gpu_instance), "nvmlGpmMigSampleGet", args, metrics)

    def free(self) -> None:
        """Give all samples back."""
        samples = [*self._spare, *(sample for sample, _ in self._older.values())]
        self._spare.clear()
        self._older.clear()
        for sample in samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)

    def _since(
        self, key: tuple[str, int | None], take: str, args: tuple[Any, ...], metrics: Sequence[int]
    ) -> dict[str, Any]:
        ask = self._find(take)
        sample = self._spare.pop() if self._spare else pynvml.nvmlGpmSampleAlloc()
        now, older = time.monotonic(), self._older.get(key)
        code = ask(*args, sample)
        if not code and older is not None and now - older[1] < APART:
            code = NO_DATA
        if code:
            self._spare.append(sample)
            raise pynvml.NVMLError(code)
        self._older[key] = (sample, now)
        if older is None:
            raise pynvml.NVMLError(NO_DATA)
        self._spare.append(older[0])
        return self._compare(older[0], sample, metrics)

    def _compare(self, older: Any, newer: Any, metrics: Sequence[int]) -> dict[str, Any]:
        asked = self._own.comparison(tuple(metrics))
        asked.request.sample1, asked.request.sample2 = older, newer
        if code := self._find("nvmlGpmMetricsGet")(asked.at):
            raise pynvml.NVMLError(code)
        _, codes, values = zip(*_METRIC.iter_unpack(asked.answers), strict=True)
        if not any(codes):
            return dict(zip(asked.names, values, strict=True))
        told = zip(asked.names, codes, values, strict=True)
        return {name: {"error": code} if code else value for name, code, value in told}


class _Own(threading.local):
    """What a thread has for itself."""

    def __init__(self) -> None:
        self._comparisons: dict[tuple[int, ...], _Comparison] = {}

    def comparison(self, metrics: tuple[int, ...]) -> _Comparison:
        """The one for these metrics."""
        known = self._comparisons.get(metrics)
        if known is None:
            known = self._comparisons[metrics] = _Comparison(metrics)
        return known


class _Comparison:
    """A question for what happened between two samples, and where in it the answer is written."""

    def __init__(self, metrics: Sequence[int]) -> None:
        self.names = [str(metric) for metric in metrics]
        self.request = pynvml.c_nvmlGpmMetricsGet_t()
        self.request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self.request.numMetrics = len(metrics)
        for place, metric in enumerate(metrics):
            self.request.metrics[place].metricId = metric
        self.at = ctypes.byref(self.request)
        first = type(self.request).metrics.offset
        self.answers = memoryview(self.request).cast("B")[first : first + _METRIC.size * len(metrics)]


class EventSet:
    """One set for all GPUs: they register from their own threads, and one thread waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: Any = None
        self._uuids: dict[int | None, str] = {}

    def register(self, uuid: str, handle: Any) -> None:
        """Have Xids of this GPU told."""
        with self._lock:
            if self._set is None:
                self._set = pynvml.nvmlEventSetCreate()
            events = self._set
            self._uuids[ctypes.cast(handle, ctypes.c_void_p).value] = uuid
        pynvml.nvmlDeviceRegisterEvents(handle, XID, events)

    def wait(self, milliseconds: int) -> list[list[Any]]:
        """Uuid, Xid, GPU instance and compute instance of what happened; waits so long for the first."""
        events, told = self._set, list[list[Any]]()
        while events is not None and len(told) < MOST_EVENTS:
            try:
                event = pynvml.nvmlEventSetWait_v2(events, 0 if told else milliseconds)
            except pynvml.NVMLError as error:
                if error.value == TIMEOUT or told:
                    break
                raise
            uuid = self._uuids.get(ctypes.cast(event.device, ctypes.c_void_p).value)
            if uuid is not None and event.eventType == XID:
                told.append([uuid, event.eventData, event.gpuInstanceId, event.computeInstanceId])
        return told

    def free(self) -> None:
        """Give the set back; the next to register begins another."""
        with self._lock:
            events, self._set = self._set, None
            self._uuids.clear()
        if events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)
