"""`vgpu_monitor`: k8s-vgpu-monitor, on gputally, with its roadmap's flags."""

from __future__ import annotations

from typing import NoReturn

from gputally.compat.flags import Flag, Settings, System, on_off, port, seconds, to
from gputally.compat.launch import launch
from gputally.model import Unreadable
from gputally.sources.ratio import RatioFile


def _allocation(text: str) -> Settings:
    """The file, which must be there and hold a ratio before anything starts."""
    try:
        RatioFile(text).check()
    except Unreadable as error:
        raise ValueError(f"a file with nothing but a ratio, such as 2 or 2.5 ({error})") from None
    return {"vgpu.ratio-file": text}


SYSTEM = System(
    "k8s-vgpu-monitor",
    "vgpu_monitor",
    (
        Flag(
            ("port",),
            "PORT",
            "8080",
            "Port of the metrics",
            to("web.listen-address", port),
            "VGPU_MONITOR_PORT",
        ),
        Flag(
            ("interval",),
            "SECONDS",
            "5",
            "How often everything is read",
            to("interval", seconds(1, 300)),
            "VGPU_MONITOR_INTERVAL",
        ),
        Flag(
            ("gpu-allocation",),
            "FILE",
            "gpu_allocation.txt",
            "File with the virtualization ratio, a number alone",
            _allocation,
            "VGPU_MONITOR_GPU_ALLOCATION",
        ),
        Flag(
            ("namespace-label",),
            "",
            "false",
            "A label namespace on every metric",
            to("dialect.namespace-label", on_off),
            "VGPU_MONITOR_NAMESPACE_LABEL",
        ),
        Flag(
            ("node-name",), "NAME", "", "This node in Kubernetes", to("kubernetes.node"), "CURRENT_NODE_NAME"
        ),
    ),
    {"dialect": "vgpu"},
)


def main() -> NoReturn:
    """Run it."""
    launch(SYSTEM)
