"""Native metrics are clean for promtool, which holds names, units and help against the conventions."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.daemon import GPUTALLY, Daemon, environment, find
from tests.fakes.nvml import FakeNvml

PROCESSES = ("--process-metrics", "--process-metrics.min-age", "0s")
FLAGS = pytest.mark.parametrize("flags", [(), PROCESSES], ids=["plain", "processes"])


def check(promtool: str, text: bytes) -> tuple[int, bytes]:
    """How `promtool check metrics` ends on a text, and what it says of it."""
    command = [promtool, "check", "metrics"]
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return result.returncode, result.stdout


def test_promtool_does_find_fault(promtool: str) -> None:
    code, output = check(promtool, b"# TYPE gpu_energy_millijoules counter\ngpu_energy_millijoules 1\n")
    assert code == 3
    assert b"no help text" in output


@FLAGS
def test_show_is_clean(promtool: str, flags: tuple[str, ...]) -> None:
    command = [*GPUTALLY, "show", "--machine", "simulated", *flags]
    shown = subprocess.run(
        command, env=environment({}), stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout
    assert (b"\ngputally_process_" in shown) == bool(flags)
    assert check(promtool, shown) == (0, b"")


@FLAGS
def test_a_scrape_is_clean(promtool: str, nvml_library: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    fake = FakeNvml(tmp_path, gpus=2, library=nvml_library)
    fake.gpus[0].run(os.getpid(), memory=1 << 30)
    fake.gpus[0].busy({os.getpid(): 50})
    fake.lose(1)
    pace = ("--interval", "1s", "--tick", "500ms")
    with Daemon("--nvml.library", str(fake.library), *pace, *flags, env=fake.env) as daemon:
        daemon.wait_for(lambda scrape: find(scrape, "gputally_workload_sm_utilization_ratio"))
        text = daemon.get("/metrics").body
    assert (b"\ngputally_process_" in text) == bool(flags)
    assert check(promtool, text) == (0, b"")
