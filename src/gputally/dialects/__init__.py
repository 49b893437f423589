"""Dialects: tables of metric rows over the Tally, each in the words of one world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gputally.dialects import dcgm, my_gpu, native, nvidia_smi, pod_gpu, purplepill, vgpu
from gputally.dialects.options import DEFAULTS as DEFAULTS
from gputally.dialects.options import Options as Options
from gputally.metrics import Metric


@dataclass(frozen=True)
class Dialect:
    """A table, made to measure, and what more than usual the ledger must keep for it."""

    metrics: Callable[[Options], tuple[Metric, ...]]
    stays: bool = False
    """Every process on a GPU, without bounds of age and number."""
    claims: bool = False
    """Who has each GPU, with all of its energy."""


DIALECTS: Mapping[str, Dialect] = {
    "native": Dialect(lambda options: native.metrics(options.pod_labels, options.pod_annotations)),
    "purplepill": Dialect(purplepill.metrics),
    "my_gpu": Dialect(my_gpu.metrics, stays=True),
    "pod_gpu": Dialect(pod_gpu.metrics, claims=True),
    "vgpu": Dialect(vgpu.metrics),
    "dcgm": Dialect(dcgm.metrics, claims=True),
    "nvidia_smi": Dialect(lambda _: nvidia_smi.METRICS),
}
