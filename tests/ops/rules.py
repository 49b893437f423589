"""The committed rules, and the queries they hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "alerts"
RULE_FILES = tuple(ALERTS / f"{name}.yaml" for name in ("records", "alerts", "cost"))
RULE_TESTS = sorted((ALERTS / "tests").glob("*.yaml"))


def rules(path: Path) -> Iterator[dict[str, Any]]:
    """Every rule of a file."""
    for group in yaml.safe_load(path.read_text())["groups"]:
        yield from group["rules"]


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert by its name."""
    return {rule["alert"]: rule for rule in rules(ALERTS / "alerts.yaml")}


def records() -> dict[str, str]:
    """Every recorded name and its expression."""
    return {r["record"]: r["expr"] for path in RULE_FILES for r in rules(path) if "record" in r}
