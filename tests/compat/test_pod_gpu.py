"""The promises of pod-gpu-metrics-exporter, kept by the command of that name."""

from __future__ import annotations

import pytest

from gputally.compat.pod_gpu_metrics_exporter import SYSTEM
from tests.compat.conftest import Fleet
from tests.compat.launchers import Launcher, config, families, run

LABELS = ("gpu", "uuid", "pod_name", "pod_namespace", "container_name")
GAUGES = (
    *("sm_clock", "memory_clock", "memory_temp", "gpu_temp", "power_usage", "gpu_utilization"),
    *("mem_copy_utilization", "enc_utilization", "dec_utilization", "xid_errors", "fb_free", "fb_used"),
)
COUNTERS = (
    *("total_energy_consumption", "pcie_tx_throughput", "pcie_rx_throughput", "pcie_replay_counter"),
    *("power_violation", "thermal_violation", "sync_boost_violation", "board_limit_violation"),
    *("low_util_violation", "reliability_violation"),
    *("ecc_sbe_volatile_total", "ecc_dbe_volatile_total", "ecc_sbe_aggregate_total"),
    *("ecc_dbe_aggregate_total", "nvlink_flit_crc_error_count_total"),
    *("nvlink_data_crc_error_count_total", "nvlink_replay_error_count_total"),
    *("nvlink_recovery_error_count_total", "nvlink_bandwidth_total"),
)
RETIRED = {"dcgm_retired_pages_sbe", "dcgm_retired_pages_dbe", "dcgm_retired_pages_pending"}
"""Not on the simulated machine: its GPUs remap rows, as all do since Ampere."""
QUERIES = (
    "dcgm_gpu_temp",
    "dcgm_gpu_utilization",
    "rate(dcgm_low_util_violation[1m])",
    "dcgm_mem_copy_utilization",
    "dcgm_memory_clock",
    'dcgm_gpu_temp{pod_name="llm-pretrain-worker-0",pod_namespace="ml",container_name="pytorch"}',
    "sum by (pod_name, pod_namespace) (dcgm_power_usage)",
    "sum by (pod_name) (rate(dcgm_total_energy_consumption[1m])) / 1000",
)


def test_defaults_are_as_documented() -> None:
    told = config(SYSTEM)
    assert told.web_listen_address == ":9400"
    assert told.web_telemetry_path == "/gpu/metrics"
    assert told.dialect == ("pod_gpu",)


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["-logtostderr"], "info"),
        (["--logtostderr=true", "-v", "4"], "debug"),
        (["-alsologtostderr", "-v=0", "-stderrthreshold=INFO", "-log_dir=/x", "-vmodule=a=1"], "info"),
    ],
)
def test_the_flags_of_glog_are_taken(words: list[str], level: str) -> None:
    assert config(SYSTEM, *words).log_level == level


def test_an_unknown_flag_is_named_with_the_usage() -> None:
    code, said = run("pod-gpu-metrics-exporter", "-port", "1")
    assert code == 2
    assert "'-port' is no flag" in said
    assert "--logtostderr" in said


def test_metrics_labels_and_types(fleet: Fleet) -> None:
    server = fleet.servers["pod_gpu"]
    assert isinstance(server, Launcher)
    told = families(server.text("/gpu/metrics"))
    gauges = {f"dcgm_{name}": ("gauge", LABELS) for name in GAUGES}
    counters = {f"dcgm_{name}": ("counter", LABELS) for name in COUNTERS}
    assert {name: kind for name, kind in told.items() if name not in RETIRED} == gauges | counters
    assert server.get("/metrics").status == 404


@pytest.mark.parametrize("query", QUERIES)
def test_the_queries_that_its_output_is_for(fleet: Fleet, query: str) -> None:
    assert fleet.prometheus.wait_for(query, bool)


def test_power_of_a_shared_gpu_is_not_multiplied(fleet: Fleet) -> None:
    fleet.prometheus.wait_for('dcgm_power_usage{gpu="3"}', lambda found: len(found) >= 3)
    [(_, watts)] = fleet.prometheus.query('sum by (gpu) (dcgm_power_usage{gpu="3"})')
    assert 60 < watts < 720


def test_a_gpu_without_a_pod_has_no_pod_labels(fleet: Fleet) -> None:
    [(series, _)] = fleet.prometheus.wait_for('dcgm_gpu_temp{gpu="6"}', bool)
    assert not series.keys() & {"pod_name", "pod_namespace", "container_name"}
