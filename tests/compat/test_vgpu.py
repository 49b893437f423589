"""The promises of k8s-vgpu-monitor, and its roadmap, kept by `vgpu_monitor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputally import feeds
from gputally.compat.vgpu_monitor import SYSTEM
from tests.compat.conftest import Fleet
from tests.compat.launchers import Launcher, config, families, run

LABELS = ("gpu_id", "pod")
NAMES = ("pod_gpu_sm_util", "pod_gpu_memory_used", "pod_total_gpu_memory")
QUERIES = (
    *NAMES,
    "pod_gpu_memory_used / pod_total_gpu_memory",
    'pod_gpu_memory_used{pod="llm-pretrain-worker-0",gpu_id="0"}',
)


@pytest.fixture
def ratio(tmp_path: Path) -> Path:
    path = tmp_path / "gpu_allocation.txt"
    path.write_text("2\n")
    return path


def test_defaults_are_as_documented(ratio: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ratio.parent)
    told = config(SYSTEM)
    assert told.web_listen_address == ":8080"
    assert told.web_telemetry_path == "/metrics"
    assert told.interval == 5
    assert told.vgpu_ratio_file == "gpu_allocation.txt"
    assert not told.dialect_namespace_label


@pytest.mark.parametrize(
    ("words", "environ", "attribute", "value"),
    [
        (["--port", "8081"], {}, "web_listen_address", ":8081"),
        ([], {"VGPU_MONITOR_PORT": "8082"}, "web_listen_address", ":8082"),
        (["--interval=10"], {}, "interval", 10),
        ([], {"VGPU_MONITOR_INTERVAL": "20"}, "interval", 20),
        (["--namespace-label"], {}, "dialect_namespace_label", True),
        ([], {"VGPU_MONITOR_NAMESPACE_LABEL": "true"}, "dialect_namespace_label", True),
        ([], {"CURRENT_NODE_NAME": "node-7"}, "kubernetes_node", "node-7"),
    ],
)
def test_the_roadmap(
    ratio: Path, words: list[str], environ: dict[str, str], attribute: str, value: object
) -> None:
    assert getattr(config(SYSTEM, "--gpu-allocation", str(ratio), *words, **environ), attribute) == value


@pytest.mark.parametrize(("text", "value"), [("4", 4), ("2.5\n", 2.5), (" 1 \n", 1)])
def test_the_ratio_is_an_integer_or_a_decimal(ratio: Path, text: str, value: float) -> None:
    ratio.write_text(text)
    told = config(SYSTEM, "--gpu-allocation", str(ratio))
    assert feeds.ratio(told)() == value


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "2 3", "1e3", "nan", "\x00" * 10, "9" * 5000])
def test_a_file_without_a_ratio_is_refused(ratio: Path, text: str) -> None:
    ratio.write_text(text)
    code, said = run("vgpu_monitor", cwd=ratio.parent)
    assert code == 2
    assert "gpu_allocation.txt" in said


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    code, said = run("vgpu_monitor", cwd=tmp_path)
    assert code == 2
    assert "gpu_allocation.txt" in said
    assert "is not there" in said


def test_an_unknown_flag_is_named_with_the_usage() -> None:
    code, said = run("vgpu_monitor", "--nope")
    assert code == 2
    assert "usage: vgpu_monitor" in said


def test_metrics_labels_types_and_units(fleet: Fleet) -> None:
    server = fleet.servers["vgpu"]
    assert isinstance(server, Launcher)
    server.until(lambda: "pod_gpu_sm_util{" in server.text("/metrics"))
    assert families(server.text("/metrics")) == dict.fromkeys(NAMES, ("gauge", LABELS))


@pytest.mark.parametrize("query", QUERIES)
def test_what_can_be_asked(fleet: Fleet, query: str) -> None:
    assert fleet.prometheus.wait_for(query, bool)


def test_numbers_are_physical_and_in_mib(fleet: Fleet) -> None:
    where = '{pod="llm-pretrain-worker-0",gpu_id="1"}'
    [(_, total)] = fleet.prometheus.wait_for(f"pod_total_gpu_memory{where}", bool)
    assert total == 81920 / 2
    [(_, used)] = fleet.prometheus.wait_for(f"pod_gpu_memory_used{where}", bool)
    assert used == 72704
    utils = fleet.prometheus.wait_for("pod_gpu_sm_util", bool)
    assert all(0 <= value <= 100 for _, value in utils)


def test_the_namespace_label(ratio: Path) -> None:
    flags = ("--namespace-label", "--interval=1", "--gpu-allocation", str(ratio))
    with Launcher("vgpu_monitor", *flags) as server:
        server.until(lambda: "pod_gpu_sm_util{" in server.text("/metrics"))
        told = families(server.text("/metrics"))
        assert told == dict.fromkeys(NAMES, ("gauge", (*LABELS, "namespace")))
