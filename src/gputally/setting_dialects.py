"""Settings of dialects, and of what the systems they come from had besides metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gputally.dialects.dcgm.counters import LARGEST, Counter
from gputally.dialects.dcgm.counters import parse as parse_counters
from gputally.parse import path, switch
from gputally.setting import Setting

ALIASES = ("metrics", "health", "ready")


@dataclass(frozen=True)
class Speaking:
    """These settings, read and checked."""

    dialect_hostname: str
    dialect_counters: tuple[Counter, ...] | None
    dialect_pods: bool
    dialect_pod_uid: bool
    dialect_dra: bool
    dialect_old_names: bool
    dialect_model_dashes: bool
    dialect_prefix: str
    dialect_namespace_label: bool
    web_aliases: Mapping[str, str]
    metrics_file: str | None
    log_file: str | None


def counters(text: str) -> tuple[Counter, ...] | None:
    """The counters in a file, or nothing."""
    return parse_counters(_content(text, LARGEST)) if text else None


def prefix(text: str) -> str:
    """What metric names can begin with."""
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,99}", text):
        raise ValueError("letters, digits and _, such as my_gpu_process")
    return text


def aliases(text: str) -> dict[str, str]:
    """Paths and what they answer."""
    pairs = dict(part.strip().partition("=")[::2] for part in text.split(",") if part.strip())
    for name, what in pairs.items():
        if not re.fullmatch(r"/[A-Za-z0-9._~/-]{0,100}", name) or what not in ALIASES:
            raise ValueError("pairs such as /health=health,/=metrics")
    return pairs


def _content(name: str, most: int) -> str:
    try:
        with open(name, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ValueError(f"a file that can be read ({error.strerror})") from None
    if len(data) > most:
        raise ValueError(f"a file of at most {most} bytes")
    return data.decode("utf-8-sig", "replace")


SPEAKING = (
    Setting(
        "dialect.hostname",
        "",
        str,
        "NAME",
        "This node's name, where a dialect has a label for it; empty for $NODE_NAME or the system's own,"
        " - for none.",
    ),
    Setting(
        "dialect.counters",
        "",
        counters,
        "PATH",
        "Fields of the dcgm dialect: a file as dcgm-exporter's -f has it; empty for its default ones.",
    ),
    Setting(
        "dialect.pods",
        "on",
        switch,
        "on|off",
        "In the dcgm and pod_gpu dialects a row per pod on a GPU, or one row per GPU without pods.",
    ),
    Setting("dialect.pod-uid", "off", switch, "on|off", "A label pod_uid in the dcgm dialect."),
    Setting(
        "dialect.dra",
        "off",
        switch,
        "on|off",
        "Labels dra_* in the dcgm dialect, for the claim by which a pod has its GPU.",
    ),
    Setting(
        "dialect.old-names",
        "off",
        switch,
        "on|off",
        "Labels of dcgm-exporter 1.x in the dcgm dialect: uuid, pod_name, pod_namespace, container_name.",
    ),
    Setting(
        "dialect.model-dashes", "off", switch, "on|off", "Dashes for blanks in the dcgm dialect's modelName."
    ),
    Setting(
        "dialect.prefix", "my_gpu_process", prefix, "TEXT", "What the names of the my_gpu dialect begin with."
    ),
    Setting("dialect.namespace-label", "off", switch, "on|off", "A label namespace in the vgpu dialect."),
    Setting(
        "web.aliases",
        "",
        aliases,
        "LIST",
        "More paths and what they answer: metrics, health (OK) or ready (OK while there are metrics).",
    ),
    Setting(
        "metrics-file",
        "",
        path,
        "PATH",
        "A file that gets the metrics at each interval too; replaced whole, never written through a link.",
    ),
    Setting("log.file", "", path, "PATH", "A file that gets the log lines too, each appended."),
)
