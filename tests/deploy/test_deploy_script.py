"""deploy.sh: what it asks of the cluster, and what it says when something is missing; kubectl is a fake."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import DEPLOY, ROOT, tool
from tests.deploy.foreign_kinds import unknown_keys

SCRIPT = DEPLOY / "argo" / "deploy.sh"
NEEDED = ("--repo-url", "https://git.invalid/gputally.git", "--image", "registry.invalid:5000/gputally:1.2")
KUBECTL = """\
#!/bin/sh
echo "$*" >>"$KUBECTL_LOG"
case "$*" in
"${KUBECTL_FAILS:-nothing}"*) exit 1 ;;
apply*) cat >"$KUBECTL_LOG.applied" ;;
esac
"""


def deploy(tmp_path: Path, *words: str, fails: str = "nothing") -> tuple[int, str, str, list[str]]:
    """How it ends, what it says, and what kubectl was asked."""
    log = tmp_path / "asked"
    log.write_text("", encoding="utf-8")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL, encoding="utf-8")
    kubectl.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.defpath}",
        "KUBECTL_LOG": str(log),
        "KUBECTL_FAILS": fails,
    }
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT), *words], env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr, log.read_text(encoding="utf-8").splitlines()


def test_shellcheck_has_no_complaint() -> None:
    scripts = [str(SCRIPT), *map(str, (ROOT / "tools").glob("*.sh"))]
    done = subprocess.run([tool("shellcheck"), *scripts], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_dry_run_prints_the_application_and_asks_nothing(tmp_path: Path) -> None:
    code, output, errors, asked = deploy(tmp_path, *NEEDED, "--values", "gke", "--dry-run")
    assert (code, errors, asked) == (0, "", [])
    application = yaml.safe_load(output)
    assert unknown_keys(application) == []
    assert "@" not in output.replace("https://", "")
    source = application["spec"]["source"]
    assert source["repoURL"] == "https://git.invalid/gputally.git"
    assert [entry["value"] for entry in source["helm"]["parameters"]] == [
        "registry.invalid:5000/gputally",
        "1.2",
    ]
    assert source["helm"]["valueFiles"][0] == "../../values/gke.yaml"


def test_it_applies_and_waits_and_can_be_run_again(tmp_path: Path) -> None:
    first = deploy(tmp_path, *NEEDED)
    applied = (tmp_path / "asked.applied").read_text(encoding="utf-8")
    assert first[0] == 0, first[2]
    assert first == deploy(tmp_path, *NEEDED)
    assert (tmp_path / "asked.applied").read_text(encoding="utf-8") == applied
    assert [line.split()[0] for line in first[3]] == [
        "version",
        "get",
        "get",
        "auth",
        "apply",
        "wait",
        "wait",
    ]
    assert "gputally show" in first[1]


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("version", "cannot reach the cluster"),
        ("get crd", "install Argo CD first"),
        ("get namespace", "tell --argocd-namespace"),
        ("auth can-i", "you may not change Applications"),
        ("apply", "the Application was refused"),
        ("wait", "not Synced after 300 s"),
    ],
)
def test_what_fails_is_named(tmp_path: Path, fails: str, message: str) -> None:
    code, _, errors, asked = deploy(tmp_path, *NEEDED, fails=fails)
    assert code == 1
    assert message in errors
    assert fails in ("apply", "wait") or not [line for line in asked if line.startswith("apply")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--repo-url is missing"),
        (NEEDED[:2], "--image is missing"),
        ((*NEEDED, "--values", "nowhere"), "there is no deploy/values/nowhere.yaml; there are: attribution"),
        ((*NEEDED, "--values", "../gke"), "is not a name"),
        ((*NEEDED, "--revision", 'a"b'), "has a character that cannot be in it"),
        ((*NEEDED[:3], "gputally"), "has no tag"),
        ((*NEEDED[:3], "registry.invalid:5000/gputally"), "has no tag"),
        ((*NEEDED[:3], "gputally@sha256:0"), "has a digest"),
        ((*NEEDED, "--wait", "long"), "is not a number of seconds"),
        ((*NEEDED, "--wait"), "--wait needs a value"),
        ((*NEEDED, "--force"), "there is no option --force"),
    ],
)
def test_misuse_is_said_before_anything_is_asked(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    code, _, errors, asked = deploy(tmp_path, *words)
    assert (code, asked) == (2, [])
    assert message in errors
