"""The top owner of a pod."""

from __future__ import annotations

import pytest

from gputally.machine.messages import POD
from gputally.machine.wire import decode, encode
from gputally.owners.pods import Pod, Reference, from_object
from gputally.owners.workloads import workload


@pytest.mark.parametrize(
    ("owner", "labels", "top"),
    [
        (("ReplicaSet", "llm-7d9c5b8f6b"), {"pod-template-hash": "7d9c5b8f6b"}, "Deployment/llm"),
        (("ReplicaSet", "llm-7d9c5b8f6b"), {}, "ReplicaSet/llm-7d9c5b8f6b"),
        (("ReplicaSet", "llm-7d9c5b8f6b"), {"pod-template-hash": ""}, "ReplicaSet/llm-7d9c5b8f6b"),
        (("ReplicaSet", "llm-abc"), {"rollouts-pod-template-hash": "abc"}, "Rollout/llm"),
        (("StatefulSet", "db"), {}, "StatefulSet/db"),
        (("DaemonSet", "agent"), {}, "DaemonSet/agent"),
        (("Job", "train"), {}, "Job/train"),
        (("Job", "nightly-29384760"), {}, "CronJob/nightly"),
        (("Job", "nightly-2938476"), {}, "Job/nightly-2938476"),
        (("Job", "train-20260815"), {}, "Job/train-20260815"),
        (("Job", "train-20991231"), {}, "Job/train-20991231"),
        (("Job", "resume-12345678"), {}, "Job/resume-12345678"),
        (("Workflow", "wf-1"), {"workflows.argoproj.io/workflow": "wf-1"}, "Workflow/wf-1"),
        (("PyTorchJob", "llm"), {"training.kubeflow.org/job-name": "llm"}, "PyTorchJob/llm"),
        (("RayCluster", "ray"), {"ray.io/cluster": "ray"}, "RayCluster/ray"),
        (("Job", "js-workers-0"), {"jobset.sigs.k8s.io/jobset-name": "js"}, "JobSet/js"),
        (("Node", "node-01"), {}, "Pod/p"),
        (None, {}, "Pod/p"),
        (("Widget", "w"), {}, "Widget/w"),
    ],
)
def test_the_top_owner(owner: tuple[str, str] | None, labels: dict[str, str], top: str) -> None:
    assert workload(Pod("u", "ns", "p", owner=Reference(*owner) if owner else None, labels=labels)) == top


@pytest.mark.parametrize(
    ("name", "top"),
    [
        ("nightly-29774880", "CronJob/nightly"),
        ("nightly-29774890", "CronJob/nightly"),
        ("nightly-29767000", "CronJob/nightly"),
        ("train-25122026", "Job/train-25122026"),
        ("train-29112026", "Job/train-29112026"),
        ("train-31082026", "Job/train-31082026"),
    ],
)
def test_a_job_of_a_cron_job_ends_in_the_minute_its_pod_was_made_for(name: str, top: str) -> None:
    """Dates are written with the day first, too, which is a minute of other years."""
    references = [{"kind": "Job", "name": name, "controller": True}]
    made = {"name": "p", "ownerReferences": references}
    in_json = {"metadata": {**made, "creationTimestamp": "2026-08-12T00:00:09Z"}}
    sent = encode({"metadata": {**made, "creationTimestamp": {"seconds": 1_786_492_809}}}, POD)
    for item in (in_json, decode(sent, POD)):
        pod = from_object(item)
        assert pod.created_at == 1_786_492_809
        assert workload(pod) == top


@pytest.mark.parametrize("told", [None, "", "yesterday", 3, [], {}, {"seconds": 0}, "9999-99-99"])
def test_a_pod_that_was_made_at_no_known_time(told: object) -> None:
    assert from_object({"metadata": {"creationTimestamp": told}}).created_at is None
