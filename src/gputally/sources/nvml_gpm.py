"""The GPU's own performance meters (GPM, Hopper and newer): how much of each part was in use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from math import isfinite
from operator import truediv
from typing import Any

from gputally.model import Instance, Unreadable
from gputally.sources.nvml_ask import Asker
from gputally.sources.nvml_fields import Values

GRAPHICS = 1
PARTS = {
    GRAPHICS: "graphics",
    2: "sm",
    3: "sm_occupancy",
    5: "tensor",
    10: "dram",
    11: "fp64",
    12: "fp32",
    13: "fp16",
}
"""NVML's number of a meter -> what it meters."""
METERS = list(PARTS)
_ANSWERED = [*map(str, PARTS)]

SUPPORT = "nvmlGpmQueryDeviceSupport"
WHOLE, INSTANCE = "nvmlGpmMetricsGet", "nvmlGpmMigMetricsGet"
"""Calls of the machine, not of NVML, which takes two samples and divides; the machine keeps the older one."""


@dataclass
class Gpm:
    """Whether the GPU has meters, and what they say; only the GPU's lane touches it."""

    ask: Asker
    _there: bool | None = None
    _begun: bool = False

    def forget(self) -> None:
        """Another GPU, another driver or another layout."""
        self._there, self._begun = None, False

    def read(self, values: Values) -> None:
        """Add what the meters say since they were last asked, of the GPU or of each of its instances."""
        if self._there is None:
            self._there = bool(self._answer(SUPPORT).get("isSupportedDevice"))
        if not self._there:
            return
        instances = values.get("instances")
        told: Values
        if instances is None:
            told = {"activity_ratio": _ratios(self._answer(WHOLE, METERS))}
        else:
            told = {"instances": tuple(map(self._metered, instances))}
        if self._begun:  # else it may reach back to a time before this layout, and only sets the mark
            values |= told
        self._begun = True

    def _metered(self, instance: Instance) -> Instance:
        ratios = _ratios(self._answer(INSTANCE, instance.gpu_instance, [GRAPHICS]))
        return replace(instance, utilization_ratio=ratios.get(PARTS[GRAPHICS]))

    def _answer(self, call: str, *args: Any) -> dict[str, Any]:
        try:
            answer = self.ask.supported(self.ask.uuid, call, *args)
        except Unreadable:
            return {}
        return answer if isinstance(answer, dict) else {}


def _ratios(answer: dict[str, Any]) -> dict[str, float]:
    """Part -> ratio; a meter of an instance may read a little over the whole."""
    percents: list[Any] = [*map(answer.get, _ANSWERED)]
    good = {*map(type, percents)} == {float} and isfinite(sum(percents))
    if good and min(percents) >= 0 and max(percents) <= 100:
        return dict(zip(PARTS.values(), map(truediv, percents, repeat(100)), strict=True))
    return {
        part: value / 100 if value < 100 else 1.0
        for part, value in zip(PARTS.values(), percents, strict=True)
        if type(value) in (float, int) and value >= 0
    }
