"""Every setting once: its flag, variable, default, meaning and how it is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gputally.dialects import DIALECTS
from gputally.machine.simulation.samplers import Sampler
from gputally.outputs.http import parse_address

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Wrong(Exception):
    """A setting that cannot be used; the text names the setting, the value and what is allowed."""


def duration(text: str) -> float:
    """Seconds of a duration such as 5s, 500ms or 1m30s."""
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h|d))+", text):
        raise ValueError("a duration such as 500ms, 5s or 1m30s")
    return sum(float(n) * UNITS[unit] for n, _, unit in re.findall(r"(\d+(\.\d+)?)(ms|s|m|h|d)", text))


def within(low: float, high: float) -> Callable[[str], float]:
    """A duration between two bounds, in seconds."""

    def read(text: str) -> float:
        seconds = duration(text)
        if not low <= seconds <= high:
            raise ValueError(f"a duration from {low:g}s to {high:g}s")
        return seconds

    return read


def switch(text: str) -> bool:
    """Yes or no."""
    words = {
        "on": True,
        "true": True,
        "yes": True,
        "1": True,
        "off": False,
        "false": False,
        "no": False,
        "0": False,
    }
    if text.lower() not in words:
        raise ValueError("on or off")
    return words[text.lower()]


def one_of(*words: str) -> Callable[[str], str]:
    """One word of a few."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words) if len(words) == 2 else ", ".join(words))
        return text

    return read


def count(low: int, high: int) -> Callable[[str], int]:
    """A whole number between two bounds."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return read


def machine(text: str) -> str:
    """Which machine answers."""
    kind, colon, folder = text.partition(":")
    if text in ("local", "simulated") or (kind == "recorded" and colon and folder):
        return text
    raise ValueError("local, simulated or recorded:DIR")


def gpus(text: str) -> tuple[str, ...]:
    """GPUs by index or uuid."""
    chosen = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in chosen:
        if not re.fullmatch(r"\d{1,4}|GPU-[0-9a-fA-F-]{36}", part):
            raise ValueError(
                "indexes and uuids with commas between, such as 0,3 or GPU-1f2e…, or nothing for all"
            )
    return chosen


def dialects(text: str) -> tuple[str, ...]:
    """Names of dialects, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(name in DIALECTS for name in names):
        raise ValueError(f"one or more of {', '.join(DIALECTS)}, with commas between")
    return names


def url_path(text: str) -> str:
    """An absolute path in a URL."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text.startswith("/-/"):
        raise ValueError("a path such as /metrics, not one of the server's own")
    return text


def address(text: str) -> str:
    """Where to listen."""
    try:
        parse_address(text)
    except ValueError:
        raise ValueError("HOST:PORT, :PORT or [IPV6]:PORT with a port from 0 to 65535") from None
    return text


def path(text: str) -> str | None:
    """A path, or nothing."""
    return text or None


@dataclass(frozen=True)
class Config:
    """All settings, read and checked."""

    machine: str
    interval: float
    tick: float
    retention: float
    gpus: tuple[str, ...]
    nvml_library: str | None
    nvml_deadline: float
    proc_root: str | None
    simulated_seed: int
    simulated_sampler: Sampler
    dialect: tuple[str, ...]
    process_metrics: bool
    process_metrics_min_age: float
    process_metrics_top: int
    web_listen_address: str
    web_telemetry_path: str
    log_level: str
    log_format: str

    @property
    def max_age(self) -> float:
        """How old a gauge may be before it is withdrawn."""
        return min(3 * self.interval, 60.0)


@dataclass(frozen=True)
class Setting:
    """One setting."""

    flag: str
    default: str
    read: Callable[[str], Any]
    shape: str
    help: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "GPUTALLY_" + re.sub("[.-]", "_", self.flag).upper()

    @property
    def name(self) -> str:
        """Its attribute of Config."""
        return re.sub("[.-]", "_", self.flag)


SETTINGS = (
    Setting(
        "machine",
        "local",
        machine,
        "local|simulated|recorded:DIR",
        "Which machine answers: this one, a simulated GPU node, or a folder made by `gputally record`.",
    ),
    Setting("interval", "5s", within(1, 300), "DURATION", "How often everything is read and published."),
    Setting(
        "tick",
        "1s",
        within(0.1, 60),
        "DURATION",
        "How often energy and activity are read; at most the interval.",
    ),
    Setting(
        "retention",
        "5m",
        within(0, 86_400),
        "DURATION",
        "How long the totals of a workload that ended are still shown.",
    ),
    Setting("gpus", "", gpus, "LIST", "GPUs to read, by index or uuid with commas between; empty for all."),
    Setting(
        "nvml.library", "", path, "PATH", "The NVML library; empty to look where drivers are usually found."
    ),
    Setting(
        "nvml.deadline",
        "2s",
        within(0.1, 60),
        "DURATION",
        "How long a GPU may take to answer before it counts as hung.",
    ),
    Setting(
        "proc.root",
        "",
        path,
        "DIR",
        "Another folder in place of /proc; for tests only, since its processes cannot be watched safely.",
    ),
    Setting(
        "simulated.seed",
        "1",
        count(0, 2**31),
        "N",
        "Seed of the simulated machine: the same seed, the same node.",
    ),
    Setting(
        "simulated.sampler",
        "fraction",
        one_of("fraction", "one-owner"),
        "fraction|one-owner",
        "How the simulated driver samples activity: true shares, or each sample wholly to one process.",
    ),
    Setting(
        "dialect",
        "native",
        dialects,
        "LIST",
        f"Metric names on the telemetry path, with commas between: {', '.join(DIALECTS)}.",
    ),
    Setting(
        "process-metrics",
        "off",
        switch,
        "on|off",
        'Series per process too: bounded by age and number, the rest together as process="other".',
    ),
    Setting(
        "process-metrics.min-age",
        "1m",
        within(0, 86_400),
        "DURATION",
        "Age from which a process gets series of its own.",
    ),
    Setting(
        "process-metrics.top",
        "20",
        count(1, 500),
        "N",
        "How many processes of a GPU get series of their own, those with most memory first.",
    ),
    Setting("web.listen-address", ":10400", address, "HOST:PORT", "Where to listen for scrapes."),
    Setting("web.telemetry-path", "/metrics", url_path, "PATH", "Path of the metrics."),
    Setting(
        "log.level",
        "info",
        one_of("debug", "info", "warning", "error"),
        "debug|info|warning|error",
        "What is logged, to standard error.",
    ),
    Setting("log.format", "text", one_of("text", "json"), "text|json", "How log lines are written."),
)


def configure(flags: Mapping[str, str | None], environ: Mapping[str, str] | None = None) -> Config:
    """Settings from flags, then variables, then defaults; raises Wrong at the first that cannot be used."""
    environ = os.environ if environ is None else environ
    known = {field.name for field in fields(Config)}
    values = {s.name: _value(s, flags.get(s.flag), environ.get(s.variable)) for s in SETTINGS}
    assert values.keys() == known
    config = Config(**values)
    if config.tick > config.interval:
        raise Wrong(
            f"--tick {config.tick:g}s is longer than --interval {config.interval:g}s; it may be at most that"
        )
    return config


def _value(setting: Setting, flag: str | None, variable: str | None) -> Any:
    name, text = f"--{setting.flag}", flag
    if text is None and variable is not None:
        name, text = setting.variable, variable
    if text is None:
        text = setting.default
    try:
        return setting.read(text)
    except ValueError as error:
        raise Wrong(f"{name} {text!r} cannot be used: it must be {error}") from None


def unknown_variables(environ: Mapping[str, str]) -> Sequence[str]:
    """Variables that look like ours and are none; most likely misspelt."""
    ours = {setting.variable for setting in SETTINGS}
    return sorted(name for name in environ if name.startswith("GPUTALLY_") and name not in ours)
