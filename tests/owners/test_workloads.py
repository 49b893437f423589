"""The top owner of a pod."""

from __future__ import annotations

import pytest

from gputally.owners.pods import Pod, Reference
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
