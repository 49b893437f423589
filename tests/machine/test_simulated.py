"""The node that is simulated: who lives there, and what NVML and /proc say of it."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.machine import Machine
from gputally.machine.clocks import VirtualClock
from gputally.machine.messages import LIST_CONTAINERS
from gputally.machine.simulated import SimulatedMachine
from gputally.machine.simulation.busy_node import DEFAULT_CAST
from gputally.machine.simulation.cast import Life, Pod, Workload
from gputally.machine.simulation.kubelet import PODS_API
from gputally.machine.simulation.rhythm import Rhythm
from gputally.machine.simulation.xids import xids
from gputally.model import ProcessKey, Unreadable
from gputally.owners.cgroup import parse
from gputally.owners.cri import Cri
from gputally.owners.pods_api import PodsApi
from gputally.owners.whereabouts import Kubelet
from tests.fakes.rpc import at
from tests.machine.simulated_nodes import (
    BESIDE,
    IDLE,
    MIG,
    MPS,
    a_machine,
    answer,
    uuid,
)
from tests.owners.stage import awaited


def test_gpu_lists_and_proc_agree_on_who_lives() -> None:
    machine, clock = a_machine()
    gpus = [uuid(machine, index) for index in range(8)]
    known: dict[int, ProcessKey] = {}
    ended = 0
    for _ in range(400):
        clock.jump(clock.monotonic() + 0.35)
        lists = [answer(machine, gpu, "nvmlDeviceGetComputeRunningProcesses") for gpu in gpus]
        listed = {row[0] for rows in lists for row in rows}
        gone = machine.ended()
        assert {key.pid for key in gone} == known.keys() - listed
        processes = {pid: machine.process(pid) for pid in listed}
        assert all(process and process.key.pid == pid for pid, process in processes.items())
        known = {pid: process.key for pid, process in processes.items() if process}
        ended += len(gone)
    assert ended > 5
    assert machine.process(1) is None


def test_every_reborn_process_has_a_later_start_and_its_own_cgroup() -> None:
    machine, clock = a_machine(
        cast=[Workload(Pod("ml", "job-{run}", "main"), (0,), life=Life(0.0, 1.0, 2.0))], aged=0.5
    )
    born = []
    for _ in range(5):
        [[pid, *_]] = machine.nvml(uuid(machine, 0), "nvmlDeviceGetComputeRunningProcesses")
        process = machine.process(pid)
        assert process is not None
        assert process.started_at == pytest.approx(clock.time() - 0.5)
        born.append((process, machine.pods()[0]))
        clock.jump(clock.monotonic() + 2.0)
    assert [p.key.start for p, _ in born] == [born[0][0].key.start + 200 * n for n in range(5)]
    assert len({p.cgroup for p, _ in born}) == len({pod.uid for _, pod in born}) == 5
    assert len({pod.name for _, pod in born}) == 5
    assert all(pod.uid.replace("-", "_") in p.cgroup and pod.container_id in p.cgroup for p, pod in born)


def test_an_idle_gpu_draws_idle_power_only() -> None:
    machine, _ = a_machine(aged=300.0)
    gpu = uuid(machine, IDLE)
    assert machine.truth(gpu) == {}
    assert machine.nvml(gpu, "nvmlDeviceGetPowerUsage") == 61_000
    assert machine.nvml(gpu, "nvmlDeviceGetTotalEnergyConsumption") == 61_000 * 300
    assert answer(machine, gpu, "nvmlDeviceGetProcessUtilization") == 6
    assert machine.nvml(gpu, "nvmlDeviceGetUtilizationRates") == {"gpu": 0, "memory": 0}
    assert machine.nvml(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons") == 1


def test_mig_refuses_utilization_and_names_instances() -> None:
    machine, _ = a_machine(aged=30.0)
    gpu = uuid(machine, MIG)
    for call in ("UtilizationRates", "EncoderUtilization", "DecoderUtilization", "ProcessUtilization"):
        assert answer(machine, gpu, f"nvmlDeviceGet{call}") == 3
    rows = machine.nvml(gpu, "nvmlDeviceGetComputeRunningProcesses")
    assert [row[2:] for row in rows] == [[2, 0], [5, 0], [9, 0]]
    assert machine.nvml(gpu, "nvmlDeviceGetMigMode") == [1, 1]
    others = machine.nvml(uuid(machine, BESIDE), "nvmlDeviceGetComputeRunningProcesses")
    assert {tuple(row[2:]) for row in others} == {(0xFFFFFFFF, 0xFFFFFFFF)}


def test_the_mig_gpu_has_the_instances_of_its_cast() -> None:
    machine, _ = a_machine(aged=30.0)
    gpu = uuid(machine, MIG)
    found = [machine.nvml(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", place) for place in range(3)]
    assert answer(machine, gpu, "nvmlDeviceGetMigDeviceHandleByIndex", 3) == 6
    assert answer(machine, uuid(machine, 0), "nvmlDeviceGetMigDeviceHandleByIndex", 0) == 3
    assert [machine.nvml(mig, "nvmlDeviceGetGpuInstanceId") for mig in found] == [2, 5, 9]
    placed = [machine.nvml(gpu, "nvmlGpuInstanceGetInfo", number) for number in (2, 5, 9)]
    assert [info["profileId"] for info in placed] == [9, 14, 19]
    assert [tuple(info["placement"].values()) for info in placed] == [(0, 4), (4, 2), (6, 1)]
    assert answer(machine, gpu, "nvmlGpuInstanceGetInfo", 4) == 6
    granted = {grant for pod in machine.pods() for grant in pod.grants if grant.startswith("MIG-")}
    assert granted == set(found)
    memory = [machine.nvml(mig, "nvmlDeviceGetMemoryInfo_v2") for mig in found]
    assert all(part["used"] + part["free"] == part["total"] for part in memory)
    lists = [machine.nvml(mig, "nvmlDeviceGetComputeRunningProcesses") for mig in found]
    assert [len(rows) for rows in lists] == [1, 1, 1]
    assert 0 < machine.nvml(gpu, "nvmlGpmMigMetricsGet", 2, [1])["1"] <= 100
    assert answer(machine, gpu, "nvmlGpmMigMetricsGet", 4, [1]) == 6
    assert answer(machine, "MIG-none", "nvmlDeviceGetName") == 6


def test_counters_of_a_board_only_grow() -> None:
    machine, clock = a_machine(aged=60.0)
    gpu, before = uuid(machine, BESIDE), {"197": 0, "138": 0}
    for _ in range(50):
        clock.jump(clock.monotonic() + 0.07)
        now = machine.nvml(gpu, "nvmlDeviceGetFieldValues", [[197, 0], [138, 2**32 - 1], [29, 0]])
        assert now.pop("29") == {"error": 3}
        assert all(now[field] >= before[field] for field in now)
        before = now
    assert before["197"] > 0


def test_xids_are_told_once() -> None:
    machine, clock = a_machine(seed=1)
    clock.jump(clock.monotonic() + 86_400)
    told = machine.nvml(None, "nvmlEventSetWait", 10)
    assert {row[0] for row in told} <= {uuid(machine, index) for index in range(8)}
    assert told
    assert machine.nvml(None, "nvmlEventSetWait", 10) == []


def test_mps_lists_its_server_among_the_processes_but_not_among_the_clients() -> None:
    machine, _ = a_machine()
    gpu = uuid(machine, MPS)
    rows = machine.nvml(gpu, "nvmlDeviceGetComputeRunningProcesses")
    clients = machine.nvml(gpu, "nvmlDeviceGetMPSComputeRunningProcesses")
    [server] = [row[0] for row in rows if row not in clients]
    process = machine.process(server)
    assert process is not None
    assert process.comm == "nvidia-cuda-mps"


def test_what_cannot_be_asked_says_so_in_codes() -> None:
    machine, _ = a_machine()
    gpu = uuid(machine, 0)
    questions = [
        (gpu, "nvmlDeviceGetFanSpeed", 3),
        (gpu, "nvmlDeviceGetSamples", 3),
        (gpu, "nvmlMakeCoffee", 13),
        (None, "nvmlMakeCoffee", 13),
        ("GPU-none", "nvmlDeviceGetName", 6),
        (8, "nvmlDeviceGetUUID", 2),
    ]
    for whom, call, code in questions:
        with pytest.raises(Unreadable) as unreadable:
            machine.nvml(whom, call)
        assert unreadable.value.code == code


def test_the_default_node_tells_its_stories() -> None:
    machine: Machine = SimulatedMachine(VirtualClock(), aged=60.0)
    uuids = [machine.nvml(index, "nvmlDeviceGetUUID") for index in range(8)]
    cgroups = [
        [_cgroup(machine, row[0]) for row in machine.nvml(gpu, "nvmlDeviceGetComputeRunningProcesses")]
        for gpu in uuids
    ]
    assert len(set(uuids)) == 8
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu) for gpu in uuids)
    assert cgroups[0] == cgroups[1]
    assert cgroups[IDLE] == []
    docker, unit, session, host = cgroups[BESIDE]
    assert re.fullmatch(r"0::/system\.slice/docker-[0-9a-f]{64}\.scope\n", docker)
    assert unit == "0::/system.slice/ollama.service\n"
    assert session == "0::/user.slice/user-1000.slice/session-3.scope\n"
    assert parse(host).kind == "host"
    pod = r"0::/kubepods\.slice/(kubepods-(burstable|besteffort)\.slice/)?kubepods(-\w+)?-pod[0-9a-f_]{36}"
    for text in (text for index in range(6) for text in cgroups[index]):
        assert re.fullmatch(pod + r"\.slice/cri-containerd-[0-9a-f]{64}\.scope\n", text)
    taken = [w.home.name for w in DEFAULT_CAST if isinstance(w.home, Pod) and w.watts and not w.home.grants]
    assert taken == ["notebook-shared-0"]
    assert all(len(w.comm) <= 15 for w in DEFAULT_CAST)


def _cgroup(machine: Machine, pid: int) -> str:
    process = machine.process(pid)
    assert process is not None
    return process.cgroup


def test_memory_adds_up() -> None:
    machine, _ = a_machine(aged=60.0)
    for gpu in (uuid(machine, index) for index in range(8)):
        memory = machine.nvml(gpu, "nvmlDeviceGetMemoryInfo_v2")
        listed = sum(row[1] for row in machine.nvml(gpu, "nvmlDeviceGetComputeRunningProcesses"))
        assert memory["used"] == listed
        assert memory["total"] == memory["reserved"] + memory["used"] + memory["free"]


@given(st.integers(0, 99), st.lists(st.integers(0, 50_000_000), min_size=2, max_size=5).map(sorted))
def test_xids_of_a_span_are_those_of_its_parts(seed: int, cuts: list[int]) -> None:
    parts = [xids(seed, 3, a, b) for a, b in pairwise(cuts)]
    assert [event for part in parts for event in part] == xids(seed, 3, cuts[0], cuts[-1])


def test_a_cast_that_could_not_be_played_is_refused() -> None:
    for wrong in ({"busy": 9}, {"busy": 1, "chance": 0}, {"busy": 1, "cycle": 3, "rest": 3}):
        with pytest.raises(ValueError, match=r"slots|never"):
            Rhythm(period=5, **wrong)
    with pytest.raises(ValueError, match="every"):
        Life(0.0, 3.0, 2.0)
    with pytest.raises(ValueError, match="sampler"):
        a_machine(sampler="guess")


@awaited
async def test_the_runtime_and_the_kubelet_know_the_same_pods() -> None:
    machine, _ = a_machine()
    kubelet = Kubelet(machine, find_runtime=True)
    runtime, pods = Cri(machine, kubelet.runtime), PodsApi(machine, at(PODS_API))
    await runtime.ask()
    await pods.ask()
    assert runtime.place == "/run/containerd/containerd.sock, by the kubelet's command line"
    assert runtime.pods.by_uid.keys() == pods.pods.by_uid.keys()
    for uid, known in pods.pods.by_uid.items():
        told = runtime.pods.by_uid[uid]
        assert (told.namespace, told.name, told.labels) == (known.namespace, known.name, known.labels)
        containers = {id: name for id, name in told.containers.items() if name}
        assert containers == known.containers
        assert len(told.containers) == len(containers) + 1  # the sandbox itself


def test_nobody_but_the_runtime_answers_for_it() -> None:
    machine, _ = a_machine()
    with pytest.raises(Unreadable, match="nobody listens"):
        asyncio.run(machine.rpc("/run/crio/crio.sock", LIST_CONTAINERS, b""))
