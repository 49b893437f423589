"""Faults of processes, identity and /proc (F22 to F32), on the real kernel where it lets us."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputally.machine.local import LocalMachine
from gputally.machine.processes import LocalProcesses, exists, read_file
from gputally.model import UNKNOWN
from gputally.outputs.text import clean
from gputally.owners.cgroup import parse
from gputally.owners.host import CgroupOwner
from gputally.owners.jobs import JobFiles
from gputally.owners.runtimes import DockerFiles
from tests.fakes.nvml import FakeNvml
from tests.fakes.shared import COMPILER
from tests.faults.nodes import renamed
from tests.owners.stage import HEX, Stage

needs_compiler = pytest.mark.skipif(not shutil.which(COMPILER[0]), reason=f"no {COMPILER[0]} here")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def folder(
    root: Path, pid: int, start: int, state: str = "S", comm: str = "train", cgroup: str = "0::/a\n"
) -> None:
    path = root / str(pid)
    path.mkdir(exist_ok=True)
    (path / "stat").write_text(f"{pid} ({comm}) {state} " + "0 " * 18 + f"{start} 0 0\n")
    (path / "cgroup").write_text(cgroup)


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_f22_a_name_full_of_brackets_does_not_hide_the_start_time(tmp_path: Path) -> None:
    folder(tmp_path, 7, 4321, comm="evil) R 1 (x.sh")
    process = LocalProcesses(str(tmp_path)).read(7)
    assert process is not None
    assert process.key.start == 4321
    assert process.comm == "evil) R 1 (x.sh"


class Interrupted(LocalProcesses):
    """Reads processes, and lets something happen between the two looks at one."""

    def __init__(self, meanwhile: Callable[[], object], root: str = "/proc") -> None:
        super().__init__(root)
        self._meanwhile = meanwhile

    def _pidfd(self, pid: int) -> int | None:
        fd = super()._pidfd(pid)
        self._meanwhile()
        return fd


def test_f22_a_number_reused_while_it_is_read_is_nobody(tmp_path: Path) -> None:
    folder(tmp_path, 7, 1)
    processes = Interrupted(lambda: folder(tmp_path, 7, 2), str(tmp_path))
    assert processes.read(7) is None
    assert processes.ended() == []
    heir = processes.read(7)
    assert heir is not None
    assert heir.key.start == 2


def test_f22_a_process_that_cannot_be_read_again_is_watched_on(tmp_path: Path) -> None:
    folder(tmp_path, 7, 1)
    processes = LocalProcesses(str(tmp_path))
    known = processes.read(7)
    assert known is not None
    shutil.rmtree(tmp_path / "7")
    assert processes.read(7) is None
    assert processes.ended() == [known.key]


def test_f23_a_process_that_ends_while_it_is_read_leaves_nothing_behind() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        processes = Interrupted(lambda: end(child))
        before = os.listdir("/proc/self/fd")
        assert processes.read(child.pid) is None
        assert os.listdir("/proc/self/fd") == before
        assert processes.ended() == []


def test_f23_a_descriptor_that_is_nobodys_hides_no_end() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        processes, stray = LocalProcesses(), os.pidfd_open(child.pid)
        processes._epoll.register(stray, select.EPOLLIN)
        known = processes.read(child.pid)
        assert known is not None
        end(child)
        assert processes.ended() == [known.key]
        assert processes._epoll.poll(0) == []
        os.close(stray)


def test_f23_a_zombie_that_left_its_cgroups_is_not_a_process_of_the_host(tmp_path: Path) -> None:
    folder(tmp_path, 7, 1, state="Z", cgroup="3:memory:/\n0::/\n")
    assert LocalProcesses(str(tmp_path)).read(7) is None
    folder(tmp_path, 8, 1, state="Z", cgroup=f"0::/docker/{HEX} (deleted)\n")
    process = LocalProcesses(str(tmp_path)).read(8)
    assert process is not None
    assert parse(process.cgroup).container_id == HEX


def test_f23_a_real_zombie_ends() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        processes = LocalProcesses()
        known = processes.read(child.pid)
        assert known is not None
        child.kill()
        deadline = time.monotonic() + 60
        while not (ended := processes.ended()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(ended) == [known.key]  # though nobody has waited for it yet


def test_f24_ten_thousand_processes_are_not_walked(tmp_path: Path) -> None:
    for pid in range(1000, 11_000):
        (tmp_path / str(pid)).mkdir()
    folder(tmp_path, 5000, 1)
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in WATCHED and ON else None)
    machine = LocalMachine(proc_root=str(tmp_path))
    ON.append(True)
    assert machine.process(5000) is not None
    for _ in range(10):
        machine.ended()
    ON.clear()
    assert len(opened) < 50
    assert not [path for path in opened if path == str(tmp_path)]


WATCHED = ("open", "os.listdir", "os.scandir")
ON: list[bool] = []


@needs_compiler
def test_f25_in_a_pid_namespace_of_its_own_nothing_looks_idle(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no PID namespace can be made here: unshare --pid is not permitted")
    fake = FakeNvml(tmp_path, gpus=1)
    fake.gpus[0].run(child.pid, memory=2**30)
    fake.gpus[0].busy({child.pid: 50})
    command = [sys.executable, "-m", "gputally", "show", "--nvml.library", str(fake.library)]
    shown = subprocess.run(
        [*apart, *command], env=os.environ | fake.env, capture_output=True, text=True, check=True
    )
    assert 'gputally_host_pid{mode="no"} 1' in shown.stdout
    assert 'gputally_processes{result="no_host_pid"} 1' in shown.stdout
    assert "gputally_workload_" not in shown.stdout
    assert "gputally_gpu_processes{" not in shown.stdout
    assert "gputally_gpu_power_watts{" in shown.stdout
    assert shown.stderr.count("hostPID: true") == 1
    inode = os.stat("/proc/self/ns/pid").st_ino
    if inode != 4_026_531_836:
        pytest.skip("these tests run in a container: the host's own namespace cannot be shown")
    plain = subprocess.run(command, env=os.environ | fake.env, capture_output=True, text=True, check=True)
    assert 'gputally_host_pid{mode="yes"} 1' in plain.stdout
    assert "gputally_workload_memory_used_bytes{" in plain.stdout


def test_f26_a_process_that_hidepid_hides_is_hidden_and_not_gone(child: subprocess.Popen[bytes]) -> None:
    script = (
        "import os\n"
        "from gputally.machine.local import LocalMachine\n"
        "machine = LocalMachine()\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"print(machine.process({child.pid}), machine.exists({child.pid}))\n"
    )
    mount = "mount -t proc -o hidepid=2 proc /proc && exec "
    command = ["unshare", "--mount", "sh", "-c", f"{mount} {sys.executable} -"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"/proc cannot be mounted with hidepid here: {done.stderr.strip()[-200:]}")
    assert done.stdout == "None True\n"


def test_f28_what_a_process_says_of_itself_changes_nothing() -> None:
    with renamed("b'victim'", HOSTNAME="victim", POD_NAME="victim", SLURM_JOB_ID="666") as liar:
        machine = LocalMachine()
        process, own = machine.process(liar.pid), machine.process(os.getpid())
        liar.kill()
    assert process is not None
    assert own is not None
    assert process.comm == "victim"
    assert process.cgroup == own.cgroup
    assert parse(process.cgroup) == parse(own.cgroup)


@pytest.mark.parametrize("name", ["../../etc/passwd", "x" * 4096, "a\x00b", "..", "DEADBEEF" * 8])
def test_f29_no_path_is_built_from_what_is_no_id(name: str) -> None:
    stage = Stage()
    for cgroup in (
        f"0::/docker/{name}\n",
        f"0::/system.slice/docker-{name}.scope\n",
        f"0::/docker/{HEX}{name}\n",
    ):
        process = stage.start(1, cgroup)
        DockerFiles(stage, parse).refine(process, CgroupOwner().refine(process, UNKNOWN))
    assert stage.asked["file"] == 0
    assert read_file("/proc/self/\x00") is None


def test_f29_pipes_devices_and_huge_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0")
    assert read_file(str(tmp_path / "0")) is None
    assert read_file("/dev/zero") is None
    assert read_file(str(tmp_path)) is None
    (tmp_path / "big").write_bytes(bytes(100))
    assert read_file(str(tmp_path / "big"), most=99) is None
    assert read_file(str(tmp_path / "big"), most=100) == bytes(100)
    stage = Stage()
    stage.files["/jobs/0"] = b"x" * 10_000
    jobs = JobFiles(stage, "/jobs")
    assert all(len(job) <= 128 for job in jobs._jobs("0"))


def test_f31_a_name_cut_inside_a_letter_is_still_text() -> None:
    with renamed(r"b'x' * 14 + '\u00e9'.encode()") as odd:
        process = LocalMachine().process(odd.pid)
        odd.kill()
    assert process is not None
    assert process.comm == "x" * 14 + "\ufffd"


def test_f32_no_name_is_longer_than_its_bound() -> None:
    stage = Stage()
    for path in (
        "/lxc.payload." + "x" * 5000,
        "/system.slice/" + "y" * 5000 + ".service",
        "/torque/1." + "z" * 5000,
    ):
        owner = CgroupOwner().refine(stage.start(1, f"0::{path}\n"), UNKNOWN)
        assert 0 < len(owner.workload) <= 256
        assert len(clean(owner.workload)) <= 256


def test_who_is_there_and_who_is_not(child: subprocess.Popen[bytes]) -> None:
    assert exists(child.pid)
    assert not exists(2**22 + 1)
    assert not exists(2**70)
