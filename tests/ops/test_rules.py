"""Alerts and recording rules: promtool's word on them, a test each way, and a runbook."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ops.rules import ALERTS, ROOT, RULE_FILES, RULE_TESTS, alerts, records

SEVERITIES = {"critical", "warning", "info"}


def test_promtool_accepts_the_rules(promtool: str) -> None:
    done = run(promtool, "check", "rules", *map(str, RULE_FILES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in ALERTS.glob("*.yaml")} == {path.name for path in RULE_FILES}


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_promtool_passes_the_unit_tests(promtool: str, path: Path) -> None:
    done = run(promtool, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", alerts())
def test_each_alert_is_seen_to_fire_and_to_stay_quiet(name: str) -> None:
    seen = [check["exp_alerts"] for check in checks() if check["alertname"] == name]
    assert any(seen), f"no unit test lets {name} fire"
    assert not all(seen), f"no unit test keeps {name} quiet"


@pytest.mark.parametrize("name", alerts())
def test_each_alert_says_what_it_is_and_what_to_do(name: str) -> None:
    alert = alerts()[name]
    assert alert["labels"]["severity"] in SEVERITIES
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / page)


def test_there_is_no_runbook_of_an_alert_that_is_gone() -> None:
    text = (ROOT / "docs/OPERATIONS.md").read_text()
    _, _, runbooks = text.partition("\n## Runbooks\n")
    assert set(re.findall(r"^### (\w+)$", runbooks, re.M)) == alerts().keys()


def test_no_name_is_recorded_twice_and_none_hides_its_level() -> None:
    written = re.findall(r"record: (\S+)", "".join(path.read_text() for path in RULE_FILES))
    assert sorted(written) == sorted(records())
    assert all(re.fullmatch(r"(namespace|workload|node|gpu):gputally_[a-z0-9_]+(:\w+)?", n) for n in written)


def test_no_price_and_no_intensity_is_invented() -> None:
    assert not [name for name in records() if name.startswith("gputally:")]


def checks() -> list[dict[str, Any]]:
    tests = [test for path in RULE_TESTS for test in yaml.safe_load(path.read_text())["tests"]]
    return [check for test in tests for check in test.get("alert_rule_test", ())]


def anchors(page: Path) -> set[str]:
    """The anchors that a reader's browser finds, made of headings as GitHub does."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
