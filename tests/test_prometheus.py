"""A real Prometheus scrapes the real command: what its queries see of GPUs that work, hang and get lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.daemon import Child, Daemon, parse
from tests.fakes.nvml import FakeNvml
from tests.prometheus import Prometheus

PACE = ("--interval", "1s", "--tick", "500ms")
WATTS = (100, 200, 300, 400)
BUSY = 40
STEADY, MOODY, HANGING, LOST = "0", "1", "2", "3"
"""Each GPU has one part to play, so that no test depends on what another one left."""
READINGS = tuple(
    f"gputally_gpu_{name}"
    for name in (
        "power_watts",
        "temperature_celsius",
        "utilization_ratio",
        "memory_used_bytes",
        "clock_hertz",
        "processes",
    )
)


class Scene(NamedTuple):
    """All that runs."""

    prometheus: Prometheus
    fake: FakeNvml
    daemons: dict[str, Daemon]


@pytest.fixture(scope="module")
def scene(prometheus: str, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    fake = FakeNvml(tmp_path_factory.mktemp("fake"), gpus=4, library=nvml_library)
    local = ("--nvml.library", str(fake.library), *PACE)
    with ExitStack() as stack:
        for gpu, watts in zip(fake.gpus, WATTS, strict=True):
            gpu.watts = watts
            process = stack.enter_context(Child(["sleep", "600"]))
            gpu.run(process.pid, memory=1 << 30)
            gpu.busy({process.pid: BUSY})
        daemons = {
            "simulated": stack.enter_context(Daemon("--machine", "simulated", *PACE)),
            "local": stack.enter_context(Daemon(*local, env=fake.env)),
            "doomed": stack.enter_context(Daemon("--machine", "simulated", *PACE)),
        }
        folder = tmp_path_factory.mktemp("prometheus")
        server = stack.enter_context(Prometheus(prometheus, folder, daemons))
        server.wait_for("gputally_gpu_up", lambda found: {s["job"] for s, _ in found} == daemons.keys())
        yield Scene(server, fake, daemons)


@pytest.mark.parametrize("job", ["simulated", "local"])
def test_a_scrape_is_taken_whole(scene: Scene, job: str) -> None:
    prometheus, daemon = scene.prometheus, scene.daemons[job]
    prometheus.wait_until(f'up{{job="{job}"}}', 1)
    prometheus.wait_for(
        f'scrape_samples_scraped{{job="{job}"}}', lambda found: found and found[0][1] == len(daemon.metrics())
    )
    [(build, _)] = prometheus.wait_for(f'gputally_build_info{{job="{job}"}}', bool)
    assert build["machine"] == job


def test_nothing_is_refused(scene: Scene) -> None:
    own = parse(scene.prometheus.get("/metrics").body.decode())
    refused = {name: value for (name, _), value in own.items() if "scrapes_sample_" in name}
    assert len(refused) >= 3
    assert not any(refused.values()), refused


@pytest.mark.parametrize("job", ["simulated", "local"])
def test_openmetrics_is_what_prometheus_asks_for(scene: Scene, job: str) -> None:
    """Only in that format is there a type `info`, of a family without the suffix."""
    target = f'{{job="{job}"}}'
    metadata = scene.prometheus.api("targets/metadata", match_target=target)
    kinds = {row["metric"]: row["type"] for row in metadata}
    assert kinds["gputally_build"] == "info"
    assert kinds["gputally_gpu_energy_joules"] == "counter"
    assert kinds["gputally_gpu_power_watts"] == "gauge"


def test_only_series_about_the_exporter_have_its_pod(scene: Scene) -> None:
    own = scene.prometheus.wait_for("gputally_up", bool)
    assert {series["pod"] for series, _ in own} == {"gputally-x7"}
    devices = scene.prometheus.wait_for('{__name__=~"gputally_gpu_.+"}', bool)
    assert not [series for series, _ in devices if series.keys() & {"namespace", "pod", "container"}]
    work = scene.prometheus.wait_for('{__name__=~"gputally_workload_.+"}', bool)
    assert not [series for series, _ in work if series.get("pod") == "gputally-x7"]


def test_a_gpu_that_hangs_has_no_gauges_until_it_answers_again(scene: Scene) -> None:
    prometheus, fake = scene.prometheus, scene.fake
    energy = f'gputally_gpu_energy_joules_total{{job="local",gpu="{HANGING}"}}'
    [(_, before)] = prometheus.wait_for(energy, bool)
    fake.hang(int(HANGING))
    silent(prometheus, HANGING, "hung")
    others_are_fresh(scene)
    silent(prometheus, HANGING, "hung")
    fake.release(int(HANGING))
    prometheus.wait_until(f'gputally_gpu_up{{job="local",gpu="{HANGING}"}}', 1)
    prometheus.wait_until(f'gputally_gpu_power_watts{{job="local",gpu="{HANGING}"}}', WATTS[int(HANGING)])
    prometheus.wait_for(energy, lambda found: found and found[0][1] > before)
    assert prometheus.values(f"resets({energy}[10m])") == [0]


def test_a_gpu_that_is_lost_has_no_gauges(scene: Scene) -> None:
    scene.fake.lose(int(LOST))
    silent(scene.prometheus, LOST, "lost")
    others_are_fresh(scene)
    silent(scene.prometheus, LOST, "lost")


def test_energy_rises_as_fast_as_the_power_says(scene: Scene) -> None:
    """By the clock of Prometheus, and more exactly by that of the snapshots."""
    energy = f'gputally_gpu_energy_joules_total{{job="local",gpu="{STEADY}"}}'
    watts = WATTS[int(STEADY)]
    near = (0.8 * watts, 1.2 * watts)
    scene.prometheus.wait_for(
        f"rate({energy}[10s]) and count_over_time({energy}[10s]) >= 9",
        lambda found: found and near[0] < found[0][1] < near[1],
    )
    clock = 'delta(gputally_snapshot_timestamp_seconds{job="local"}[10s])'
    [(_, measured)] = scene.prometheus.query(f"increase({energy}[10s]) / on(instance) {clock}")
    assert near[0] < measured < near[1]
    assert scene.prometheus.values(f"resets({energy}[10m])") == [0]


def test_the_work_of_a_process_is_seen(scene: Scene) -> None:
    where = f'{{job="local",gpu="{STEADY}"}}'
    [(series, processes)] = scene.prometheus.wait_for(f"gputally_workload_processes{where}", bool)
    assert series["kind"] == "host"
    assert processes == 1
    near = (0.008 * BUSY, 0.012 * BUSY)
    scene.prometheus.wait_for(
        f"rate(gputally_workload_sm_busy_seconds_total{where}[10s])",
        lambda found: found and near[0] < found[0][1] < near[1],
    )
    scene.prometheus.wait_for(
        f"gputally_workload_sm_utilization_ratio{where}",
        lambda found: found and near[0] < found[0][1] < near[1],
    )


def test_a_daemon_that_was_killed_is_down(scene: Scene) -> None:
    prometheus = scene.prometheus
    prometheus.wait_until('up{job="doomed"}', 1)
    scene.daemons["doomed"].kill()
    prometheus.wait_until('up{job="doomed"}', 0)
    prometheus.wait_until('{__name__=~"gputally_.+",job="doomed"}')
    prometheus.wait_until('up{job="simulated"}', 1)


def silent(prometheus: Prometheus, gpu: str, state: str) -> None:
    """A GPU that does not answer has a state and its totals; what it was last read to be is not told."""
    where = f'job="local",gpu="{gpu}"'
    prometheus.wait_until(f"gputally_gpu_up{{{where}}}", 0)
    prometheus.wait_until(f'gputally_gpu_state{{{where},state="{state}"}}', 1)
    for name in READINGS:
        prometheus.wait_until(f"{name}{{{where}}}")
    left = prometheus.wait_for(f'{{__name__=~"gputally_gpu_.+",{where}}}', bool)
    assert {"gputally_gpu_info", "gputally_gpu_energy_joules_total"} <= {row["__name__"] for row, _ in left}


def others_are_fresh(scene: Scene) -> None:
    """A change of another GPU is seen, so its gauges are of now; and none was ever withdrawn."""
    prometheus, gpu = scene.prometheus, scene.fake.gpus[int(MOODY)]
    gpu.watts = gpu.watts + 50
    prometheus.wait_until(f'gputally_gpu_power_watts{{job="local",gpu="{MOODY}"}}', gpu.watts)
    steady = f'{{job="local",gpu="{STEADY}"}}[10m]'
    for name in READINGS:
        shown, answered = f"count_over_time({name}{steady})", f"count_over_time(gputally_gpu_up{steady})"
        assert set(prometheus.values(f"{shown} / on(gpu) group_left() {answered}")) == {1}, name
    up = f'min_over_time(gputally_gpu_up{{job="local",gpu=~"{STEADY}|{MOODY}"}}[10m])'
    assert prometheus.values(up) == [1, 1]
