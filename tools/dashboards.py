"""Writes dashboards/*.json from the tables beside this file; --check only says which are not current."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.dashboard_parts import Board, Panel, Row, Variable
from tools.dashboard_tables import BOARDS

FOLDER = Path(__file__).parent.parent / "dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA = 39
COLUMNS = 24


def dashboard(board: Board) -> dict[str, Any]:
    """One dashboard as Grafana reads it."""
    return {
        "annotations": {"list": []},
        "description": board.description,
        "editable": False,
        "graphTooltip": 1,
        "id": None,
        "links": _links(board),
        "panels": list(_panels(board)),
        "refresh": board.refresh,
        "schemaVersion": SCHEMA,
        "tags": ["gputally", "gpu"],
        "templating": {"list": [_datasource(), *map(_variable, board.variables)]},
        "time": {"from": f"now-{board.span}", "to": "now"},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
        "version": 1,
    }


def _links(board: Board) -> list[dict[str, Any]]:
    others = [other for other in BOARDS if other.uid != board.uid]
    shape = {"type": "link", "icon": "dashboard", "includeVars": True, "keepTime": True}
    return [{**shape, "title": other.title, "url": f"/d/{other.uid}"} for other in others]


def _datasource() -> dict[str, Any]:
    return {
        "label": "Data source",
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    }


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "definition": variable.query,
        "includeAll": True,
        "label": variable.name.capitalize(),
        "multi": True,
        "name": variable.name,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


def _panels(board: Board) -> Iterator[dict[str, Any]]:
    x = y = tallest = 0
    for number, part in enumerate(board.parts, 1):
        if isinstance(part, Row) or x + part.width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        if isinstance(part, Row):
            place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
            yield {
                "collapsed": False,
                "gridPos": place,
                "id": number,
                "panels": [],
                "title": part.title,
                "type": "row",
            }
            y += 1
            continue
        place = {"h": part.height, "w": part.width, "x": x, "y": y}
        yield {"id": number, "gridPos": place, **_panel(part)}
        x, tallest = x + part.width, max(tallest, part.height)


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "datasource": DATASOURCE,
        "description": panel.description,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [_target(panel, *pair) for pair in zip("ABCDEFGH", panel.queries, strict=False)],
        "title": panel.title,
        "type": panel.kind,
        **({"transformations": [_columns(panel)]} if panel.kind == "table" else {}),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.unit == "percentunit":
        defaults |= {"min": 0, "max": 1}
    if panel.steps:
        colours = ("green", "orange", "red")
        levels = zip(colours, (None, *panel.steps), strict=False)
        defaults["color"] = {"mode": "thresholds"}
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": c, "value": v} for c, v in levels],
        }
    if panel.kind == "timeseries":
        stacking = {"group": "A", "mode": "normal" if panel.stack else "none"}
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stack else 8,
            "showPoints": "never",
            "stacking": stacking,
        }
    return defaults


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        legend = {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        }
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "table":
        return {"showHeader": True}
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"reduceOptions": reduce, "textMode": "auto", "colorMode": "value", "graphMode": "area"}


def _target(panel: Panel, letter: str, query: tuple[str, str]) -> dict[str, Any]:
    expression, legend = query
    at_once = panel.kind != "timeseries"
    return {
        "datasource": DATASOURCE,
        "expr": expression,
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": at_once,
        "legendFormat": legend or "__auto",
        "range": not at_once,
        "refId": letter,
    }


def _columns(panel: Panel) -> dict[str, Any]:
    hidden = dict.fromkeys(("Time", "__name__", "job", "endpoint", *panel.hide), True)
    return {"id": "organize", "options": {"excludeByName": hidden, "renameByName": {"Value": panel.value}}}


def text(board: Board) -> str:
    """The file's content."""
    return json.dumps(dashboard(board), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write or check every dashboard."""
    files = {FOLDER / f"{board.file}.json": text(board) for board in BOARDS}
    found = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    stale = sorted(path for path in files.keys() | found.keys() if files.get(path) != found.get(path))
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(f"dashboards/{path.name} is not current; run `make generate`", file=sys.stderr)
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        if path in files:
            path.write_text(files[path], encoding="utf-8")
        else:
            path.unlink()
    print(f"{len(stale)} dashboards written or removed, {len(files)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
