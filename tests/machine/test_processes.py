"""Processes by the real /proc, and by folders that look like one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputally.machine.processes import LocalProcesses
from gputally.model import ProcessKey


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def folder(root: Path, pid: int, start: int, comm: str = "train", cgroup: str = "0::/a\n") -> Path:
    path = root / str(pid)
    path.mkdir(exist_ok=True)
    (path / "stat").write_text(f"{pid} ({comm}) S " + "0 " * 18 + f"{start} 0 0\n")
    (path / "cgroup").write_text(cgroup)
    return path


def test_a_living_process_is_read_and_its_end_is_noticed(child: subprocess.Popen[bytes]) -> None:
    processes = LocalProcesses()
    process = processes.read(child.pid)
    assert process is not None
    assert process.comm == "sleep"
    assert process.cgroup == Path(f"/proc/{child.pid}/cgroup").read_text()
    assert process.started_at is not None
    assert abs(process.started_at - time.time()) < 3600
    assert processes.ended() == []
    child.kill()
    child.wait()
    assert processes.ended() == [process.key]
    assert processes.ended() == []
    assert processes.read(child.pid) is None


def test_a_process_that_is_not_there_is_none() -> None:
    assert LocalProcesses().read(2**22 + 1) is None


def test_descriptors_are_given_back(child: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    processes = LocalProcesses()
    for _ in range(50):
        assert processes.read(child.pid) is not None
        processes.read(2**22 + 1)
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # the watch of one process, and that of all
    processes.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("comm", ["a) S 1 2 3 (b", "((", "x y", ") ) )", "", "\ufffd"])
def test_a_name_may_hold_anything(tmp_path: Path, comm: str) -> None:
    folder(tmp_path, 7, 4711, comm)
    process = LocalProcesses(str(tmp_path)).read(7)
    assert process is not None
    assert (process.comm, process.key.start) == (comm, 4711)


def test_invalid_utf8_in_a_name_is_replaced(tmp_path: Path) -> None:
    path = folder(tmp_path, 7, 1)
    (path / "stat").write_bytes(b"7 (caf\xc3) S " + b"0 " * 18 + b"1 0\n")
    process = LocalProcesses(str(tmp_path)).read(7)
    assert process is not None
    assert process.comm == "caf\ufffd"


@pytest.mark.parametrize("stat", ["", "7", "7 (a)", "7 (a) S 1", "7 (a) S " + "x " * 30])
def test_a_stat_that_cannot_be_read_is_no_process(tmp_path: Path, stat: str) -> None:
    path = folder(tmp_path, 7, 1)
    (path / "stat").write_text(stat)
    assert LocalProcesses(str(tmp_path)).read(7) is None


def test_without_pidfds_an_end_and_a_reused_pid_are_noticed_too(tmp_path: Path) -> None:
    processes = LocalProcesses(str(tmp_path))
    folder(tmp_path, 7, 100)
    folder(tmp_path, 8, 100)
    assert processes.read(7) is not None
    assert processes.read(8) is not None
    assert processes.ended() == []
    shutil.rmtree(tmp_path / "7")
    folder(tmp_path, 7, 200)
    assert processes.ended() == [ProcessKey(7, 100)]
    again = processes.read(7)
    assert again is not None
    assert again.key == ProcessKey(7, 200)
    assert processes.ended() == []
