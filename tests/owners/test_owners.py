"""Labels by the cgroup alone, and names from what runtimes and batch systems leave lying about."""

from __future__ import annotations

import json

import pytest

from gputally.model import Device, Holder, Instance, Owner
from gputally.owners import resolve
from gputally.owners.cgroup import parse
from gputally.owners.host import CgroupOwner
from gputally.owners.jobs import JobFiles
from gputally.owners.runtimes import ConmonNames, DockerFiles
from tests.owners.corpus import CASES
from tests.owners.stage import GPU, HEX, OTHER, UID, Stage

SHORT = HEX[:12]
ROOTLESS = f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{HEX}.scope\n"
PODMAN = f"0::/machine.slice/libpod-{HEX}.scope\n"


def resolvers(stage: Stage) -> list[CgroupOwner | DockerFiles | ConmonNames]:
    return [CgroupOwner(), DockerFiles(stage, parse), ConmonNames(stage, parse)]


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        (f"/docker/{HEX}", Owner("docker", container=SHORT, workload=SHORT)),
        (f"/system.slice/nerdctl-{HEX}.scope", Owner("containerd", container=SHORT, workload=SHORT)),
        (f"/actions_job/{HEX}", Owner("container", container=SHORT, workload=SHORT)),
        (f"/ecs/{UID}/{HEX}", Owner("ecs", container=SHORT, workload=UID)),
        ("/lxc.payload.web", Owner("lxc", container="web", workload="web")),
        ("/machine.slice/machine-x.scope", Owner("nspawn", container="x", workload="x")),
        ("/machine.slice/machine-qemu\\x2d1\\x2dw.scope", Owner("vm", workload="w")),
        ("/system.slice/slurmstepd.scope/job_7/step_0", Owner("slurm", workload="7")),
        ("/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0", Owner("slurm", workload="s5K1KKYAYG5D00")),
        ("/torque/7.h", Owner("torque", workload="7.h")),
        (f"/nomad.slice/share.slice/{UID}.web.scope", Owner("nomad", container="web", workload=UID)),
        ("/docker/buildkit/abc", Owner("buildkit", workload="buildkit")),
        ("/system.slice/ollama.service", Owner("systemd", workload="ollama.service")),
        ("/user.slice/user-5.slice/session-3.scope", Owner("user", workload="uid-5")),
        (
            "/user.slice/user-5.slice/user@5.service/app.slice/a.service",
            Owner("user", workload="uid-5/a.service"),
        ),
        ("/user.slice/user-5.slice/user@5.service/x", Owner("user", workload="uid-5")),
        (
            f"/user.slice/user-5.slice/user@5.service/libpod-conmon-{HEX}.scope",
            Owner("user", workload="uid-5"),
        ),
        ("/user.slice/user-5.slice/user@5.service/lxc.monitor.x/mine", Owner("user", workload="uid-5")),
        ("/user.slice/user-5.slice/user@5.service/lxc.monitor/mine", Owner("user", workload="uid-5")),
        ("/", Owner("host", workload="train")),
        (f"/machine.slice/libpod-conmon-{HEX}.scope", Owner("host", workload="train")),
        ("/machine.slice/systemd-nspawn@w.service/supervisor", Owner("host", workload="train")),
        (f"/kubepods/pod{UID}/{HEX}", Owner("pod", pod=UID)),
        (
            f"/docker/{OTHER}/kubepods/pod{UID}/{HEX}",
            Owner("pod", pod=f"docker/{OTHER[:12]}/{UID}", workload=f"docker/{OTHER[:12]}"),
        ),
        (f"/system.slice/cri-containerd-{HEX}.scope", Owner("pod", container=SHORT)),
        (f"/docker/{HEX}/system.slice/slurmstepd.scope/job_5/step_0", Owner("docker", "", "", SHORT, SHORT)),
    ],
)
def test_labels_by_the_path_alone(path: str, owner: Owner) -> None:
    stage = Stage()
    assert resolve(resolvers(stage), stage.start(1, f"0::{path}\n")) == owner


def test_everybody_of_the_corpus_has_labels() -> None:
    for case in CASES:
        stage = Stage()
        owner = resolve(resolvers(stage), stage.start(1, case.content))
        assert owner.kind in (case.expect["kind"], "host", "unknown")
        assert owner.workload or owner.kind in ("pod", "unknown")


def test_dockers_files_name_its_containers() -> None:
    stage = Stage()
    path = f"/var/lib/docker/containers/{HEX}/config.v2.json"
    process = stage.start(1, f"0::/docker/{HEX}\n")
    stage.files[path] = json.dumps({"ID": HEX, "Name": "/web"}).encode()
    assert resolve(resolvers(stage), process) == Owner("docker", container="web", workload="web")
    for wrong in (b"{", b"[]", b"[" * 100_000, b'{"ID": "x", "Name": "/web"}', b'{"ID": 1}', b"\xff"):
        stage.files[path] = wrong
        assert resolve(resolvers(stage), process).workload == SHORT


def test_a_user_who_claims_anothers_container_gets_neither_its_name_nor_its_series() -> None:
    stage = Stage()
    stage.files[f"/var/lib/docker/containers/{HEX}/config.v2.json"] = json.dumps(
        {"ID": HEX, "Name": "/web"}
    ).encode()
    owner = resolve(resolvers(stage), stage.start(1, ROOTLESS))
    assert owner == Owner("docker", container=SHORT, workload=f"uid-1000/{SHORT}")


def put(stage: Stage, pid: int, parent: int, cgroup: str, *words: str) -> None:
    stage.files[f"/proc/{pid}/stat"] = f"{pid} (a) b) S {parent} 0 0\n".encode()
    stage.files[f"/proc/{pid}/cgroup"] = cgroup.encode()
    stage.files[f"/proc/{pid}/cmdline"] = "\0".join(words).encode()


def test_conmon_names_podmans_containers() -> None:
    stage = Stage()
    process = stage.start(30, PODMAN)
    put(stage, 30, 20, PODMAN, "train")
    put(stage, 20, 10, PODMAN, "/usr/bin/conmon", "-c", HEX, "-n", "victim")
    put(stage, 10, 1, "0::/machine.slice/x.scope\n", "/usr/bin/conmon", "-c", HEX, "-u", HEX, "-n", "web")
    assert resolve(resolvers(stage), process) == Owner("podman", container="web", workload="web")
    put(stage, 10, 1, "0::/\n", "/usr/bin/conmon", "-c", OTHER, "-n", "web")
    assert resolve(resolvers(stage), process).workload == SHORT
    put(stage, 10, 1, "0::/\n", "/usr/bin/bash", "-c", HEX, "-n", "web")
    assert resolve(resolvers(stage), process).workload == SHORT
    put(stage, 20, 20, PODMAN)  # a loop, which the kernel does not make
    assert resolve(resolvers(stage), process).workload == SHORT


def on(index: int, *holders: Holder, **more: object) -> Device:
    return Device(GPU, index, holders=holders, **more)  # type: ignore[arg-type]


def test_job_files_name_the_job_of_a_gpu() -> None:
    stage = Stage()
    jobs = JobFiles(stage, "/run/jobs/")
    jobs.look([on(3, Holder(1, None)), on(4, Holder(2, None))])
    process, host = stage.start(1, "0::/\n"), Owner("host", workload="train")
    assert jobs.refine(process, host) == host
    stage.files["/run/jobs/3"] = b"\n4711 \n"
    assert jobs.refine(process, host) == Owner("job", workload="4711")
    assert jobs.refine(process, Owner("user", workload="uid-1")).kind == "job"
    assert jobs.refine(process, Owner("slurm", workload="5")).workload == "5"
    assert jobs.refine(process, Owner("pod", pod="x")).kind == "pod"
    stage.files["/run/jobs/3"] = b"4711\n4712\n"
    assert jobs.refine(process, host) == host
    assert jobs.refine(stage.start(9, "0::/\n"), host) == host


def test_job_files_of_mig_instances() -> None:
    stage = Stage()
    jobs = JobFiles(stage, "/run/jobs")
    jobs.look([on(0, Holder(1, None, "MIG-a"), instances=(Instance("MIG-a", 5, 0), Instance("MIG-b", 6, 0)))])
    stage.files |= {"/run/jobs/0.5": b"mine\n", "/run/jobs/0.6": b"other\n", "/run/jobs/0": b"whole\n"}
    assert jobs.refine(stage.start(1, "0::/\n"), Owner("host")) == Owner("job", workload="mine")
