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
    names: str
    """Whose names they are, in a few words."""
    stays: bool = False
    """Every process on a GPU, without bounds of age and number."""
    claims: bool = False
    """Who has each GPU, with all of its energy."""


DIALECTS: Mapping[str, Dialect] = {
    "native": Dialect(
        lambda options: native.metrics(options.pod_labels, options.pod_annotations), "gputally's own names"
    ),
    "purplepill": Dialect(purplepill.metrics, "the names of CM PurplePill"),
    "my_gpu": Dialect(my_gpu.metrics, "the names of My GPU Exporter", stays=True),
    "pod_gpu": Dialect(pod_gpu.metrics, "the names of pod-gpu-metrics-exporter", claims=True),
    "vgpu": Dialect(vgpu.metrics, "the names of k8s-vgpu-monitor"),
    "dcgm": Dialect(dcgm.metrics, "the names of dcgm-exporter", claims=True),
    "nvidia_smi": Dialect(lambda _: nvidia_smi.METRICS, "the names of the nvidia-smi sidecar"),
}
