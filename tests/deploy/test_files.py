"""Everything else in deploy/: generated files are current, and each pleases the tool that reads it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gputally.config import SETTINGS
from tests.deploy.chart import DEPLOY, PROFILES, ROOT, documents, helm, plain_manifests, pod, rendered, tool
from tests.deploy.foreign_kinds import unknown_keys

AWAITED: set[str] = set()
"""Settings that the deployment knows before the program does; drop each from here when it comes."""
FOLDERS = sorted(path.parent for path in (DEPLOY / "manifests").glob("*/kustomization.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
by_name = pytest.mark.parametrize


def run(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """A tool's answer."""
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)


def test_generated_files_are_current() -> None:
    done = run(sys.executable, str(ROOT / "tools" / "deploy.py"), "--check")
    assert (done.returncode, done.stderr) == (0, "")


@by_name("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_builds(folder: Path) -> None:
    done = run(tool("kubectl", everywhere=False), "kustomize", str(folder))
    assert done.returncode == 0, done.stderr
    assert "kind: " in done.stdout


def test_every_flag_is_one_of_the_program() -> None:
    known = {setting.flag: setting for setting in SETTINGS}
    specs = [pod(rendered(profile)) for profile in PROFILES]
    for path in plain_manifests():
        specs += [
            thing["spec"]["template"]["spec"] for thing in documents(path) if thing.get("kind") == "DaemonSet"
        ]
    words = {word for spec in specs for one in spec["containers"] for word in one["args"][1:]}
    for word in words:
        flag, _, value = word.removeprefix("--").partition("=")
        assert flag in known or flag in AWAITED, word
        if flag in known and flag != "dialect":
            known[flag].read(value.replace("$(HOST_IP)", "10.0.0.7"))


@by_name("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit_and_finds_it_tight(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    copy = tmp_path / unit.name
    copy.write_text(text.replace("/opt/gputally/bin/gputally", sys.executable), encoding="utf-8")
    done = run(tool("systemd-analyze", everywhere=False), "verify", str(copy))
    assert (done.returncode, done.stderr) == (0, "")
    rated = run(
        tool("systemd-analyze", everywhere=False), "security", "--offline=true", "--threshold=25", str(copy)
    )
    assert rated.returncode == 0, rated.stdout[-200:]
    variables = re.findall(r"^Environment=(GPUTALLY_\w+)=", text, re.MULTILINE)
    assert set(variables) <= {setting.variable for setting in SETTINGS}


def test_hadolint_has_no_complaint() -> None:
    done = run(tool("hadolint"), str(ROOT / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_image_is_an_argument_with_a_tag_and_the_last_stage_is_empty() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON_IMAGE=\S+:[\w.-]+$", text, re.MULTILINE)
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases == ["${PYTHON_IMAGE}", "${PYTHON_IMAGE}", "scratch"]


def test_everything_that_the_image_is_built_from_gets_to_the_builder() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()
    }
    assert {"requirements/run.txt", "pyproject.toml", "README.md", "src"} <= copied
    assert {f"!{name}" for name in copied} - set(allowed) == {"!requirements", "!requirements/run.txt"}
    assert "!requirements/*.txt" in allowed
    assert all((ROOT / name).exists() for name in copied)


def test_compose_mounts_files_that_are_there() -> None:
    (compose,) = documents(ROOT / "compose.yaml")
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            later = source in ("./alerts", "./dashboards")
            assert source == "prometheus" or later or (ROOT / source).exists(), source


@by_name("path", ["manifests/prometheus/prometheus.yml", "compose/prometheus.yml"])
def test_prometheus_takes_the_settings(path: str, promtool: str, tmp_path: Path) -> None:
    (settings,) = documents(DEPLOY / path)
    settings.pop("rule_files", None)
    for job in settings["scrape_configs"]:
        assert job["honor_labels"] is True
        # Debian's promtool is built without Kubernetes.
        job.pop("kubernetes_sd_configs", None)
    copy = tmp_path / "prometheus.yml"
    copy.write_text(yaml.safe_dump(settings), encoding="utf-8")
    done = run(promtool, "check", "config", str(copy))
    assert done.returncode == 0, done.stderr


@by_name("name", ["workflow-template", "workflow-sidecar", "stress-test"])
def test_workflows_have_the_keys_of_workflows(name: str) -> None:
    (workflow,) = documents(DEPLOY / "argo" / f"{name}.yaml")
    assert unknown_keys(workflow) == []
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    assert workflow["spec"]["entrypoint"] in templates
    given = {entry["name"] for entry in workflow["spec"]["arguments"]["parameters"]}
    text = (DEPLOY / "argo" / f"{name}.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:inputs|workflow)\.parameters\.([\w-]+)", text)) <= given
    ours = r"(?:(?:inputs|workflow)\.parameters\.[\w-]+|workflow\.name)\}\}"
    assert re.findall(r"\{\{(?!" + ours + ")", text) == []
    for template in templates.values():
        if "script" in template:
            compile(template["script"]["source"], name, "exec")


def test_the_entry_of_an_app_of_apps_renders(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: apps\nversion: 1.0.0\n", encoding="utf-8")
    entry = (DEPLOY / "argo" / "app-of-apps-entry.yaml").read_text(encoding="utf-8")
    (tmp_path / "templates" / "gputally.yaml").write_text(entry, encoding="utf-8")
    values = {
        "spec": {
            "source": {"repoURL": "https://git.invalid/gputally.git", "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc"},
        },
        "gputally": {"image": {"repository": "gputally", "tag": "1"}, "values": "gke"},
    }
    words = [tool("helm"), "template", "apps", str(tmp_path), "--values", "-"]
    done = run(*words, text=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    application = yaml.safe_load(done.stdout)
    assert unknown_keys(application) == []
    for name in application["spec"]["source"]["helm"]["valueFiles"]:
        assert (DEPLOY / "helm" / "gputally" / name).resolve().exists()


@by_name("values", sorted((DEPLOY / "values").glob("*.yaml")), ids=lambda path: path.stem)
def test_argo_users_can_have_every_platform(values: Path) -> None:
    argo = str(DEPLOY / "argo" / "values.yaml")
    words = ["--values", str(values), "--values", argo, "--set-string", "image.repository=a,image.tag=1"]
    done = helm("template", {}, *words)
    assert done.returncode == 0, done.stderr
