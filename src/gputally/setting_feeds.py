"""Settings about what stands beside NVML and HTTP: other sources, virtual GPUs, the textfile."""

from __future__ import annotations

from gputally.parse import path, textfile_name
from gputally.setting import Setting

FEEDS = (
    Setting(
        "textfile.directory",
        "",
        path,
        "DIR",
        "node_exporter's textfile folder, to which the metrics are written too; ours alone to write in.",
    ),
    Setting("textfile.name", "gputally.prom", textfile_name, "NAME", "The file's name in that folder."),
)
