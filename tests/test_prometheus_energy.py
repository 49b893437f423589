"""Energy as a real Prometheus sees it: it adds up at every evaluation, also of jobs of seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.daemon import Child, Daemon
from tests.fakes.nvml import FakeNvml
from tests.prometheus import Prometheus

RULES = """
groups:
  - name: energy
    rules:
      - record: gputally:unaccounted:joules
        expr: |
          gputally_gpu_energy_joules_total
            - on (job, uuid) gputally_gpu_idle_energy_joules_total
            - on (job, uuid) gputally_gpu_pending_energy_joules
            - on (job, uuid) sum by (job, uuid) (gputally_gpu_unattributed_energy_joules_total)
            - on (job, uuid) (
                sum by (job, uuid) (
                  gputally_namespace_energy_joules_total + gputally_namespace_idle_energy_joules_total
                ) or on (job, uuid) 0 * gputally_gpu_energy_joules_total
              )
"""
JOBS = 4


class Scene(NamedTuple):
    prometheus: Prometheus
    fake: FakeNvml


@pytest.fixture(scope="module")
def scene(prometheus: str, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One GPU of 200 W on which jobs of seconds come and go, and a simulated node."""
    fake = FakeNvml(tmp_path_factory.mktemp("fake"), gpus=1, library=nvml_library)
    fake.gpus[0].watts = 200
    pace = ("--interval", "1s", "--tick", "500ms")
    with ExitStack() as stack:
        daemons = {
            "local": stack.enter_context(Daemon("--nvml.library", str(fake.library), *pace, env=fake.env)),
            "simulated": stack.enter_context(Daemon("--machine", "simulated", *pace)),
        }
        server = stack.enter_context(
            Prometheus(prometheus, tmp_path_factory.mktemp("prometheus"), daemons, RULES)
        )
        server.wait_for("gputally_gpu_up", lambda found: {s["job"] for s, _ in found} == daemons.keys())
        yield Scene(server, fake)


def test_short_jobs_add_up_to_what_the_gpu_used(scene: Scene) -> None:
    server, gpu = scene.prometheus, scene.fake.gpus[0]
    for number in range(JOBS):
        with Child(["sleep", "600"]) as job:
            gpu.run(job.pid)
            gpu.busy({job.pid: 70})
            server.wait_for(
                'sum(gputally_workload_energy_joules_total{job="local"})',
                lambda found, least=number: found and found[0][1] > least * 200 + 100,  # type: ignore[misc]
            )
        gpu.busy({})
        gpu.end(job.pid)
    server.wait_until('gputally_gpu_pending_energy_joules{job="local"}', 0)
    grown = "(max_over_time({0}[5m]) - min_over_time({0}[5m]))"
    whole, workloads, nobody = (
        server.values(f"sum({grown.format(series)})")[0]
        for series in (
            'gputally_gpu_energy_joules_total{job="local"}',
            'gputally_workload_energy_joules_total{job="local"}',
            'gputally_gpu_unattributed_energy_joules_total{job="local"}',
        )
    )
    assert workloads > JOBS * 100
    # The three are read by one evaluation each, so the GPU may have gone on by a scrape between them.
    assert whole - workloads - nobody == pytest.approx(0, abs=2 * 200)


def test_nothing_was_unaccounted_for_at_any_evaluation(scene: Scene) -> None:
    server = scene.prometheus
    server.wait_for("count_over_time(gputally:unaccounted:joules[5m])", lambda found: len(found) == 9)
    worst = server.values(
        "max(max_over_time(abs(gputally:unaccounted:joules)[5m:1s])"
        " / on (job, uuid) clamp_min(gputally_gpu_energy_joules_total, 1))"
    )
    assert worst[0] < 1e-9
