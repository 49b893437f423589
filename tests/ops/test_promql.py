"""Every query we ship, run on a real Prometheus that scrapes simulated nodes and keeps our rules."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.ops.dashboards import FILES, Query, load, variables
from tests.ops.promql import Selector, all_queries, bare, parse, rule_queries, selectors
from tests.ops.rules import alerts, records
from tests.ops.scene import SEEDS, Prometheus

EMPTY = tomllib.loads((Path(__file__).parent / "expected_empty.toml").read_text())
ALERTS = {f"alerts / {name}" for name in alerts()}

every_query = pytest.mark.parametrize("query", all_queries(), ids=lambda query: query.where)


@every_query
def test_a_query_is_promql(query: Query) -> None:
    parse(query.expression)


@every_query
def test_a_query_finds_something(server: Prometheus, query: Query) -> None:
    found = server.query(bare(query.expression))
    if query.where in ALERTS:
        # Nothing is wrong with these nodes; but what the alert looks at must be there.
        silent = [
            s.query for s in selectors(query.expression) if not excused(s) and not server.query(s.query)
        ]
        assert not silent, f"nothing has these labels: {silent}"
    elif not found:
        reads = selectors(query.expression)
        assert query.where in EMPTY["queries"] or any(map(excused, reads)), "empty, and no reason is known"


@pytest.mark.parametrize("series", EMPTY["arrives"])
def test_what_is_listed_as_not_there_yet_is_not_there(server: Prometheus, series: str) -> None:
    assert not server.query(series), f"{series} has arrived: take its line out of expected_empty.toml"


def test_the_list_names_nothing_that_no_query_reads() -> None:
    found = [s for query in all_queries() for s in selectors(query.expression)]
    read = {s.name for s in found} | {s.query for s in found}
    assert (EMPTY["arrives"].keys() | EMPTY["sometimes"].keys()) <= read
    assert EMPTY["queries"].keys() <= {query.where for query in all_queries()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_variable_offers_something(server: Prometheus, path: Path) -> None:
    for name, variable in variables(load(path)).items():
        if name != "datasource":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", bare(variable["query"]["query"]))
            assert found
            assert server.labels(found[2], found[1]) or name == "namespace", name


def test_no_alert_fires_on_healthy_nodes(server: Prometheus) -> None:
    assert not server.query('ALERTS{alertstate="firing", severity="critical"}')


def test_every_joule_is_accounted_for(server: Prometheus) -> None:
    found = server.query("gpu:gputally_energy_imbalance_joules")
    assert len(found) == 8 * len(SEEDS)
    assert all(abs(joules) < 0.001 for _, joules in found)


def test_no_query_speaks_of_a_rule_that_is_not_there() -> None:
    names = {s.name for query in all_queries() for s in selectors(query.expression) if ":" in s.name}
    assert names <= records().keys() | {"gputally:price_per_kwh", "gputally:co2_grams_per_kwh"}


def excused(selector: Selector) -> bool:
    """Whether it reads what may be absent, itself or through a recorded name."""
    if selector.name in records():
        return any(map(excused, selectors(records()[selector.name])))
    listed = EMPTY["arrives"].keys() | EMPTY["sometimes"].keys()
    return selector.name in listed or selector.query in listed


def test_an_alert_reads_no_unknown_name() -> None:
    for query in rule_queries():
        assert all(
            s.name or any(m.name == "__name__" for m in s.matchers) for s in selectors(query.expression)
        )
