"""`pod-gpu-metrics-exporter`: NVIDIA's exporter of that name, on gputally."""

from __future__ import annotations

from typing import NoReturn

from gputally.compat.flags import Flag, Settings, System, nothing
from gputally.compat.launch import launch

STDERR = "log lines go to standard error and nowhere else"


def _verbosity(text: str) -> Settings:
    if not text.isascii() or not text.isdigit():
        raise ValueError("a whole number")
    return {"log.level": "debug" if int(text) else "info"}


SYSTEM = System(
    "pod-gpu-metrics-exporter",
    "pod-gpu-metrics-exporter",
    (
        Flag(("logtostderr",), "", "false", "Log to standard error instead of files", nothing),
        Flag(("alsologtostderr",), "", "false", "Log to standard error as well as files", nothing),
        Flag(("stderrthreshold",), "LEVEL", "", "Level of logs that go to stderr", nothing, note=STDERR),
        Flag(("v",), "LEVEL", "0", "Log level for V logs", _verbosity),
        Flag(("vmodule",), "LIST", "", "Log levels of single files", nothing, note=STDERR),
        Flag(("log_dir",), "DIR", "", "Write log files in this directory", nothing, note=STDERR),
        Flag(("log_backtrace_at",), "PLACE", "", "Log a stack trace at file:N", nothing, note=STDERR),
    ),
    {"dialect": "pod_gpu", "web.listen-address": ":9400", "web.telemetry-path": "/gpu/metrics"},
)


def main() -> NoReturn:
    """Run it."""
    launch(SYSTEM)
