"""Rows about what single processes took of memory bandwidth and codecs, where process series are wanted."""

from __future__ import annotations

from gputally.dialects.native.scopes import PROCESS
from gputally.metrics import GAUGE, Metric, Scope
from gputally.model import Activity
from gputally.tally import ProcessUse, Tally

IDLE = Activity(0, 0, 0.0, 0.0, 0.0, 0.0)


def _engines(tally: Tally) -> list[tuple[ProcessUse, Activity]]:
    """Processes with series of their own, and the newest samples of each; who is not in them was idle."""
    if not tally.processes:
        return []
    told = {g.device.uuid: g.device.activities for g in tally.gpus if g.fresh}
    did = {uuid: {a.pid: a for a in activities or ()} for uuid, activities in told.items()}
    return [
        (use, did[use.uuid].get(int(use.pid), IDLE))
        for use in tally.processes
        if use.pid and told.get(use.uuid) is not None
    ]


_SCOPE = Scope("engines", PROCESS.labels, _engines, lambda pair: PROCESS.identity(pair[0]), PROCESS.spell)


def _engine(name: str, attribute: str, help: str) -> Metric:
    return Metric(
        _SCOPE,
        f"gputally_process_{name}_utilization_ratio",
        GAUGE,
        help,
        lambda pair: getattr(pair[1], attribute),
        source="nvmlDeviceGetProcessUtilization",
        since="Maxwell",
        absent="in MIG mode, or the driver does not tell it",
    )


ENGINE_METRICS = (
    _engine("memory", "memory_ratio", "Part of the newest tick in which the process used GPU memory's bus."),
    _engine("encoder", "encoder_ratio", "Part of the newest tick in which the process used the encoder."),
    _engine("decoder", "decoder_ratio", "Part of the newest tick in which the process used the decoder."),
)
