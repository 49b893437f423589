"""The chart as Helm renders it, and the profiles of values under which it is tested."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "gputally"

Object = dict[str, Any]

IMAGE: Object = {"repository": "gputally", "tag": "set-me"}
HOST_DRIVER: Object = {"path": "/home/kubernetes/bin/nvidia"}

PROFILES: Mapping[str, Object] = {
    "default": {},
    "device-only": {"profile": "device-only", "gpu": {"access": "cdi"}, "namespace": {"create": True}},
    "every source of names": {
        "names": ["logs", "podsApi", "api", "kubelet", "cri"],
        "kubelet": {"insecure": True, "root": "/var/lib/k0s/kubelet"},
        "cri": {"socket": "/run/k0s/containerd.sock"},
        "networkPolicy": {"enabled": True},
        "monitor": {"kind": "podMonitor", "labels": {"release": "kps"}, "namespace": "monitoring"},
        "rules": {"enabled": True, "labels": {"release": "kps"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "GPU"}},
    },
    "API server, web config": {
        "names": "api",
        "image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "web": {"configSecret": "web"},
        "monitor": {
            "kind": "serviceMonitor",
            "metricRelabelings": [{"action": "drop", "sourceLabels": ["kind"], "regex": "host"}],
        },
    },
    "volume mounts, MIG, accounting": {
        "gpu": {"access": "volumeMounts"},
        "mig": {"monitor": True},
        "accounting": {"enable": True},
        "openshift": {"scc": True},
        "monitor": {
            "kind": "scrapeConfig",
            "relabelings": [{"action": "replace", "targetLabel": "cluster", "replacement": "a"}],
            "metricRelabelings": [{"action": "drop", "sourceLabels": ["kind"], "regex": "host"}],
        },
    },
    "privileged": {
        "gpu": {"access": "privileged", "hostDriver": HOST_DRIVER},
        "mig": {"monitor": True},
        "accounting": {"enable": True},
        "openshift": {"scc": True},
        "namespace": {"create": True},
    },
    "OpenShift": {
        "openshift": {"scc": True},
        "seLinuxOptions": {"type": "spc_t"},
        "networkPolicy": {"enabled": True},
    },
    "host driver": {
        "gpu": {"access": "hostDriver", "hostDriver": HOST_DRIVER, "resources": {"nvidia.com/gpu": "1"}},
        "monitor": {"kind": "annotations"},
        "hostPort": True,
        "nodeLabels": [],
        "pause": {"label": ""},
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [],
        "priorityClassName": "",
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "serviceAccount": {"create": False},
    },
    "textfile": {
        "textfile": {"directory": "/var/lib/node_exporter/textfile"},
        "state": {"directory": "/var/lib/gputally"},
        "settings": {"interval": "10s", "process-metrics": True, "process-metrics.top": 10},
        "fullnameOverride": "tally",
        "serviceAccount": {"name": "somebody", "annotations": {"a": "b"}},
    },
    "kubelet": {
        "names": "kubelet",
        "networkPolicy": {"enabled": True},
        "nameOverride": "gpus",
        "rules": {"enabled": True, "pricePerKwh": "0.25", "currency": "XXX", "co2GramsPerKwh": "400"},
    },
    "yield": {
        "names": "logs",
        "pause": {"by": "yield"},
        "settings": {"nvml.yield": "20m"},
        "networkPolicy": {"enabled": True},
    },
    "device-only, web config": {
        "profile": "device-only",
        "pause": {"label": "nvidia.com/gpu.deploy.dcgm-exporter", "by": "yield"},
        "gpu": {"runtimeClassName": ""},
        "web": {"configSecret": "web"},
        "monitor": {"kind": "scrapeConfig"},
        "openshift": {"scc": True},
    },
}


def tool(name: str, everywhere: bool = True) -> str:
    """Where a tool is; without it a test is skipped, or fails in CI if it must be there."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        if everywhere and os.environ.get("CI"):
            pytest.fail(f"{name} is missing")
        pytest.skip(f"{name} is missing")
    return found


def helm(command: str, values: Object, *more: str) -> subprocess.CompletedProcess[str]:
    """What Helm makes of the chart with these values."""
    words = [tool("helm"), command, *(["gputally"] if command == "template" else []), str(CHART)]
    words += ["--namespace", "gputally", "--values", "-", *more]
    return subprocess.run(words, input=yaml.safe_dump(values), capture_output=True, text=True, timeout=60)


def with_image(values: Object) -> Object:
    """The same values, with those that everybody has to set."""
    return {**values, "image": {**IMAGE, **values.get("image", {})}}


@cache
def rendered(profile: str) -> tuple[Object, ...]:
    """The objects of a profile."""
    done = helm("template", with_image(PROFILES[profile]))
    assert done.returncode == 0, done.stderr
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def one(objects: tuple[Object, ...], kind: str) -> Object:
    """The only object of its kind."""
    (found,) = (thing for thing in objects if thing["kind"] == kind)
    return found


def pod(objects: tuple[Object, ...]) -> Object:
    """The pod of the DaemonSet."""
    spec: Object = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def containers(spec: Object) -> Iterator[Object]:
    """Every container, those that run first included."""
    yield from spec.get("initContainers", [])
    yield from spec["containers"]


def plain_manifests() -> list[Path]:
    """Every file of plain manifests that is to be applied."""
    return sorted((DEPLOY / "manifests").glob("*/*.yaml"))


def documents(path: Path) -> list[Object]:
    """The objects in a file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
