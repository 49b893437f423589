"""Every setting once: its flag, variable, default, meaning and how it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gputally.dialects import DIALECTS
from gputally.machine.simulation import Sampler
from gputally.parse import (
    absolute,
    address,
    count,
    dialects,
    gpus,
    machine,
    one_of,
    path,
    switch,
    url_path,
    watts,
    within,
)
from gputally.setting import Setting
from gputally.setting_dialects import SPEAKING, Speaking
from gputally.setting_feeds import FEEDS
from gputally.setting_names import NAMING
from gputally.setting_sources import TELLING


class Wrong(Exception):
    """A setting that cannot be used; the text names the setting, the value and what is allowed."""


@dataclass(frozen=True)
class Config(Speaking):
    """All settings, read and checked."""

    machine: str
    interval: float
    tick: float
    retention: float
    state_directory: str | None
    energy_idle_policy: str
    energy_idle_watts: float | None
    energy_intensity: str
    gpus: tuple[str, ...]
    nvml_library: str | None
    nvml_isolation: str
    nvml_deadline: float
    nvml_grace: float
    nvml_yield: float
    nvml_pcie_throughput: bool
    dcgm: str
    dcgm_library: str | None
    dcgm_deadline: float
    dcgm_window: float
    proc_root: str | None
    simulated_seed: int
    simulated_sampler: Sampler
    dialect: tuple[str, ...]
    docker_root: str
    hpc_job_mapping_dir: str | None
    process_metrics: bool
    process_metrics_min_age: float
    process_metrics_top: int
    kubernetes: str
    kubernetes_api: str
    kubernetes_token_file: str | None
    kubernetes_ca_file: str | None
    kubernetes_node: str
    kubernetes_logs: str
    kubernetes_pod_labels: tuple[str, ...]
    kubernetes_pod_annotations: tuple[str, ...]
    kubernetes_pause_label: str
    kubelet_root: str | None
    kubelet_podresources_socket: str | None
    kubelet_url: str
    kubelet_insecure: bool
    cri_socket: str
    docker_socket: str | None
    podman_socket: str | None
    smi: str
    smi_deadline: float
    upstream_url: str
    upstream_file: str | None
    upstream_pod_labels: tuple[str, str, str]
    vgpu_ratio: float | None
    vgpu_ratio_file: str | None
    textfile_directory: str | None
    textfile_name: str
    web_config_file: str | None
    web_enable_yield: bool
    web_listen_address: str
    web_telemetry_path: str
    log_level: str
    log_format: str

    @property
    def max_age(self) -> float:
        """How old a gauge may be before it is withdrawn."""
        return min(3 * self.interval, 60.0)


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
        within(0.1, 10),
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
    Setting(
        "state.directory",
        "",
        path,
        "DIR",
        "A folder of ours alone, in which totals survive a restart; empty to begin anew each time.",
    ),
    Setting(
        "energy.idle-policy",
        "none",
        one_of("none", "equal", "allocation"),
        "none|equal|allocation",
        "Who is charged for idle power: nobody, holders of a context alike, or those the GPU is granted to.",
    ),
    Setting(
        "energy.idle-watts",
        "",
        watts,
        "WATTS",
        "Idle power of every GPU; empty to learn it while no process holds a context.",
    ),
    Setting(
        "energy.intensity",
        "learned",
        one_of("learned", "off"),
        "learned|off",
        "Whether shares follow the learned cost of each workload's busy second, or busy time alone.",
    ),
    Setting("gpus", "", gpus, "LIST", "GPUs to read, by index or uuid with commas between; empty for all."),
    *TELLING,
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
        "docker.root",
        "/var/lib/docker",
        absolute,
        "DIR",
        "Where Docker keeps its files: container names are read there if it can be read.",
    ),
    Setting(
        "hpc-job-mapping-dir",
        "",
        path,
        "DIR",
        "Folder with a file per GPU that names the job on it, as a prolog writes for dcgm-exporter.",
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
    *NAMING,
    *FEEDS,
    *SPEAKING,
    Setting(
        "web.config.file",
        "",
        path,
        "PATH",
        "TLS and users of the web server, in the file that other exporters take; empty for neither.",
    ),
    Setting(
        "web.enable-yield",
        "off",
        switch,
        "on|off",
        "Let go of all GPUs at POST /-/yield (?for=5m for another time than --nvml.yield), and take them up"
        " again at POST /-/resume; both from the loopback address only.",
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
