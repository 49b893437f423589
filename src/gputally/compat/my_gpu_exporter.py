"""`my-gpu-exporter`: My GPU Exporter, on gputally."""

from __future__ import annotations

from typing import NoReturn

from gputally.compat.flags import Flag, Settings, System, bounded, go_duration, nothing, to, truth
from gputally.compat.launch import launch
from gputally.parse import duration

LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}
DAY = 86_400
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise ValueError("debug, info, warn or error")
    return LEVELS[text.lower()]


def _kubernetes(text: str) -> str:
    return "auto" if truth(text) else "off"


def _finish(settings: Settings) -> Settings:
    """Energy is read at least as often as processes are."""
    interval, tick = duration(settings["interval"]), duration(settings["tick"])
    return {**settings, "tick": bounded(min(tick, interval), 0.1, 10)}


SYSTEM = System(
    "My GPU Exporter",
    "my-gpu-exporter",
    (
        Flag(
            ("dcgm-update-frequency",),
            "DURATION",
            "1s",
            "How often energy and activity are sampled",
            to("tick", go_duration(0.1, 10)),
        ),
        Flag(
            ("process-scan-interval",),
            "DURATION",
            "10s",
            "How often to scan for GPU processes",
            to("interval", go_duration(1, 300)),
        ),
        Flag(
            ("kubernetes-enabled",),
            "",
            "true",
            "Enable Kubernetes pod mapping",
            to("kubernetes", _kubernetes),
        ),
        Flag(
            ("pod-resources-socket",),
            "PATH",
            SOCKET,
            "The kubelet's pod-resources socket",
            lambda text: {} if text == SOCKET else {"kubelet.podresources-socket": text},
        ),
        Flag(
            ("metric-retention",),
            "DURATION",
            "5m",
            "Retain metrics of processes that exited",
            to("retention", go_duration(0, DAY)),
        ),
        Flag(("metric-prefix",), "TEXT", "my_gpu_process", "Prefix of metric names", to("dialect.prefix")),
        Flag(("listen-address",), "HOST:PORT", ":9400", "HTTP server address", to("web.listen-address")),
        Flag(("metrics-path",), "PATH", "/metrics", "Path of the metrics", to("web.telemetry-path")),
        Flag(
            ("log-level",),
            "LEVEL",
            "info",
            "Log level: debug, info, warn, error",
            to("log.level", _level),
            "LOG_LEVEL",
        ),
        Flag(
            ("enable-energy-estimation",),
            "",
            "true",
            "Divide a GPU's energy between the processes on it",
            nothing,
            note="energy of a GPU is always divided between its processes: no counter tells them apart",
        ),
        Flag(
            ("gpu-idle-power",),
            "WATTS",
            "0",
            "Idle power that is charged to nobody",
            to("energy.idle-watts"),
        ),
    ),
    {"dialect": "my_gpu", "web.aliases": "/health=health"},
    finish=_finish,
)


def main() -> NoReturn:
    """Run it."""
    launch(SYSTEM)
