"""Autoscaling: a lost target is not taken for no load, as a real Prometheus evaluates it."""

import subprocess
from pathlib import Path

import kubernetes_validate
import yaml

from gputally.dialects import native
from tests.deploy.chart import DEPLOY, documents
from tests.deploy.foreign_kinds import unknown_keys

AUTOSCALING = DEPLOY / "autoscaling"
BUSY = (
    'gputally_workload_sm_utilization_ratio{kind="pod",namespace="inference",'
    'workload="Deployment/llm",pod="%s"}'
)


def test_kinds_and_names_are_known() -> None:
    (hpa,) = documents(AUTOSCALING / "hpa.yaml")
    kubernetes_validate.validate(hpa, "1.37", strict=True)
    (scaled,) = documents(AUTOSCALING / "keda-scaledobject.yaml")
    assert unknown_keys(scaled) == []
    assert scaled["spec"]["triggers"][0]["metadata"]["ignoreNullValues"] == "false"
    (adapter,) = documents(AUTOSCALING / "prometheus-adapter-values.yaml")
    rules = adapter["rules"]["custom"]
    assert hpa["spec"]["metrics"][0]["pods"]["metric"]["name"] in {rule["name"]["as"] for rule in rules}
    ours = {metric.name for metric in native.METRICS}
    assert {rule["seriesQuery"].partition("{")[0] for rule in rules} <= ours


def test_the_query_of_keda_tells_no_load_from_no_answer(promtool: str, tmp_path: Path) -> None:
    (scaled,) = documents(AUTOSCALING / "keda-scaledobject.yaml")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    up = [f'up{{job="gputally",instance="{node}"}}' for node in "ab"]
    cases = {
        "two pods at work": ({up[0]: "1x10", up[1]: "1x10", BUSY % "x": "0.5x10", BUSY % "y": "1x10"}, 1.5),
        "no load": ({up[0]: "1x10", up[1]: "1x10"}, 0.0),
        "one node is lost": ({up[0]: "1x10", up[1]: "0x10", BUSY % "x": "0.5x10"}, None),
        "every node is lost": ({}, None),
    }
    tests = [_case(name, query, series, value) for name, (series, value) in cases.items()]
    assert _unit_test(promtool, tmp_path, tests) == ""
    wrong = _case("no load", query, cases["no load"][0], 1.0)
    assert "FAILED" in _unit_test(promtool, tmp_path, [wrong])


def test_the_queries_of_the_adapter_give_one_value_per_pod(promtool: str, tmp_path: Path) -> None:
    (adapter,) = documents(AUTOSCALING / "prometheus-adapter-values.yaml")
    labels = '{kind="pod",namespace="n",pod="p",gpu="%s"}'
    expected = (1.5, 12.0, 2.0)
    for rule, (each, value) in zip(
        adapter["rules"]["custom"], zip(("0.75x10", "6x10", "0+60x10"), expected, strict=True), strict=True
    ):
        name = rule["seriesQuery"].partition("{")[0]
        query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.Series>>", name)
        query = query.replace("<<.LabelMatchers>>", 'namespace="n",pod=~"p"')
        series = {name + labels % gpu: each for gpu in "01"}
        test = _case(name, query, series, value, '{pod="p"}')
        assert _unit_test(promtool, tmp_path, [test]) == ""


def _case(
    name: str, query: str, series: dict[str, str], value: float | None, labels: str = "{}"
) -> dict[str, object]:
    samples = [] if value is None else [{"labels": labels, "value": value}]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "5m", "exp_samples": samples}],
    }


def _unit_test(promtool: str, folder: Path, tests: list[dict[str, object]]) -> str:
    """What promtool has against the tests; nothing if they hold."""
    (folder / "rules.yaml").write_text("groups: []\n", encoding="utf-8")
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    return "" if done.returncode == 0 else done.stdout + done.stderr
