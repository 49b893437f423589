"""Settings about what stands beside NVML and HTTP: other sources, virtual GPUs, the textfile."""

from __future__ import annotations

from gputally.parse import one_of, path, textfile_name, within
from gputally.setting import Setting

FEEDS = (
    Setting(
        "smi",
        "auto",
        one_of("auto", "off", "on"),
        "auto|off|on",
        "Ask nvidia-smi: auto only while the NVML library cannot be loaded, on in place of NVML.",
    ),
    Setting(
        "smi.deadline", "5s", within(0.5, 60), "DURATION", "How long nvidia-smi may take before it is killed."
    ),
    Setting(
        "textfile.directory",
        "",
        path,
        "DIR",
        "node_exporter's textfile folder, to which the metrics are written too; ours alone to write in.",
    ),
    Setting("textfile.name", "gputally.prom", textfile_name, "NAME", "The file's name in that folder."),
)
