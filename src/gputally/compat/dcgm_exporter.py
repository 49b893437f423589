"""`dcgm-exporter`: NVIDIA's exporter of that name, on gputally."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NoReturn

from gputally.compat.flags import Flag, Settings, System, nothing, on_off, seconds, to, truth
from gputally.compat.launch import launch

COUNTERS = "/etc/dcgm-exporter/default-counters.csv"
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
NO_SWITCHES = "GPUs are told of, not switches and CPUs"
NO_WINDOWS = "gputally_gpu_xid_errors_total and _throttle_seconds_total count for good; use increase()"
NO_DUMPS = "`gputally record DIR` saves what a bug report needs"
NO_LABELS = "labels of pods are on gputally_workload_info, by --kubernetes.pod-labels, to be joined"


def _collectors(text: str) -> Settings:
    """The file; the one that an image has may be missing, and then its content is known."""
    return {} if text == COUNTERS and not os.path.exists(text) else {"dialect.counters": text}


def _kubernetes(text: str) -> Settings:
    return {"dialect.pods": on_off(text), "kubernetes": "auto" if truth(text) else "off"}


def _devices(text: str) -> Settings:
    """Which GPUs: f, g, i, or g with indexes and ranges of them."""
    match = re.fullmatch(r"[fgi]|g:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)", text)
    if match is None:
        raise ValueError("f, g, i, or g with GPUs such as g:0,2-3")
    chosen: list[str] = []
    for part in (match[1] or "").split(",") if match[1] else ():
        first, _, last = part.partition("-")
        chosen += map(str, range(int(first), min(int(last or first), int(first) + 255) + 1))
    return {"gpus": ",".join(dict.fromkeys(chosen))} if chosen else {}


def _host_engine(text: str) -> Settings:
    path = text.removeprefix("unix://")
    return {"dcgm": text if path == text else f"unix:{path}"} if text else {}


def _word(*words: str) -> Callable[[str], Settings]:
    def read(text: str) -> Settings:
        if text not in words:
            raise ValueError(" or ".join(words))
        return {}

    return read


def _config_map(text: str) -> Settings:
    if text != "none":
        raise ValueError("none; mount the ConfigMap as a file, and name that with --collectors")
    return {}


def _debug(text: str) -> Settings:
    return {"log.level": "debug"} if truth(text) else {}


def _no_hostname(text: str) -> Settings:
    return {"dialect.hostname": "-"} if truth(text) else {}


def _refused(why: str) -> Callable[[str], Settings]:
    def read(text: str) -> Settings:
        if truth(text):
            raise ValueError(f"false: {why}")
        return {}

    return read


def _finish(settings: Settings) -> Settings:
    """A job has rows of its own, as a pod has."""
    return {**settings, "dialect.pods": "on"} if settings.get("hpc-job-mapping-dir") else settings


def _switch(name: str, variable: str, help: str, settings: Callable[[str], Settings], note: str = "") -> Flag:
    return Flag((name,), "", "false", help, settings, variable, note)


_V = "DCGM_EXPORTER_"

SYSTEM = System(
    "NVIDIA's dcgm-exporter",
    "dcgm-exporter",
    (
        Flag(("collectors", "f"), "FILE", COUNTERS, "DCGM fields to collect", _collectors, _V + "COLLECTORS"),
        Flag(
            ("address", "a"), "HOST:PORT", ":9400", "Listen address", to("web.listen-address"), _V + "LISTEN"
        ),
        Flag(
            ("collect-interval", "c"),
            "MS",
            "30000",
            "Interval at which metrics are collected, in milliseconds",
            to("interval", seconds(1, 300, unit=0.001)),
            _V + "INTERVAL",
        ),
        Flag(
            ("kubernetes", "k"), "", "false", "Map metrics to Kubernetes pods", _kubernetes, _V + "KUBERNETES"
        ),
        Flag(
            ("devices", "d"), "LIST", "f", "GPUs to monitor: f, g, i or g:0,2-3", _devices, _V + "DEVICES_STR"
        ),
        Flag(
            ("remote-hostengine-info", "r"),
            "HOST:PORT",
            "",
            "A DCGM host engine to ask for profiling fields",
            _host_engine,
            "DCGM_REMOTE_HOSTENGINE_INFO",
        ),
        Flag(
            ("kubernetes-gpu-id-type",),
            "TYPE",
            "uid",
            "What device plugins name GPUs by, uid or device-name; both are understood",
            _word("uid", "device-name"),
            _V + "KUBERNETES_GPU_ID_TYPE",
        ),
        _switch(
            "kubernetes-enable-pod-uid",
            _V + "KUBERNETES_ENABLE_POD_UID",
            "A label pod_uid",
            to("dialect.pod-uid", on_off),
        ),
        _switch(
            "kubernetes-enable-pod-labels",
            _V + "KUBERNETES_ENABLE_POD_LABELS",
            "Labels of pods",
            nothing,
            NO_LABELS,
        ),
        Flag(
            ("kubernetes-pod-label-allowlist-regex",),
            "LIST",
            "",
            "Which labels of pods",
            nothing,
            _V + "KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
            NO_LABELS,
        ),
        _switch(
            "kubernetes-virtual-gpus",
            "KUBERNETES_VIRTUAL_GPUS",
            "Pods that share a GPU, each in a row; always so",
            nothing,
        ),
        _switch(
            "kubernetes-enable-dra",
            "KUBERNETES_ENABLE_DRA",
            "GPUs allocated by DRA",
            to("dialect.dra", on_off),
        ),
        Flag(
            ("pod-resources-kubelet-socket",),
            "PATH",
            SOCKET,
            "The kubelet's pod-resources socket",
            lambda text: {} if text == SOCKET else {"kubelet.podresources-socket": text},
            "DCGM_POD_RESOURCES_KUBELET_SOCKET",
        ),
        Flag(
            ("nvidia-resource-names",),
            "LIST",
            "",
            "Resource names of GPUs; all are understood",
            nothing,
            "NVIDIA_RESOURCE_NAMES",
        ),
        Flag(
            ("hpc-job-mapping-dir",),
            "DIR",
            "",
            "Files that name the job on each GPU",
            to("hpc-job-mapping-dir"),
            "DCGM_HPC_JOB_MAPPING_DIR",
        ),
        Flag(
            ("web-config-file",),
            "FILE",
            "",
            "TLS and users of the web server",
            to("web.config.file"),
            _V + "WEB_CONFIG_FILE",
        ),
        _switch(
            "web-systemd-socket",
            _V + "SYSTEMD_SOCKET",
            "Sockets by systemd",
            _refused("name an --address; sockets by systemd are not taken"),
        ),
        Flag(
            ("use-old-namespace", "o"),
            "",
            "false",
            "Labels of version 1",
            to("dialect.old-names", on_off),
            _V + "USE_OLD_NAMESPACE",
        ),
        Flag(("no-hostname", "n"), "", "false", "No label for the host", _no_hostname, _V + "NO_HOSTNAME"),
        Flag(
            ("replace-blanks-in-model-name", "rbmn"),
            "",
            "false",
            "Dashes for blanks in modelName",
            to("dialect.model-dashes", on_off),
            _V + "REPLACE_BLANKS_IN_MODEL_NAME",
        ),
        Flag(
            ("configmap-data", "m"),
            "NAMESPACE:NAME",
            "none",
            "A ConfigMap with the fields",
            _config_map,
            _V + "CONFIGMAP_DATA",
        ),
        _switch("debug", _V + "DEBUG", "Debug output", _debug),
        Flag(("log-format",), "FORMAT", "text", "text or json", to("log.format"), _V + "LOG_FORMAT"),
        Flag(
            ("switch-devices", "s"), "LIST", "f", "Switches", nothing, _V + "OTHER_DEVICES_STR", NO_SWITCHES
        ),
        Flag(("cpu-devices", "p"), "LIST", "f", "CPUs", nothing, _V + "CPU_DEVICES_STR", NO_SWITCHES),
        _switch("fake-gpus", _V + "USE_FAKE_GPUS", "Take GPUs that are fake; always so", nothing),
        *(
            Flag(names, shape, "", help, nothing, variable, note)
            for names, shape, help, variable, note in (
                (("xid-count-window-size", "x"), "MS", "Window", _V + "XID_COUNT_WINDOW_SIZE", NO_WINDOWS),
                (
                    ("clock-events-count-window-size",),
                    "MS",
                    "Window",
                    _V + "CLOCK_EVENTS_COUNT_WINDOW_SIZE",
                    NO_WINDOWS,
                ),
                (("enable-dcgm-log",), "", "DCGM's log", _V + "ENABLE_DCGM_LOG", "DCGM is not part of us"),
                (("dcgm-log-level",), "LEVEL", "Its level", _V + "DCGM_LOG_LEVEL", "DCGM is not part of us"),
                (("dump-enabled",), "", "Dumps", _V + "DUMP_ENABLED", NO_DUMPS),
                (("dump-directory",), "DIR", "Where to", _V + "DUMP_DIRECTORY", NO_DUMPS),
                (("dump-retention",), "HOURS", "How long", _V + "DUMP_RETENTION", NO_DUMPS),
                (("dump-compression",), "", "Compressed", _V + "DUMP_COMPRESSION", NO_DUMPS),
                (
                    ("disable-startup-validate",),
                    "",
                    "No checks",
                    "DISABLE_STARTUP_VALIDATE",
                    "there are none",
                ),
                (
                    ("enable-gpu-bind-unbind-watch",),
                    "",
                    "See GPUs come and go",
                    _V + "ENABLE_GPU_BIND_UNBIND_WATCH",
                    "GPUs that come and go are always seen",
                ),
                (
                    ("gpu-bind-unbind-poll-interval",),
                    "DURATION",
                    "How often",
                    _V + "GPU_BIND_UNBIND_POLL_INTERVAL",
                    "GPUs that come and go are always seen",
                ),
                (("enable-pprof",), "", "Go's profiles", _V + "ENABLE_PPROF", "this is not a Go program"),
            )
        ),
    ),
    {"dialect": "dcgm", "dcgm": "auto", "web.aliases": "/health=ready"},
    version=True,
    finish=_finish,
)


def main() -> NoReturn:
    """Run it."""
    launch(SYSTEM)
