"""What the pages for operators claim."""

import re
import subprocess

from gputally.config import SETTINGS
from gputally.owners.runtime_socket import FLAGS
from gputally.verify_options import VERIFY_OPTIONS
from tests.daemon import GPUTALLY, environment
from tests.ops.rules import ROOT

OPERATIONS = (ROOT / "docs/OPERATIONS.md").read_text()
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
