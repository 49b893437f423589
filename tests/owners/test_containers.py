"""Real containers of podman and runc, found by the real /proc."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputally.machine.local import LocalMachine
from gputally.model import Owner
from gputally.owners import resolve
from gputally.owners.cgroup import parse
from gputally.owners.host import CgroupOwner
from gputally.owners.runtimes import ConmonNames

NEEDED = ("podman", "runc", "conmon", "busybox")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


class Podman:
    """A Podman with a store of its own."""

    def __init__(self, folder: Path) -> None:
        places = (f"--root={folder}/store", f"--runroot={folder}/run", f"--tmpdir={folder}/tmp")
        self._command = ("podman", *places, "--runtime=runc", "--cgroup-manager=cgroupfs")

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [*self._command, *words], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            pytest.skip(f"podman {words[0]} does not work here: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()


@pytest.fixture
def podman() -> Iterator[Podman]:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: apt-get install podman runc busybox-static")
    if os.geteuid() != 0:
        pytest.skip("rootful containers need root")
    folder = Path(tempfile.mkdtemp(prefix="gpt-", dir="/tmp"))  # podman wants it short
    image = folder / "image.tar"
    with tarfile.open(image, "w") as tar:
        busybox = shutil.which("busybox")
        assert busybox is not None
        tar.add(os.path.realpath(busybox), "bin/busybox")
    podman = Podman(folder)
    podman("import", str(image), "gputally-test:1")
    yield podman
    podman("rm", "--all", "--force", "--time=0")
    for _ in range(20):  # conmon's own clearing up may still be under way
        subprocess.run(["umount", f"{folder}/store/overlay"], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.2)


def test_a_real_container_is_found_under_its_name(podman: Podman) -> None:
    command = ("/bin/busybox", "sh", "-c", "/bin/busybox sleep 600 & wait")
    number = podman("run", "-d", "--name=trainer", "--network=none", *LIMITS, "gputally-test:1", *command)
    first = int(podman("inspect", "--format={{.State.Pid}}", "trainer"))
    inside = int(Path(f"/proc/{first}/task/{first}/children").read_text().split()[0])
    machine = LocalMachine()
    for pid in (first, inside):
        process = machine.process(pid)
        assert process is not None
        identity = parse(process.cgroup)
        assert (identity.kind, identity.container_id) == ("podman", number)
        owner = resolve([CgroupOwner(), ConmonNames(machine, parse)], process)
        assert owner == Owner("podman", container="trainer", workload="trainer")
    conmon = machine.process(int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1]))
    assert conmon is not None
    assert parse(conmon.cgroup).role == "monitor"
    machine.close()


def test_a_real_container_that_forges_a_path_below_itself_is_still_itself(podman: Podman) -> None:
    number = podman(
        "run",
        "-d",
        "--name=evil",
        "--network=none",
        *LIMITS,
        "gputally-test:1",
        "/bin/busybox",
        "sleep",
        "600",
    )
    pid = int(podman("inspect", "--format={{.State.Pid}}", "evil"))
    memory = next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if number in line)
    _, controllers, path = memory.split(":", 2)
    name = controllers.removeprefix("name=") or "unified"
    for root in (Path("/sys/fs/cgroup") / name, Path("/sys/fs/cgroup")):
        if (root / path.lstrip("/")).is_dir():
            break
    else:
        pytest.skip(f"no folder of {path} in /sys/fs/cgroup")
    forged = root / path.lstrip("/") / f"docker-{'b' * 64}.scope"
    try:
        forged.mkdir()
        (forged / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        pytest.skip(f"cannot make a cgroup below the container's: {error}")
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
        assert "b" * 64 in text
        identity = parse(text)
        assert (identity.kind, identity.container_id, identity.conflict) == ("podman", number, None)
    finally:
        podman("rm", "--force", "--time=0", "evil")
        if forged.is_dir():
            forged.rmdir()
