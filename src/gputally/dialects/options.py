"""What a dialect can be told."""

from __future__ import annotations

from dataclasses import dataclass

from gputally.dialects.dcgm.counters import Counter


@dataclass(frozen=True)
class Options:
    """Settings of all dialects; each looks at its own."""

    hostname: str = ""
    """The node, where a dialect has a label for it; empty for none."""
    pod_labels: tuple[str, ...] = ()
    pod_annotations: tuple[str, ...] = ()
    counters: tuple[Counter, ...] | None = None
    """dcgm: fields to show, as dcgm-exporter's CSV file lists them; None for its default."""
    pods: bool = True
    """dcgm, pod_gpu: rows per pod, or per GPU alone."""
    pod_uid: bool = False
    dra: bool = False
    """dcgm: labels for the claim by which a pod has its GPU."""
    jobs: bool = False
    """dcgm: a label for the batch job."""
    old_names: bool = False
    """dcgm: labels of dcgm-exporter 1.x."""
    dashes: bool = False
    """dcgm: no blanks in model names."""
    prefix: str = "my_gpu_process"
    """my_gpu: what metric names begin with."""
    ratio: float = 1.0
    """vgpu: how many virtual GPUs each GPU is divided into."""
    namespace_label: bool = False
    """vgpu: pods are told apart by namespace too."""


DEFAULTS = Options()
