"""The rules of Grafana's dashboard linter, and some of our own; no claim that pixels look right."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ops.dashboards import FILES, FOLDER, load, panels, queries, variables
from tests.ops.promql import bare, selectors

UIDS = {
    "gputally-fleet": "gputally / Fleet",
    "gputally-workloads": "gputally / Workloads",
    "gputally-energy": "gputally / Energy and cost",
    "gputally-exporter": "gputally / Exporter health",
    "gpu-dcgm-dashboard": "GPU Monitoring (DCGM)",
}
"""Links and bookmarks hold these: changing one breaks them."""
UNITS = {
    *("short", "watt", "percentunit", "percent", "bytes", "Bps", "celsius", "hertz", "joule", "kwatth"),
    *("s", "massg"),
}
DCGM_PANELS = [
    "GPU Temperature",
    "Power Usage",
    "GPU Utilization",
    "Memory Utilization",
    "Memory Usage",
    "Clock Speeds",
    "Exporter Status",
]

every_board = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
every_query = pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)


def test_the_committed_files_are_what_the_tables_say() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.dashboards", "--check"],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_titles_and_uids_are_kept() -> None:
    assert {load(path)["uid"]: load(path)["title"] for path in FILES} == UIDS
    assert {path.stem for path in FILES} == UIDS.keys()


@every_board
def test_the_file_can_be_imported_anywhere(path: Path) -> None:
    board = load(path)
    assert board["id"] is None
    assert board["editable"] is False
    assert 36 <= board["schemaVersion"] <= 41
    assert "__inputs" not in board
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert all(other in UIDS for other in re.findall(r'"/d/([\w-]+)', path.read_text()))


@every_board
def test_every_datasource_is_the_chosen_one(path: Path) -> None:
    board = load(path)
    assert board["templating"]["list"][0] | {"label": ""} == {
        "label": "",
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "type": "datasource",
    }
    used = sources(board)
    assert used
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in used)


@every_board
def test_every_panel_says_what_it_shows(path: Path) -> None:
    for panel in panels(load(path)):
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]


@every_board
def test_panels_do_not_overlap(path: Path) -> None:
    taken = set[tuple[int, int]]()
    for panel in load(path)["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells


@every_board
def test_variables_show_all_and_follow_the_time(path: Path) -> None:
    chosen = {name: v for name, v in variables(load(path)).items() if name != "datasource"}
    for variable in chosen.values():
        assert variable["refresh"] == 2
        assert variable["includeAll"]
        assert variable["multi"]
        # Matches a series without the label too: a plain Prometheus has no `cluster`.
        assert variable["allValue"] == ".*"
        assert re.fullmatch(r"label_values\(.+, \w+\)", variable["query"]["query"])
    text = path.read_text()
    assert all(f"${name}" in text for name in chosen)
    assert set(re.findall(r"\$(\w+)", text)) - {"__rate_interval", "__range", "__all"} == chosen.keys()


def test_the_promised_variables_are_there() -> None:
    promised = {"datasource", "cluster", "node", "namespace", "workload", "gpu"}
    assert variables(load(FOLDER / "gputally-workloads.json")).keys() == promised
    assert variables(load(FOLDER / "gputally-energy.json")).keys() == promised


def test_a_migrator_finds_the_panels_again() -> None:
    board = load(FOLDER / "gpu-dcgm-dashboard.json")
    assert [panel["title"] for panel in panels(board)] == DCGM_PANELS
    assert board["refresh"] == "30s"


@every_query
def test_legends_name_labels_that_the_query_keeps(query: Any) -> None:
    kept = re.findall(r" by \(([^)]*)\)", query.expression)
    if kept and not selectors(query.expression)[0].name.startswith("workload:"):
        labels = {label.strip() for names in kept for label in names.split(",")}
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= labels


@every_query
def test_every_selector_follows_the_choices(query: Any) -> None:
    for selector in selectors(query.expression):
        labels = {matcher.name for matcher in selector.matchers}
        if selector.name.startswith("gputally_"):
            assert {"cluster", "node"} <= labels, selector
        elif re.match(r"(gpu|node|namespace|workload):", selector.name):
            assert "cluster" in labels, selector


@every_query
def test_counters_are_only_read_as_rates(query: Any) -> None:
    for selector in selectors(query.expression):
        if selector.name.endswith("_total"):
            assert selector.function in ("rate", "irate", "increase"), selector
        else:
            assert selector.function not in ("rate", "irate", "increase"), selector


@every_query
def test_rates_follow_the_resolution(query: Any) -> None:
    windows = set(re.findall(r"\[(.*?)\]", query.expression))
    assert windows <= {"$__rate_interval", "$__range", "1h"}, query
    assert "$" not in bare(query.expression)


def sources(part: Any) -> list[Any]:
    """Every `datasource` anywhere below."""
    if isinstance(part, list):
        return [found for item in part for found in sources(item)]
    if not isinstance(part, dict):
        return []
    own = [part["datasource"]] if "datasource" in part else []
    return own + [found for item in part.values() for found in sources(item)]
