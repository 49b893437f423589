"""`gputally explain`, as it is called."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gputally.collect import Collector
from gputally.model import Health, Namespaces, Pace
from gputally.owners.cgroup import parse
from gputally.views.explain import Trace, explain
from tests.owners.corpus import CASES, Case
from tests.owners.stage import HEX, Cards, Stage, awaited

MACHINES = Path(__file__).parent / "machines"


def gputally(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUTALLY_")}
    command = [sys.executable, "-m", "gputally", "explain", *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=environ, timeout=60, check=False
    )


@pytest.mark.parametrize("case", CASES[::16], ids=lambda case: str(case.id))
def test_a_saved_cgroup_is_told_as_the_corpus_expects(case: Case, tmp_path: Path) -> None:
    content, expect = case.content, case.expect
    (tmp_path / "saved").write_text(content)
    for result in (gputally("--cgroup", str(tmp_path / "saved")), gputally("--cgroup", "-", stdin=content)):
        assert result.returncode == 0
        assert json.loads(result.stdout) == expect


def test_bytes_that_are_no_text_are_an_identity_too(tmp_path: Path) -> None:
    (tmp_path / "saved").write_bytes(b"\xff\x00:\xfe" * 1000)
    assert json.loads(gputally("--cgroup", str(tmp_path / "saved")).stdout)["kind"] == "host"


def test_a_recorded_process_is_explained() -> None:
    result = gputally("101", "--machine", f"recorded:{MACHINES / 'two-gpus'}", "--log.level", "error")
    assert result.returncode == 0
    assert "holds 1024 MiB" in result.stdout
    assert '6. traced to kind="user" workload="uid-1000"' in result.stdout
    assert "\x1b" not in result.stdout


def test_a_pod_is_explained_with_who_named_it() -> None:
    shown = ("show", "--machine", "simulated", "--process-metrics", "on", "--process-metrics.min-age", "0s")
    metrics = subprocess.run(
        [sys.executable, "-m", "gputally", *shown], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    pid = re.findall(r'kind="pod".*pid="(\d+)"', metrics)[0]
    result = gputally(pid, "--machine", "simulated", "--cri.socket", "auto")
    assert result.returncode == 0
    assert '6. traced to kind="pod" namespace="' in result.stdout
    assert "asked pods_api: answers" in result.stdout
    assert (
        "asked cri at /run/containerd/containerd.sock, by the kubelet's command line: answers"
        in result.stdout
    )


@awaited
async def test_where_somebody_was_found_is_told() -> None:
    stage = Stage()
    stage.start(1, "0::/\n")
    trace = await _trace(stage, 1)
    party = Health("cri", up=True, about="owners", place="/run/a.sock, by /etc/kubelet\x1b.yaml")
    text = explain(replace(trace, snapshot=replace(trace.snapshot, health=(party,))))
    assert "asked cri at /run/a.sock, by /etc/kubelet\ufffd.yaml: answers" in text


def test_who_is_not_there_is_not_traced() -> None:
    result = gputally("999", "--machine", "simulated")
    assert result.returncode == 1
    assert "/proc/999: not there" in result.stdout
    assert "-> no such process here" in result.stdout


@pytest.mark.parametrize(
    "words", [(), ("x",), ("0",), ("-5",), ("9" * 5000,), ("1", "--cgroup", "-"), ("--cgroup", "/nope")]
)
def test_wrong_usage_is_one_sentence(words: tuple[str, ...]) -> None:
    result = gputally(*words)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1


@awaited
async def test_what_to_change_is_told() -> None:
    stage = Stage(Namespaces(1, 7, "0::/\n", "0::/\n"))
    stage.start(1, f"0::/docker/{HEX}\n")
    wrong = await _trace(stage, 1)
    assert not wrong.is_traced
    assert "hostPID: true" in explain(wrong)
    stage = Stage()
    stage.hidden.add(2)
    assert "hidepid" in explain(await _trace(stage, 2))
    stage.start(3, f"0::/docker/{HEX}\n", comm="\x1b[2J\u202e")
    text = explain(await _trace(stage, 3))
    assert "--docker.root" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    stage.start(4, f"2:a:/docker/{HEX}\n1:b:/docker/{'c' * 64}\n")
    conflict = await _trace(stage, 4)
    assert not conflict.is_traced
    assert "contradict" in explain(conflict)


async def _trace(stage: Stage, pid: int) -> Trace:
    collector = Collector(stage, (Cards(pid),))
    snapshot = await collector.collect(Pace.INTERVAL)
    process = stage.process(pid)
    identity = None if process is None else parse(process.cgroup)
    steps = [] if process is None else list(collector.steps(process))
    return Trace(pid, snapshot, process, stage.exists(pid), identity, steps)
