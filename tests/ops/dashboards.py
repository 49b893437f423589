"""The committed dashboards, their panels and queries."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))


class Query(NamedTuple):
    """An expression, and where it stands."""

    where: str
    expression: str
    legend: str = ""


def load(path: Path) -> dict[str, Any]:
    """A dashboard as Grafana reads it."""
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels, without headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Its variables by name."""
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def queries() -> Iterator[Query]:
    """Every query of every dashboard."""
    for path in FILES:
        for panel in panels(load(path)):
            for target in panel["targets"]:
                where = f"{path.stem} / {panel['title']} / {target['refId']}"
                yield Query(where, target["expr"], target["legendFormat"])
