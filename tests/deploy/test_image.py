"""The image, built without a registry: the base is this computer's Python, the packages are its wheels."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.chart import ROOT, tool

TOOLS = ("bash", "grep", "ldd", "sh", "true")
RUN = ("--cgroup-manager", "cgroupfs", "--runtime", "runc")
TIGHT = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges")
HERE = ("--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")


pytestmark = pytest.mark.timeout(300)


class Podman:
    """podman with a store of its own, so that nobody's images are touched."""

    def __init__(self, folder: Path) -> None:
        self._words = [tool("podman", everywhere=False), "--root", str(folder / "store")]
        self._words += ["--runroot", str(folder / "run"), "--storage-driver", "overlay"]

    def __call__(self, *words: str, timeout: float = 110) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._words, *words], capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """podman with the image `gputally` in its store."""
    if os.getuid():
        pytest.skip("building the image here needs root")
    folder = tmp_path_factory.mktemp("image")
    ask = Podman(folder)
    wheels = _wheels(folder / "wheels")
    _base(folder / "base")
    subprocess.run(["tar", "-C", str(folder / "base"), "-cf", str(folder / "base.tar"), "."], check=True)
    changes = (
        "PIP_ROOT_USER_ACTION=ignore",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PIP_NO_INDEX=1",
        "PIP_FIND_LINKS=/index",
    )
    imported = ask("import", *(f"--change=ENV {one}" for one in changes), str(folder / "base.tar"), "base")
    build = ("build", "--isolation=chroot", "--layers=false", f"--volume={wheels}:/index:ro")
    (folder / "Trial").write_text("FROM localhost/base\nRUN true\n", encoding="utf-8")
    trial = ask(*build, "--file", str(folder / "Trial"), str(folder / "run"))
    if imported.returncode or trial.returncode:
        pytest.skip(f"podman cannot build here: {(imported.stderr + trial.stderr).strip()[-300:]}")
    base = "--build-arg=PYTHON_IMAGE=localhost/base"
    built = ask(*build, base, "--tag=gputally", str(ROOT))
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    yield ask
    # podman leaves its store mounted upon itself.
    subprocess.run(["umount", str(folder / "store" / "overlay")], capture_output=True, timeout=60)
    shutil.rmtree(folder, ignore_errors=True)


def _wheels(folder: Path) -> Path:
    """Every package that the image is made of."""
    for name in ("build", "run"):
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        words += ["--require-hashes", "--dest", str(folder), "-r", str(ROOT / "requirements" / f"{name}.txt")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=110)
        if done.returncode:
            pytest.skip(f"the packages cannot be fetched: {done.stderr.strip()[-300:]}")
    return folder


def _base(root: Path) -> None:
    """What the builder needs of python:slim: Python with pip in /usr/local, and a few tools of Debian."""
    for name in ("usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "etc/ssl/certs", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    prefix, version = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = root / "usr/local/lib" / version
    unwanted = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-*")
    shutil.copytree(prefix / "lib" / version, library, ignore=unwanted, symlinks=True)
    shutil.copytree(prefix / "lib" / version / "site-packages" / "pip", library / "site-packages" / "pip")
    for shared in (prefix / "lib").glob("libpython*"):
        shutil.copy2(shared, root / "usr/local/lib", follow_symlinks=False)
    shutil.copy2(prefix / "bin" / version, root / "usr/local/bin")
    for alias in ("python3", "python"):
        (root / "usr/local/bin" / alias).symlink_to(version)
    pip = root / "usr/local/bin/pip"
    pip.write_text('#!/bin/sh\nexec python3 -m pip "$@"\n', encoding="utf-8")
    pip.chmod(0o755)
    binaries = [Path(shutil.which(name) or f"/usr/bin/{name}").resolve() for name in TOOLS]
    for name, path in zip(TOOLS, binaries, strict=True):
        shutil.copy2(path, root / "usr/bin" / name)
    objects = [*binaries, prefix / "bin" / version, *(library / "lib-dynload").glob("*.so")]
    linked = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, timeout=60).stdout
    found = {word for line in linked.splitlines() for word in line.split() if word.startswith("/")}
    stubs = Path("/usr/lib").glob("*-linux-gnu/lib[dpr][lt]*.so.[012]")
    for name in {*found, *map(str, stubs)}:
        if Path(name).is_file() and not name.startswith(str(prefix)):
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, target)
    for name in ("/etc/debian_version", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copy2(name, root / name.lstrip("/"))
    (root / "etc/ld.so.conf").write_text("/usr/local/lib\n", encoding="utf-8")
    subprocess.run(["ldconfig", "-r", str(root)], capture_output=True, check=True, timeout=60)


def test_there_is_no_shell_and_no_pip_in_it(podman: Podman, tmp_path: Path) -> None:
    made = podman("create", "--name=content", "localhost/gputally")
    assert made.returncode == 0, made.stderr
    tar = tmp_path / "content.tar"
    assert podman("export", "--output", str(tar), "content").returncode == 0
    names = subprocess.run(
        ["tar", "-tf", str(tar)], capture_output=True, text=True, check=True
    ).stdout.split()
    shells = {"sh", "bash", "dash", "busybox", "pip", "pip3"}
    assert [name for name in names if Path(name).name in shells and "/bin/" in f"/{name}"] == []
    assert not [name for name in names if "site-packages/pip/" in name]
    assert not [name for name in names if "libnvidia-ml" in name]
    assert [name for name in names if name.endswith("libpthread.so.0")]
    (settings,) = json.loads(podman("inspect", "localhost/gputally").stdout)
    assert settings["Config"]["User"] == "65532:65532"
    assert settings["Config"]["Entrypoint"] == ["/usr/local/bin/gputally"]


def test_it_runs_with_nothing_to_write_on_and_no_rights(podman: Podman) -> None:
    flags = [*HERE, *TIGHT]
    trial = podman(*RUN, "run", "--rm", *flags, "localhost/base", "true")
    if trial.returncode:
        pytest.skip(f"podman cannot run containers here: {trial.stderr.strip()[-300:]}")
    done = podman(*RUN, "run", "--rm", *flags, "localhost/gputally", "show", "--machine", "simulated")
    assert done.returncode == 0, done.stderr
    assert "\ngputally_gpu_energy_joules_total{" in done.stdout
    words = ["--entrypoint=python3", "localhost/gputally", "-c", "import ssl, socket, urllib.request"]
    done = podman(*RUN, "run", "--rm", *flags, *words)
    assert done.returncode == 0, done.stderr
