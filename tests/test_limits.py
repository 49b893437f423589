"""Memory limits of workloads: who says them, and of which GPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gputally.limits import hami_bytes, limits
from gputally.machine.masks import HAMI
from gputally.model import Detail, Device, Grant, Holder, Instance, Owner, Process, ProcessKey, Snapshot
from tests.daemon import GPUTALLY, Daemon, Samples, environment, find

MIB = 2**20
BIG, SMALL = (f"GPU-{n}1111111-2222-3333-4444-555555555555" for n in (1, 2))
NODE = (Device(BIG, 0, memory_total_bytes=80_000 * MIB), Device(SMALL, 1, memory_total_bytes=16_000 * MIB))
A, B, C = (Owner("pod", "ml", name, "main") for name in "abc")
LIMIT = "gputally_workload_memory_limit_bytes"


def said(snapshot: Snapshot) -> dict[tuple[str, str, str], int]:
    fresh = {device.uuid: device for device in snapshot.devices}
    found = limits(snapshot, fresh)
    return {(limit.owner.pod, limit.uuid, limit.method): limit.memory_bytes for limit in found}


def node(*grants: Grant, ratio: float | None = None, notes: dict[Owner, str] | None = None) -> Snapshot:
    details = {owner: Detail(annotations={HAMI: note}) for owner, note in (notes or {}).items()}
    return Snapshot(0, 0, NODE, grants=grants, vgpu_ratio=ratio, details=details)


def test_the_ratio_divides_each_gpus_own_memory() -> None:
    found = said(node(Grant(A, BIG), Grant(B, SMALL), ratio=2.5))
    assert found == {("a", BIG, "ratio"): 32_000 * MIB, ("b", SMALL, "ratio"): 6_400 * MIB}


def test_who_is_on_a_gpu_without_a_grant_has_the_ratios_limit_too() -> None:
    device = Device(BIG, 0, memory_total_bytes=8 * MIB, holders=(Holder(7, None), Holder(8, None)))
    process = Process(ProcessKey(7, 1), "train", "0::/")
    owners = {process.key: A}
    snapshot = Snapshot(0, 0, (device,), {7: process}, owners, vgpu_ratio=4)
    assert said(snapshot) == {("a", BIG, "ratio"): 2 * MIB}


def test_replicas_share_the_gpu_that_they_are_granted() -> None:
    found = said(node(Grant(A, BIG), Grant(B, BIG), Grant(C, SMALL)))
    assert found == {("a", BIG, "replicas"): 40_000 * MIB, ("b", BIG, "replicas"): 40_000 * MIB}


def test_a_mig_instance_has_its_own_memory() -> None:
    instance = Instance("MIG-1", 1, 0, "1g.10gb", memory_total_bytes=9_728 * MIB)
    device = Device(BIG, 0, memory_total_bytes=80_000 * MIB, instances=(instance,))
    snapshot = Snapshot(
        0, 0, (device,), grants=(Grant(A, BIG, "MIG-1"), Grant(B, BIG, "MIG-2")), vgpu_ratio=4
    )
    assert said(snapshot) == {("a", BIG, "mig"): 9_728 * MIB}


def test_hami_says_it_itself() -> None:
    note = f"{BIG},NVIDIA,4000,30:;"
    found = said(node(Grant(A, BIG), Grant(B, BIG), notes={A: note}))
    assert found == {("a", BIG, "hami"): 4000 * MIB, ("b", BIG, "replicas"): 40_000 * MIB}


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        (f"{BIG},NVIDIA,4000,0:;", 4000),
        (f"{SMALL},NVIDIA,1000,0:{BIG},NVIDIA,4000,0:;", 4000),
        (f";{BIG},NVIDIA,4000,0:;", 4000),
        (f"{BIG},NVIDIA,4000,0:;{BIG},NVIDIA,4000,0:;", 4000),
        (f"{BIG},NVIDIA,4000,0:;{BIG},NVIDIA,2000,0:;", None),
        (f"{BIG}[0-1],NVIDIA,4000,0:;", 4000),
        (f"{SMALL},NVIDIA,1000,0:;", None),
        (f"{BIG},NVIDIA,-5,0:;", None),
        (f"{BIG},NVIDIA,{'9' * 400},0:;", None),
        (f"{BIG},NVIDIA,٤,0:;", None),
        ("", None),
        (";;;:::,,,", None),
        ("x" * 10**6, None),
    ],
)
def test_hamis_note(note: str, expected: int | None) -> None:
    found = hami_bytes(note, BIG)
    assert found == (None if expected is None else expected * MIB)


def test_a_gpu_that_does_not_answer_has_no_limits() -> None:
    assert limits(node(Grant(A, BIG), ratio=2), {}) == ()
    assert limits(node(Grant(A, BIG), ratio=2), {BIG: Device(BIG, 0)}) == ()


def ratios(samples: Samples) -> set[float]:
    return set(find(samples, LIMIT, method="ratio", gpu="0"))


def test_a_change_of_the_file_counts_at_once_and_trouble_is_said_once(tmp_path: Path) -> None:
    file = tmp_path / "gpu_allocation.txt"
    file.write_text("4\n")
    with Daemon("--machine", "simulated", "--interval", "1s", "--vgpu.ratio-file", str(file)) as server:
        total = find(server.wait_for(ratios), "gputally_gpu_memory_total_bytes", gpu="0")[0]
        assert ratios(server.metrics()) == {total / 4}
        file.write_text("2.5")
        server.wait_for(lambda samples: ratios(samples) == {round(total / 2.5)})
        file.write_text("four")
        samples = server.wait_for(lambda samples: not ratios(samples))
        assert find(samples, "gputally_up") == [1]
        server.line("no memory limits by ratio: .*'four'; it must hold a number")
        file.unlink()
        server.line("no memory limits by ratio: .* is not there")
        file.write_text("8")
        server.line("the ratio of virtual GPUs is 8 again")
        server.wait_for(lambda samples: ratios(samples) == {total / 8})
        assert len([line for line in server.lines if "no memory limits" in line]) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "is not there"),
        ("", "holds ''"),
        ("0", "from 1 to 1000"),
        ("1e3", "1 to 1000"),
        ("-2", "1 to 1000"),
    ],
)
def test_a_file_that_does_not_tell_at_the_start_is_an_error(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "ratio"
    if content is not None:
        file.write_text(content)
    refused(reason, "--vgpu.ratio-file", str(file))


def test_a_fifo_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ratio")
    refused("is not there, or not for us", "--vgpu.ratio-file", str(tmp_path / "ratio"))


def test_two_ratios_are_an_error(tmp_path: Path) -> None:
    refused("cannot both be used", "--vgpu.ratio", "2", "--vgpu.ratio-file", str(tmp_path))


def refused(reason: str, *flags: str) -> None:
    command = [*GPUTALLY, "serve", "--web.listen-address", "127.0.0.1:0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert ended.returncode == 2
    assert re.search(reason, ended.stderr), ended.stderr
    assert "listening" not in ended.stderr
