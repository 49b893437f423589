"""Settings about what stands beside NVML and HTTP: other sources, virtual GPUs, the textfile."""

from __future__ import annotations

from gputally.parse import one_of, path, pod_labels, ratio, textfile_name, url, within
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
        "upstream.url",
        "",
        url,
        "URL",
        "Another exporter on this node, such as http://127.0.0.1:9400/metrics, to show with pod labels.",
    ),
    Setting(
        "upstream.file",
        "",
        path,
        "PATH",
        "The same from a file, such as /run/prometheus/dcgm.prom; not shown once it is 3 intervals old.",
    ),
    Setting(
        "upstream.pod-labels",
        "pod,namespace,container",
        pod_labels,
        "LIST",
        "What the three labels are called that are added to its series.",
    ),
    Setting(
        "vgpu.ratio",
        "",
        ratio,
        "N",
        "How many virtual GPUs one GPU is divided into, such as 4 or 2.5: for memory limits.",
    ),
    Setting(
        "vgpu.ratio-file", "", path, "PATH", "A file that holds the ratio; a change in it counts at once."
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
