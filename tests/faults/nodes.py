"""Nodes on which things go wrong: the daemon over the fake NVML, quick enough to watch."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon import PATIENCE, Daemon, Samples, find
from tests.fakes.nvml import FakeNvml, Instance

QUICK = ("--tick", "100ms", "--interval", "1s", "--nvml.deadline", "500ms")
US = os.getpid()
"""A process that is sure to live as long as the test."""


@pytest.fixture
def fake(nvml_library: Path, tmp_path: Path) -> Iterator[FakeNvml]:
    """Four GPUs, each drawing another power; whatever hangs is let go, and none was asked twice at a time."""
    fake = FakeNvml(tmp_path, gpus=4, library=nvml_library)
    for place, gpu in enumerate(fake.gpus):
        gpu.watts = 100 * (place + 1)
    yield fake
    for place in (None, *range(4)):
        fake.release(place)
    assert fake.overlaps == 0


def daemon(fake: FakeNvml, *flags: str, env: Mapping[str, str] | None = None) -> Daemon:
    """`gputally serve` on that machine."""
    return Daemon("--nvml.library", str(fake.library), *QUICK, *flags, env={**fake.env, **(env or {})})


def ended(node: Daemon, seconds: float = PATIENCE) -> int | None:
    """How the daemon ended by itself; None if it did not."""
    try:
        return node._process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def of(samples: Samples, fake: FakeNvml, place: int, name: str, **labels: str) -> float | None:
    """The one sample of a GPU family about that GPU, if there is one."""
    found = find(samples, f"gputally_gpu_{name}", uuid=fake.gpus[place].uuid, **labels)
    assert len(found) <= 1, found
    return found[0] if found else None


def state(samples: Samples, fake: FakeNvml, place: int) -> str:
    """The one state that a GPU is in; nothing where it is not shown at all."""
    names = ("ok", "lost", "hung", "reset_required", "failing", "unsupported", "unread")
    now = [name for name in names if of(samples, fake, place, "state", state=name)]
    assert len(now) <= 1, now
    return now[0] if now else ""


def well(samples: Samples, fake: FakeNvml, *places: int) -> bool:
    """Whether those GPUs are read and show the power that is theirs."""
    return all(
        of(samples, fake, place, "up") == 1
        and of(samples, fake, place, "power_watts") == fake.gpus[place].watts
        for place in places
    )


def instance(uuid: str, gpu_instance: int, profile: str = "1g.10gb", gib: int = 10) -> Instance:
    """A MIG instance."""
    part = Instance(gpu_instance=gpu_instance, slices=int(profile[0]), memory_total=gib << 30)
    part.uuid, part.name = uuid, f"NVIDIA H100 80GB HBM3 MIG {profile}"
    return part


@contextmanager
def renamed(name: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that calls itself something, in bytes as Python writes them."""
    script = (
        "import ctypes, time\n"
        f"ctypes.CDLL(None).prctl(15, {name}, 0, 0, 0)\n"
        "print(flush=True); time.sleep(600)\n"
    )
    command, env = [sys.executable, "-c", script], os.environ | environ
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
