"""Totals that survive a restart, and files that are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.accounts import REASONS
from gputally.ledger import Ledger
from gputally.model import PENDING, Activity, Device, Holder, Owner, Process, ProcessKey, Snapshot
from gputally.state import NAME, State
from tests.daemon import Daemon, Samples, environment, find
from tests.fakes.nvml import FakeNvml

ENERGY = "gputally_gpu_energy_joules_total"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def fake(tmp_path: Path, nvml_library: Path) -> FakeNvml:
    (tmp_path / "nvml").mkdir()
    fake = FakeNvml(tmp_path / "nvml", 1, library=nvml_library)
    fake.gpus[0].watts = 200
    return fake


def daemon(fake: FakeNvml, folder: Path) -> Daemon:
    flags = ("--nvml.library", str(fake.library), "--interval", "1s", "--state.directory", str(folder))
    return Daemon(*flags, env=fake.env)


def conserved(samples: Samples) -> bool:
    charged = sum(find(samples, "gputally_namespace_energy_joules_total"))
    rest = [
        *find(samples, "gputally_gpu_idle_energy_joules_total"),
        *find(samples, "gputally_gpu_unattributed_energy_joules_total"),
        *find(samples, "gputally_gpu_pending_energy_joules"),
    ]
    return abs(sum(find(samples, ENERGY)) - charged - sum(rest)) < 1e-6


def above(joules: float) -> Callable[[Samples], bool]:
    return lambda samples: sum(find(samples, ENERGY)) > joules


def test_what_was_used_while_nobody_watched_is_said_so(fake: FakeNvml, folder: Path) -> None:
    with daemon(fake, folder) as first:
        before = first.wait_for(above(300))
        assert first.terminate() == 0
    fake.gpus[0].jump(50_000)
    with daemon(fake, folder) as second:
        down = {"reason": "exporter_down"}
        after = second.wait_for(
            lambda s: sum(find(s, "gputally_gpu_unattributed_energy_joules_total", **down)) >= 50
        )
    assert sum(find(after, ENERGY)) >= sum(find(before, ENERGY)) + 50
    assert conserved(after)


def test_a_killed_exporter_loses_at_most_what_it_had_not_published(fake: FakeNvml, folder: Path) -> None:
    with daemon(fake, folder) as first:
        first.wait_for(above(300))
        first.kill()
    with daemon(fake, folder) as second:
        after = second.wait_for(above(1))
    assert sum(find(after, ENERGY)) >= 300
    assert conserved(after)


def test_a_counter_that_began_anew_is_a_reset_and_no_energy(fake: FakeNvml, folder: Path) -> None:
    with daemon(fake, folder) as first:
        first.wait_for(above(300))
        first.terminate()
    fake.gpus[0].reset()
    with daemon(fake, folder) as second:
        after = second.wait_for(lambda s: sum(find(s, "gputally_gpu_energy_resets_total")) == 1)
    assert find(after, "gputally_gpu_unattributed_energy_joules_total", reason="exporter_down") == [0.0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-40],
        lambda data: data.replace(b"energy", b"energie", 1),
        lambda data: b"",
        lambda data: b"\x00" * 100,
        lambda data: b"gputally-state 2 abc\n{}",
    ],
    ids=["cut", "changed", "empty", "zeros", "foreign"],
)
def test_a_file_that_cannot_be_used_is_refused_and_kept_aside(
    fake: FakeNvml, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    with daemon(fake, folder) as first:
        first.wait_for(above(1))
        first.terminate()
    path = folder / NAME
    path.write_bytes(damage(path.read_bytes()))
    with daemon(fake, folder) as second:
        second.wait_for(above(1))
        (told,) = [line["msg"] for line in second.log if line["level"] == "error"]
        assert str(path) in told
        assert "start anew" in told
    assert (folder / f"{NAME}.refused").exists()


def refused(folder: Path) -> str:
    command = [sys.executable, "-m", "gputally", "serve", "--machine", "simulated"]
    flags = ["--web.listen-address", "127.0.0.1:0", "--state.directory", str(folder)]
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_a_folder_that_others_can_write_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    assert "chmod go-w" in refused(folder)


def test_a_link_to_a_folder_and_a_missing_one_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert str(tmp_path / "link") in refused(tmp_path / "link")
    assert "must be a folder" in refused(tmp_path / "nowhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    os.chown(folder, 65534, 65534)
    assert "belongs to uid 65534" in refused(folder)


def test_a_planted_link_or_pipe_in_place_of_the_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    state = State(str(folder), "boot")
    (folder / NAME).symlink_to(victim)
    assert state.load(0.0, 0.0)[1] == {}
    state.save(state.seal(Ledger("test"), 0.0))
    assert victim.read_text() == "precious"
    (folder / NAME).unlink()
    os.mkfifo(folder / NAME)
    assert state.load(0.0, 0.0)[1] == {}


def test_nothing_is_lost_on_the_way_through_the_file(folder: Path) -> None:
    ledger = Ledger("test", scraped=True)
    known, unnamed = ProcessKey(1, 1), ProcessKey(2, 1)
    processes = {1: Process(known, "a", ""), 2: Process(unnamed, "b", "")}
    owners = {known: Owner("pod", "ml", "train-0", "main"), unnamed: PENDING}
    snapshots = [
        Snapshot(
            100.0 + n,
            100.0 + n,
            (
                Device(
                    "GPU-1",
                    0,
                    read_at=100.0 + n,
                    gauges_at=100.0 + n,
                    energy_uj=10**9 + n * 123_456_789,
                    holders=(Holder(1, 5), Holder(2, 5)),
                    activities=(Activity(1, 0, 0.6), Activity(2, 0, 0.3)),
                    activity_seconds=1.0,
                ),
            ),
            processes,
            owners,
        )
        for n in range(9)
    ]
    for snapshot in snapshots:
        ledger.post(snapshot)
    state = State(str(folder), "boot")
    state.save(state.seal(ledger, 108.0))
    books, memory = state.load(5_000.0, 110.0)
    again = Ledger("test", books=books, memory=memory)
    gpu = again.books.gpus["GPU-1"]
    charged = sum(total.amounts.all_uj for total in again.books.namespaces.totals.values())
    assert gpu.energy_uj == 8 * 123_456_789 == charged + sum(gpu.unattributed_uj.values())
    assert gpu.unattributed_uj["unnamed"] > 0
    assert set(gpu.unattributed_uj) == set(REASONS)
    assert memory["GPU-1"].meter.read_at == 4_998.0
    assert memory["GPU-1"].intensity.watts.keys() == {owners[known]}
    assert State(str(folder), "another boot").load(5_000.0, 110.0)[1] == {}
