"""Settings about NVML and DCGM, which tell of the GPUs."""

from __future__ import annotations

from gputally.parse import dcgm, one_of, path, switch, within
from gputally.setting import Setting

yield_time = within(1, 86_400)
"""How long GPUs may be let go of."""

TELLING = (
    Setting(
        "nvml.library", "", path, "PATH", "The NVML library; empty to look where drivers are usually found."
    ),
    Setting(
        "nvml.isolation",
        "off",
        one_of("off", "process"),
        "off|process",
        "Where the NVML library is loaded. off: here, and a crash of it ends us. process: in a process of its"
        " own, which is started again when it dies; costs its memory, and more time per call.",
    ),
    Setting(
        "nvml.deadline",
        "2s",
        within(0.1, 60),
        "DURATION",
        "How long a GPU may take to answer before it counts as hung.",
    ),
    Setting(
        "nvml.grace",
        "1m",
        within(0, 86_400),
        "DURATION",
        "How long to go on when only a restart can bring the GPUs back (the driver was replaced under its"
        " library, or our access was taken away) before ending with code 78; 0s to go on for ever.",
    ),
    Setting(
        "nvml.yield",
        "10m",
        yield_time,
        "DURATION",
        "How long all GPUs are let go of, so that they can be reset, at SIGUSR2 (a second one ends it), "
        "at POST /-/yield without a time, and when the node's label says paused.",
    ),
    Setting(
        "nvml.pcie-throughput",
        "off",
        switch,
        "on|off",
        "PCIe traffic of the moment too, which costs 40 ms per GPU and interval.",
    ),
    Setting(
        "dcgm",
        "off",
        dcgm,
        "off|auto|embedded|HOST:PORT|unix:PATH",
        "Where to ask DCGM for profiling fields, and with --process-metrics for its records of processes; "
        "auto: a host engine on 127.0.0.1:5555 if one answers; embedded: one of our own, which costs "
        "hundreds of MiB. While DCGM watches them, other profilers may find the counters taken.",
    ),
    Setting("dcgm.library", "", path, "PATH", "The DCGM library; empty for libdcgm.so.4 or libdcgm.so.3."),
    Setting(
        "dcgm.deadline",
        "2s",
        within(0.1, 60),
        "DURATION",
        "How long DCGM may take to answer before it counts as hung.",
    ),
    Setting(
        "dcgm.window",
        "24h",
        within(60, 30 * 86_400),
        "DURATION",
        "How long DCGM is to keep what its records of processes are made of; a process that lives longer "
        "has no record. With twenty processes the host engine needs at most some 12 MB per GPU for it.",
    ),
)
