"""One Prometheus that scrapes all the launchers at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.compat.launchers import Launcher
from tests.daemon import Daemon, Server
from tests.prometheus import Prometheus

JOB = """\
  - job_name: {job}
    honor_labels: {honor}
    metrics_path: {path}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
        labels: {{namespace: monitoring, pod: exporter-x7, container: exporter}}
"""


SEVERAL = (
    *("--machine", "simulated", "--interval", "1s", "--tick", "500ms"),
    *("--dialect", "nvidia_smi,my_gpu,native", "--energy.idle-watts", "0"),
)


class Fleet(NamedTuple):
    """All that runs."""

    prometheus: Prometheus
    servers: dict[str, Server]


@pytest.fixture(scope="package")
def fleet(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "ratio").write_text("2\n")
    servers: dict[str, Server] = {
        "cmpp": Launcher("cmpp", "--interval", "1"),
        "my_gpu": Launcher(
            "my-gpu-exporter",
            "--listen-address=127.0.0.1:0",
            "-process-scan-interval=1s",
            "--metric-retention",
            "5m",
        ),
        "pod_gpu": Launcher(
            "pod-gpu-metrics-exporter", "-logtostderr", "-v=1", env={"GPUTALLY_INTERVAL": "1s"}
        ),
        "vgpu": Launcher("vgpu_monitor", "--interval", "1", "--gpu-allocation", str(folder / "ratio")),
        "dcgm": Launcher("dcgm-exporter", "-k", "-c", "1000", "-a", "127.0.0.1:0"),
        "nvidia_smi": Daemon(*SEVERAL),
    }
    paths = {"pod_gpu": "/gpu/metrics"}
    with ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(server)
        jobs = [(name, name, "true") for name in servers] + [("dcgm", "dcgm_plain", "false")]
        more = "".join(
            JOB.format(job=job, port=servers[name].port, path=paths.get(name, "/metrics"), honor=honor)
            for name, job, honor in jobs
        )
        server = stack.enter_context(Prometheus(prometheus, folder, {}, more=more))
        server.until(lambda: server.get("/-/ready").status == 200)
        server.wait_for("up == 1", lambda found: len(found) == len(jobs))
        yield Fleet(server, servers)
