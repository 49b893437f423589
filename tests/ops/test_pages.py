"""What the pages for operators claim."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gputally.config import SETTINGS
from gputally.dialects.native import METRICS
from gputally.owners.runtime_socket import FLAGS
from gputally.verify_options import VERIFY_OPTIONS
from tests.daemon import GPUTALLY, environment
from tests.ops.rules import ROOT

OPERATIONS = (ROOT / "docs/OPERATIONS.md").read_text()
HARDWARE = (ROOT / "docs/HARDWARE.md").read_text()
SECURITY = (ROOT / "docs/SECURITY.md").read_text()
ELSEWHERE = {"version", "now", "kubelet-arg", *FLAGS}
"""Flags of gputally without a command, of systemctl and of kubelets."""
ARRIVES: set[str] = set()


def test_a_node_is_about_as_big_as_the_page_says() -> None:
    told = int(re.search(r"is ([\d,]+) series", OPERATIONS)[1].replace(",", ""))  # type: ignore[index]
    bound = int(re.search(r"Plan for \*\*([\d,]+) series", OPERATIONS)[1].replace(",", ""))  # type: ignore[index]
    command = [*GPUTALLY, "show", "--machine", "simulated"]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60).stdout
    measured = sum(not line.startswith("#") for line in shown.splitlines())
    assert abs(measured - told) <= 0.1 * told, f"measured {measured}: mend Sizing in docs/OPERATIONS.md"
    assert measured <= bound


def test_every_setting_that_is_named_is_there() -> None:
    named = set(re.findall(r"--([a-z][a-z0-9.-]*[a-z])", OPERATIONS + SECURITY))
    ours = {setting.flag for setting in (*SETTINGS, *VERIFY_OPTIONS)}
    assert named <= ours | ELSEWHERE | ARRIVES
    assert not ARRIVES & ours, "it has arrived: take it out of this list"


def test_every_link_within_a_page_leads_somewhere() -> None:
    for page in (OPERATIONS, SECURITY):
        headings = re.findall(r"^#+ (.+)$", page, re.M)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


# In a table, a bar within a command is written with a stroke before it.
@pytest.mark.parametrize("command", re.findall(r"`(gputally show[^`]*)`", HARDWARE.replace("\\|", "|")))
def test_every_command_to_confirm_something_with_tells_something(command: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = environment({"PATH": path, "GPUTALLY_MACHINE": "simulated"})
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout
    assert done.stderr == ""


def test_every_metric_to_confirm_something_with_is_there() -> None:
    named = set(re.findall(r"\bgputally_[a-z_]*[a-z]\b", HARDWARE))
    assert len(named) > 5
    known = {metric.name for metric in METRICS}
    assert {name for name in named if not any(each.startswith(name) for each in known)} == set()
