"""The top owner of a pod, as its owner reference and a few well-known labels tell it; pure."""

from __future__ import annotations

import re

from gputally.owners.pods import Pod, Reference

BY_LABEL = (
    ("workflows.argoproj.io/workflow", "Workflow"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("sparkoperator.k8s.io/app-name", "SparkApplication"),
    ("ray.io/cluster", "RayCluster"),
)
"""Labels that name an owner above the one that controls the pod."""
TEMPLATES = (("rollouts-pod-template-hash", "Rollout"), ("pod-template-hash", "Deployment"))
"""Labels whose value a ReplicaSet has at the end of its name, and who made it."""
SCHEDULED = re.compile(r"(.+)-(\d{8})")
"""A Job of a CronJob ends in the minute it was made for; eight digits are the years 1989 to 2160."""


def workload(pod: Pod) -> str:
    """Kind and name; a pod that nobody controls is its own workload."""
    for label, kind in BY_LABEL:
        if pod.labels.get(label):
            return f"{kind}/{pod.labels[label]}"
    # The Node controls static pods, but is nobody's workload.
    if pod.owner is None or pod.owner.kind == "Node":
        return f"Pod/{pod.name}"
    return _above(pod.owner, pod)


def _above(owner: Reference, pod: Pod) -> str:
    if owner.kind == "ReplicaSet":
        for label, kind in TEMPLATES:
            ending = f"-{pod.labels.get(label, '')}"
            if len(ending) > 1 and owner.name.endswith(ending) and owner.name != ending:
                return f"{kind}/{owner.name.removesuffix(ending)}"
    scheduled = SCHEDULED.fullmatch(owner.name) if owner.kind == "Job" else None
    return f"CronJob/{scheduled[1]}" if scheduled else f"{owner.kind}/{owner.name}"
