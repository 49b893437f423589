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

    def __init__(self) -> None:
        self._older: dict[tuple[str, int | None], tuple[Any, float]] = {}
        self._spare: list[Any] = []
        self._requests = threading.local()

    def whole(self, uuid: str, handle: Any, metrics: Sequence[int]) -> dict[str, Any]:
        """Metric -> value over the time since this GPU was last asked."""
        take = pynvml.nvmlGpmSampleGet
        return self._since((uuid, None), lambda sample: take(handle, sample), metrics)

    def instance(self, uuid: str, handle: Any, gpu_instance: int, metrics: Sequence[int]) -> dict[str, Any]:
        """The same of one MIG instance."""
        take = pynvml.nvmlGpmMigSampleGet
        key = (uuid, gpu_instance)
        return self._since(key, lambda sample: take(handle, ctypes.c_uint(gpu_instance), sample), metrics)

    def free(self) -> None:
        """Give all samples back."""
        samples = [*self._spare, *(sample for sample, _ in self._older.values())]
        self._spare.clear()
        self._older.clear()
        for sample in samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)

    def _since(
        self, key: tuple[str, int | None], take: Callable[[Any], Any], metrics: Sequence[int]
    ) -> dict[str, Any]:
        sample = self._spare.pop() if self._spare else pynvml.nvmlGpmSampleAlloc()
        now = time.monotonic()
        older = self._older.get(key)
        try:
            take(sample)
        except pynvml.NVMLError:
            self._spare.append(sample)
            raise
        if older is not None and now - older[1] < APART:
            self._spare.append(sample)
            raise pynvml.NVMLError(NO_DATA)
        self._older[key] = (sample, now)
        if older is None:
            raise pynvml.NVMLError(NO_DATA)
        try:
            return self._compare(older[0], sample, metrics)
        finally:
            self._spare.append(older[0])

    def _compare(self, older: Any, newer: Any, metrics: Sequence[int]) -> dict[str, Any]:
        request, answers = self._request(tuple(metrics))
        request.sample1, request.sample2 = older, newer
        pynvml.nvmlGpmMetricsGet(request)
        told = _METRIC.iter_unpack(answers)
        return {str(metric): {"error": code} if code else value for metric, code, value in told}

    def _request(self, metrics: tuple[int, ...]) -> tuple[Any, memoryview]:
        """This thread's question for these metrics, and where in it the answer is written."""
        own: dict[tuple[int, ...], tuple[Any, memoryview]] = self._requests.__dict__.setdefault("own", {})
        if metrics not in own:
            request = pynvml.c_nvmlGpmMetricsGet_t()
            request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(metrics)
            for place, metric in enumerate(metrics):
                request.metrics[place].metricId = metric
            first = type(request).metrics.offset
            answers = memoryview(request).cast("B")[first : first + _METRIC.size * len(metrics)]
            own[metrics] = (request, answers)
        return own[metrics]


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
