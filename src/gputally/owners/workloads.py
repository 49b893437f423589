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
SCHEDULED = re.compile(r"(.+)-([0-9]{8})")
"""A Job of a CronJob ends in the minute it was made for, counted since 1970."""
FIRST_MINUTE = 23_000_000
"""Of September 2013: CronJobs are younger, and no date written as 20991231 is so large."""
EARLY, LATE = 60, 7 * 24 * 60
"""Minutes by which a pod can be older, where clocks differ, and younger, where it was made again."""


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
    if scheduled and _is_minute(int(scheduled[2]), pod.created_at):
        return f"CronJob/{scheduled[1]}"
    return f"{owner.kind}/{owner.name}"


def _is_minute(number: int, created_at: float | None) -> bool:
    """Whether a pod can have been made for that minute; people put dates at the end of names, too."""
    if created_at is None:
        return number >= FIRST_MINUTE
    return -EARLY <= created_at / 60 - number <= LATE
