"""My GPU Exporter's promises, kept by `my-gpu-exporter`."""

from __future__ import annotations

import pytest

from gputally.compat.my_gpu_exporter import SYSTEM
from tests.compat.conftest import Fleet
from tests.compat.launchers import Launcher, config, families, run

LABELS = ("pid", "gpu", "process_name", "pod", "namespace", "container", "pod_uid", "container_id")
KINDS = {
    "energy_joules": "counter",
    "energy_joules_total": "counter",
    "sm_utilization_ratio": "gauge",
    "memory_utilization_ratio": "gauge",
    "memory_used_bytes": "gauge",
    "start_time_seconds": "gauge",
    "active": "gauge",
}
ENERGY = "my_gpu_process_energy_joules"
# The pods of its document are not on the simulated machine; this one takes their place.
POD = '{pod="llm-pretrain-worker-0"}'
QUERIES = (
    f"rate({ENERGY}[1m])",
    f"increase({ENERGY}{POD}[1h])",
    f'rate({ENERGY}{{namespace="ml"}}[1m])',
    f"sum(rate({ENERGY}[1m]))",
    f"sum by (namespace) (rate({ENERGY}[5m]))",
    f"increase({ENERGY}{POD}[1h]) / 3600000",
    f"(increase({ENERGY}[1h]) / 3600000) * 0.10",
    f"my_gpu_process_sm_utilization_ratio / rate({ENERGY}[1m])",
    f"topk(10, rate({ENERGY}[5m]))",
    "sum(my_gpu_process_active)",
    "sum by (namespace) (my_gpu_process_active)",
)


def test_defaults_are_as_documented() -> None:
    told = config(SYSTEM)
    assert told.web_listen_address == ":9400"
    assert told.web_telemetry_path == "/metrics"
    assert (told.tick, told.interval, told.retention) == (1, 10, 300)
    assert told.dialect_prefix == "my_gpu_process"
    assert told.log_level == "info"
    assert told.kubernetes == "auto"
    assert told.energy_idle_watts == 0


@pytest.mark.parametrize(
    ("words", "attribute", "value"),
    [
        (["--dcgm-update-frequency=500ms"], "tick", 0.5),
        (["-dcgm-update-frequency", "1m"], "tick", 10),
        (["--process-scan-interval=1m30s"], "interval", 90),
        (["--process-scan-interval=1s", "--dcgm-update-frequency=5s"], "tick", 1),
        (["--kubernetes-enabled=false"], "kubernetes", "off"),
        (["--kubernetes-enabled"], "kubernetes", "auto"),
        (["--pod-resources-socket=/x.sock"], "kubelet_podresources_socket", "/x.sock"),
        (["--metric-retention=1h0.5m"], "retention", 3630),
        (["--metric-prefix=ours"], "dialect_prefix", "ours"),
        (["--listen-address=127.0.0.1:9401"], "web_listen_address", "127.0.0.1:9401"),
        (["--metrics-path=/gpu"], "web_telemetry_path", "/gpu"),
        (["--log-level=warn"], "log_level", "warning"),
        (["--enable-energy-estimation=true"], "dialect", ("my_gpu",)),
        (["--gpu-idle-power=40"], "energy_idle_watts", 40),
    ],
)
def test_every_flag_has_its_effect(words: list[str], attribute: str, value: object) -> None:
    assert getattr(config(SYSTEM, *words), attribute) == value


def test_the_variable_of_its_document_holds() -> None:
    assert config(SYSTEM, LOG_LEVEL="debug").log_level == "debug"


@pytest.mark.parametrize("flag", ["--nope", "--metric-retention=5", "--log-level=loud", "--metric-prefix=1x"])
def test_a_bad_flag_is_named_with_the_usage(flag: str) -> None:
    code, said = run("my-gpu-exporter", flag)
    assert code == 2
    assert "usage: my-gpu-exporter" in said


def test_metrics_labels_and_types(fleet: Fleet) -> None:
    server = fleet.servers["my_gpu"]
    assert isinstance(server, Launcher)
    server.until(lambda: "my_gpu_process_memory_utilization_ratio" in server.text("/metrics"))
    told = families(server.text("/metrics"))
    assert told == {f"my_gpu_process_{name}": (kind, LABELS) for name, kind in KINDS.items()}


def test_endpoints(fleet: Fleet) -> None:
    server = fleet.servers["my_gpu"]
    assert server.get("/health").body == b"OK"
    assert b'<a href="/metrics">' in server.get("/").body


@pytest.mark.parametrize("query", QUERIES)
def test_the_queries_of_its_document(fleet: Fleet, query: str) -> None:
    assert fleet.prometheus.wait_for(query, lambda found: any(value > 0 for _, value in found))
    total = query.replace(ENERGY, f"{ENERGY}_total")
    assert fleet.prometheus.wait_for(total, lambda found: any(value > 0 for _, value in found))


def test_processes_of_a_shared_gpu_add_up_to_the_gpu(fleet: Fleet) -> None:
    """120 J and 80 J of a GPU that used 200 J: no joule is told twice, and none is lost."""
    window = '{job="nvidia_smi",gpu="3"}[10s]'
    fleet.prometheus.wait_for(f"count_over_time({ENERGY}{window}) >= 9", lambda found: len(found) >= 3)
    [(_, part)] = fleet.prometheus.wait_for(
        f"sum by (gpu) (increase({ENERGY}{window}))"
        f" / sum by (gpu) (increase(gputally_gpu_energy_joules_total{window}))",
        bool,
    )
    assert 0.9 < part < 1.1


def test_every_process_is_there_also_outside_kubernetes(fleet: Fleet) -> None:
    fleet.prometheus.wait_for('my_gpu_process_active{gpu="6",pod=""}', lambda found: len(found) >= 2)
    ids = fleet.prometheus.wait_for("my_gpu_process_active" + POD, bool)
    assert all(series["pod_uid"] and len(series["container_id"]) == 64 for series, _ in ids)


def test_another_prefix() -> None:
    flags = ("--metric-prefix=ours", "--metrics-path=/gpu", "--process-scan-interval=1s")
    with Launcher("my-gpu-exporter", *flags) as server:
        server.until(lambda: "ours_active" in server.text("/gpu"))
        told = families(server.text("/gpu"))
        assert "ours_energy_joules_total" in told
        assert not any(name.startswith("my_gpu") for name in told)
