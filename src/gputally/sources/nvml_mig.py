"""MIG instances of one GPU: found anew at every interval, by uuid, since numbers are given again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from gputally.model import Instance, Unreadable
from gputally.sources.nvml_ask import Asker
from gputally.sources.nvml_codes import Meaning, meaning
from gputally.sources.nvml_fields import MEMORY, Values

BY_INDEX = "nvmlDeviceGetMigDeviceHandleByIndex"
MOST_PLACES = 64
"""GPUs have seven; no answer of a driver makes us ask for more than this."""


@dataclass
class Mig:
    """What stays of an instance while it lives; only the GPU's lane touches it."""

    ask: Asker
    _known: dict[str, Instance] = field(default_factory=dict)

    def forget(self) -> None:
        """Another GPU, or another driver."""
        self._known.clear()

    def read(self, values: Values) -> None:
        """Add instances and slices; none where the GPU is not in MIG mode or cannot be."""
        if not values.get("mode_enabled", {}).get("mig"):
            self._known.clear()
            return
        slices = self._try(self.ask.uuid, "nvmlDeviceGetMaxMigDeviceCount")
        uuids = [self._at(index) for index in range(min(slices or 0, MOST_PLACES))]
        found = {uuid: self._known.get(uuid) or self._describe(uuid) for uuid in uuids if uuid}
        self._known = {uuid: instance for uuid, instance in found.items() if instance is not None}
        values |= {"instances": tuple(map(self._now, self._known.values())), "slices": slices}

    def _at(self, index: int) -> str | None:
        try:
            return str(self.ask.ask(self.ask.uuid, BY_INDEX, index))
        except Unreadable:
            return None  # an empty place, or one that our rights do not show

    def _describe(self, uuid: str) -> Instance | None:
        """An instance met for the first time; None if it went while it was asked."""
        part = self._try(uuid, "nvmlDeviceGetGpuInstanceId")
        compute = self._try(uuid, "nvmlDeviceGetComputeInstanceId")
        if part is None or compute is None:
            return None
        name = str(self._try(uuid, "nvmlDeviceGetName") or "")
        attributes = self._try(uuid, "nvmlDeviceGetAttributes_v2") or {}
        placed = self._try(self.ask.uuid, "nvmlGpuInstanceGetInfo", part) or {}
        return Instance(
            uuid,
            part,
            compute,
            profile=name.partition(" MIG ")[2].strip() or None,
            profile_id=placed.get("profileId"),
            placement_start=placed.get("placement", {}).get("start"),
            slices=attributes.get("computeInstanceSliceCount"),
        )

    def _now(self, instance: Instance) -> Instance:
        memory: Values = {}
        for call in MEMORY.calls:
            try:
                MEMORY.put(memory, self.ask.supported(instance.uuid, *call))
                return replace(instance, **memory)
            except Unreadable as error:
                if meaning(error.code) is not Meaning.ABSENT:
                    break
        return instance

    def _try(self, uuid: str, call: str, *args: Any) -> Any:
        try:
            return self.ask.supported(uuid, call, *args)
        except Unreadable:
            return None
