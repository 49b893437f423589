"""The end in bounded time, whatever hangs (F49)."""

import time
from pathlib import Path

import pytest

from gputally.service import GRACE
from tests.daemon import Daemon
from tests.fakes.disk import FakeDisk
from tests.fakes.nvml import FakeNvml
from tests.faults.nodes import daemon, state, well

SOON = 2 * GRACE + 1.0
"""Seconds in which it ends: what it gives to answers and disks, then to the hardware, and one more."""


def end(node: Daemon) -> float:
    """Seconds from SIGTERM to the end, which is a good one."""
    began = time.monotonic()
    assert node.terminate() == 0
    return time.monotonic() - began


def test_F49_it_ends_though_a_call_never_returns(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        fake.hang(1, "nvmlDeviceGetPowerUsage")
        node.wait_for(lambda s: state(s, fake, 1) == "hung")
        assert end(node) < SOON


@pytest.mark.parametrize("call", ["nvmlShutdown", "nvmlEventSetFree", "nvmlGpmSampleFree"])
def test_F49_it_ends_though_the_library_cannot_be_shut_down(fake: FakeNvml, call: str) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        fake.hang(None, call)
        assert end(node) < SOON
        assert fake.calls(None, call) > 0


def test_F49_it_ends_though_every_disk_hangs(fake: FakeNvml, tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    places = []
    for flag in ("--textfile.directory", "--state.directory"):
        (folder := tmp_path / flag[2:]).mkdir(mode=0o755)
        places += [flag, str(folder)]
    places += ["--metrics-file", str(tmp_path / "metrics.txt")]
    with daemon(fake, *places, env=disk.env) as node:
        node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        node.until(lambda: (tmp_path / "metrics.txt").exists())
        disk.hang()
        assert end(node) < SOON
