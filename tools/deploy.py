"""Writes the chart's copies of rules and dashboards, and the plain manifests; --check finds stale ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "gputally"
NOTE = "# Written by `tools/deploy.py` from the chart and deploy/values/{name}.yaml; change those instead.\n"
IMAGE = ("--set-string", "image.repository=gputally", "--set-string", "image.tag=set-me")
"""What the user replaces; it is no image anywhere."""


class Broken(Exception):
    """Something that cannot be generated; the text says what and why."""


@dataclass(frozen=True)
class Preset:
    """A folder of plain manifests: its values file has the same name."""

    name: str
    release: str = "gputally"
    namespace: str = "gputally"
    own_namespace: bool = True
    """The Namespace is written too; not where it is an old system's and others live there."""


PRESETS = (
    Preset("attribution"),
    Preset("device-only"),
    Preset("openshift"),
    Preset("gke"),
    Preset("textfile"),
    Preset("cm-purplepill", "cm-purplepill", "monitoring", own_namespace=False),
    Preset("my-gpu-exporter", "my-gpu-exporter", "gpu-monitoring"),
    Preset("pod-gpu-metrics-exporter", "gpu-metrics-exporter", "default", own_namespace=False),
    Preset("vgpu-monitor", "vgpu-monitor", "default", own_namespace=False),
    Preset("dcgm-exporter", "dcgm-exporter", "monitoring", own_namespace=False),
)

KUSTOMIZATION = """\
# Name your image, then apply:
#   kustomize edit set image gputally=REPOSITORY:TAG
#   kubectl apply --server-side -k .
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [gputally.yaml]
"""

PROMETHEUS_KUSTOMIZATION = """\
# Written by `tools/deploy.py`.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: gputally
resources: [prometheus.yaml]
configMapGenerator:
  - name: prometheus-config
    files: [{files}]
"""


def generated() -> dict[Path, str]:
    """Every generated file and what it has to hold."""
    files = {**_copies("alerts", "rules", "yaml"), **_copies("dashboards", "dashboards", "json")}
    rules = sorted(path.name for path in files if path.parent.name == "rules")
    for preset in PRESETS:
        folder = DEPLOY / "manifests" / preset.name
        files[folder / "gputally.yaml"] = manifest(preset)
        files[folder / "kustomization.yaml"] = KUSTOMIZATION
    folder = DEPLOY / "manifests" / "prometheus"
    files[folder / "prometheus.yml"] = _prometheus(folder, rules)
    for name in rules:
        files[folder / name] = (ROOT / "alerts" / name).read_text(encoding="utf-8")
    files[DEPLOY / "systemd" / "cm-purplepill.service"] = _purplepill_unit()
    names = ", ".join(["prometheus.yml", *rules])
    files[folder / "kustomization.yaml"] = PROMETHEUS_KUSTOMIZATION.format(files=names)
    return files


def helm() -> str:
    """Where helm is: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        raise Broken("helm is missing: the development requirements have it for Linux on x86-64 only")
    return found


def manifest(preset: Preset) -> str:
    """The chart as plain manifests, without what only Helm understands."""
    values = DEPLOY / "values" / f"{preset.name}.yaml"
    command = [helm(), "template", preset.release, str(CHART), "--namespace", preset.namespace]
    command += ["--skip-tests", "--values", str(values), *IMAGE]
    command += ["--set", f"namespace.create={str(preset.own_namespace).lower()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise Broken(f"helm cannot render {values.name}: {done.stderr.strip()}")
    text = re.sub(r"(?m)^# Source: .*\n|^ *app\.kubernetes\.io/managed-by: Helm\n", "", done.stdout)
    return NOTE.format(name=preset.name) + text


def _copies(source: str, target: str, ending: str) -> dict[Path, str]:
    """Rules and dashboards for the chart; promtool's tests, which have no groups, stay behind."""
    files = {}
    for path in sorted((ROOT / source).glob(f"*.{ending}")):
        text = path.read_text(encoding="utf-8")
        if ending == "json" or "groups" in (yaml.safe_load(text) or {}):
            files[CHART / "files" / target / path.name] = text
    return files


def _prometheus(folder: Path, rules: list[str]) -> str:
    scrape = (folder / "scrape_configs.yaml").read_text(encoding="utf-8")
    head = "# Written by `tools/deploy.py` from scrape_configs.yaml.\nglobal: {evaluation_interval: 30s}\n"
    named = f"rule_files: [{', '.join(rules)}]\n" if rules else ""
    return head + named + "\n".join(scrape.splitlines()[1:]) + "\n"


def _purplepill_unit() -> str:
    """Our unit under the name, port, interval and metric names of CM PurplePill."""
    text = (DEPLOY / "systemd" / "gputally.service").read_text(encoding="utf-8")
    head = "# Written by `tools/deploy.py` from gputally.service, for those who had CM PurplePill.\n"
    settings = ("WEB_LISTEN_ADDRESS=:9531", "INTERVAL=15s", "DIALECT=native,purplepill")
    lines = "".join(f"Environment=GPUTALLY_{setting}\n" for setting in settings)
    text = text.replace("--now gputally", "--now cm-purplepill")
    return head + text.replace("EnvironmentFile=", f"{lines}EnvironmentFile=")


def _orphans(files: dict[Path, str]) -> list[Path]:
    """Files left from a rule, dashboard or preset that is gone."""
    places = [CHART / "files", DEPLOY / "manifests"]
    kept = {DEPLOY / "manifests" / "prometheus" / name for name in ("scrape_configs.yaml", "prometheus.yaml")}
    found = [path for place in places for path in place.rglob("*") if path.is_file()]
    return [path for path in found if path not in files and path not in kept and path.name != "README.md"]


def main() -> int:
    """Write or check every file."""
    try:
        files = generated()
    except Broken as error:
        print(f"tools/deploy.py: {error}", file=sys.stderr)
        return 2
    stale = [path for path, text in files.items() if _read(path) != text]
    orphans = _orphans(files)
    if sys.argv[1:] == ["--check"]:
        for path in [*stale, *orphans]:
            print(f"{path.relative_to(ROOT)} is not current; run `python tools/deploy.py`", file=sys.stderr)
        return int(bool(stale or orphans))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    for path in orphans:
        path.unlink()
    print(f"{len(stale)} files written, {len(orphans)} removed, {len(files) - len(stale)} were current")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
