"""Several dialects at once: all on one page, each on its own, and no series twice."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from gputally.dialects import DIALECTS
from tests.daemon import Daemon

parse_openmetrics: Any = parser.text_string_to_metric_families
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture(scope="module")
def daemon() -> Daemon:
    return Daemon(
        *(
            "--machine",
            "simulated",
            "--interval",
            "1s",
            "--process-metrics",
            "--process-metrics.min-age",
            "0s",
        ),
        *("--dialect", ",".join(DIALECTS), "--dialect.prefix", "gputally_process"),
    )


def test_every_dialect_is_on_the_page_and_alone(daemon: Daemon) -> None:
    with daemon:
        daemon.until(lambda: b"gputally_process_active" in daemon.get("/metrics").body)
        pages = {name: daemon.get(f"/metrics/{name}").body.decode() for name in DIALECTS}
        whole = daemon.get("/metrics").body.decode()
        strict = daemon.get("/metrics", OPENMETRICS).body.decode()
    lines = [line.rpartition(" ")[0] for line in whole.splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    heads = [line for line in whole.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len({line.split()[2] for line in heads})
    # The energy of processes is in two dialects under this prefix; on the common page it is the first one's.
    assert "gputally_process_energy_joules_total{pid=" in pages["my_gpu"]
    assert "gputally_process_energy_joules_total{pid=" not in whole
    assert "gputally_process_energy_joules_total{kind=" in whole
    for name in (
        "CM_PURPLEPILL_GPU_UTILIZATION",
        "dcgm_gpu_temp",
        "pod_gpu_memory_used",
        "DCGM_FI_DEV_GPU_TEMP",
    ):
        assert f"# TYPE {name} gauge" in whole
    assert len(list(parse_openmetrics(strict))) > 100


def test_a_prefix_of_its_own_is_strict_openmetrics() -> None:
    with Daemon("--machine", "simulated", "--interval", "1s", "--dialect", "my_gpu") as daemon:
        daemon.until(lambda: b"my_gpu_process_active" in daemon.get("/metrics").body)
        text = daemon.get("/metrics", OPENMETRICS).body.decode()
    names = [family.name for family in parse_openmetrics(text)]
    assert {"my_gpu_process_energy_joules", "my_gpu_process_energy_joules_total"} <= set(names)
