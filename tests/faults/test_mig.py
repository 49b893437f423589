"""MIG instances that change while we look, and rights that we have not (F09)."""

from pathlib import Path

import pytest

from gputally.machine.messages import LIST, LIST_V1
from gputally.machine.wire import encode
from tests.daemon import find
from tests.fakes.background import Background
from tests.fakes.nvml import FakeNvml, List
from tests.fakes.rpc import RpcServer
from tests.faults.nodes import US, daemon, instance, of

OLD, NEW = "MIG-00000000-0000-5000-8000-00000000000a", "MIG-00000000-0000-5000-8000-00000000000b"
LISTS = "nvmlDeviceGetComputeRunningProcesses"


def test_F09_a_number_given_again_is_another_instance(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    with daemon(fake) as node:
        whole = node.wait_for(lambda s: of(s, fake, 0, "utilization_ratio") is not None)
        assert find(whole, "gputally_mig_info") == []
        gpu.divide([instance(OLD, 7), instance("MIG-00000000-0000-5000-8000-0000000000ff", 8)])
        gpu.run(US, memory=3 << 30, gpu_instance=7, compute_instance=0)
        first = node.wait_for(lambda s: find(s, "gputally_mig_processes", mig=OLD) == [1])
        assert find(first, "gputally_mig_info", mig=OLD, gi="7", profile="1g.10gb", slices="1") == [1]
        assert len(find(first, "gputally_mig_info")) == 2
        assert of(first, fake, 0, "utilization_ratio") is None
        relaid = of(first, fake, 0, "unattributed_energy_joules_total", reason="mig_change") or 0
        assert relaid > 0
        gpu.divide([instance(NEW, 7, "2g.20gb", 20)])
        gpu.instances[0].meter = 40
        second = node.wait_for(lambda s: find(s, "gputally_mig_utilization_ratio", mig=NEW) == [0.4])
        assert find(second, "gputally_mig_info", mig=NEW, gi="7", profile="2g.20gb", slices="2") == [1]
        assert find(second, "gputally_mig_memory_total_bytes") == [20 << 30]
        assert find(second, "gputally_mig_processes", mig=NEW) == [1]
        assert of(second, fake, 0, "energy_resets_total") == 0
        total = of(second, fake, 0, "energy_joules_total") or 0
        assert total >= (of(first, fake, 0, "energy_joules_total") or 0)
        again = of(second, fake, 0, "unattributed_energy_joules_total", reason="mig_change") or 0
        assert again > relaid
        gpu.unite()
        gpu.run(US, memory=3 << 30)
        united = node.wait_for(lambda s: of(s, fake, 0, "utilization_ratio") is not None)
        assert find(united, "gputally_mig_info") == []
        assert find(united, "gputally_faults_total") == [0]


def test_a_driver_that_claims_billions_of_places_is_asked_for_a_few(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    gpu.divide([instance(OLD, 7)])
    gpu.mig_devices_max = 2**32 - 1
    with daemon(fake) as node:
        told = node.wait_for(lambda s: find(s, "gputally_mig_info", mig=OLD) == [1])
        assert of(told, fake, 0, "up") == 1


@pytest.mark.parametrize("refused", [List.COMPUTE, List.COMPUTE | List.GRAPHICS | List.MPS])
def test_F09_without_the_rights_of_the_parent_instances_are_asked(fake: FakeNvml, refused: List) -> None:
    gpu = fake.gpus[0]
    gpu.divide([instance(OLD, 7), instance(NEW, 9)])
    gpu.run(US, memory=3 << 30, gpu_instance=9, compute_instance=0)
    gpu.mig_parent_refuses = refused
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: find(s, "gputally_mig_processes", mig=NEW) == [1])
        assert find(samples, "gputally_mig_processes", mig=OLD) == [0]
        assert of(samples, fake, 0, "processes") == 1
        assert of(samples, fake, 0, "permission_denied", call=LISTS) == 1
        assert of(samples, fake, 1, "permission_denied", call=LISTS) is None


def claims(**devices: str) -> bytes:
    """A List of pod-resources in which each pod has a device of NVIDIA's DRA driver."""
    pods = [
        {
            "namespace": "ml",
            "name": pod,
            "containers": [
                {
                    "name": "main",
                    "dynamic_resources": [
                        {
                            "claim_name": pod,
                            "claim_namespace": "ml",
                            "claim_resources": [
                                {"driver_name": "gpu.nvidia.com", "pool_name": "node", "device_name": device}
                            ],
                        }
                    ],
                }
            ],
        }
        for pod, device in devices.items()
    ]
    return encode({"pod_resources": pods}, LIST)


@pytest.mark.parametrize("isolation", ["off", "process"])
def test_two_claimed_instances_of_one_profile_are_told_apart(
    fake: FakeNvml, tmp_path: Path, isolation: str
) -> None:
    gpu, parts = fake.gpus[1], [instance(OLD, 7), instance(NEW, 8)]
    for start, part in enumerate(parts):
        part.profile_id, part.placement_start = 19, start
    gpu.divide(parts)
    answer = claims(a="gpu-1-mig-1g10gb-19-1", b="gpu-1-mig-1g10gb-19-0")
    with Background() as background:
        kubelet = RpcServer(background, tmp_path / "kubelet.sock", {LIST_V1: answer})
        flags = ("--kubelet.podresources-socket", str(kubelet.path), "--nvml.isolation", isolation)
        with daemon(fake, *flags) as node:
            samples = node.wait_for(lambda s: len(find(s, "gputally_workload_granted")) == 2)
            assert find(samples, "gputally_workload_granted", pod="a", mig=NEW) == [1]
            assert find(samples, "gputally_workload_granted", pod="b", mig=OLD) == [1]
            taken = find(samples, "gputally_snapshot_timestamp_seconds")
            node.wait_for(lambda s: find(s, "gputally_snapshot_timestamp_seconds") != taken)
            assert fake.calls(1, "nvmlGpuInstanceGetInfo") == 2


def test_without_the_right_to_ask_where_it_lies_an_instance_is_known_by_its_profile(
    fake: FakeNvml, tmp_path: Path
) -> None:
    fake.gpus[1].divide([instance(OLD, 7), instance(NEW, 3, "2g.20gb", 20)])
    fake.answer(1, "nvmlDeviceGetGpuInstanceById", 4)
    with Background() as background:
        kubelet = RpcServer(
            background, tmp_path / "kubelet.sock", {LIST_V1: claims(a="gpu-1-mig-2g20gb-14-2")}
        )
        with daemon(fake, "--kubelet.podresources-socket", str(kubelet.path)) as node:
            samples = node.wait_for(lambda s: find(s, "gputally_workload_granted", pod="a"))
            assert find(samples, "gputally_workload_granted", pod="a", mig=NEW) == [1]
            assert of(samples, fake, 1, "up") == 1
