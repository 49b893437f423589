"""Rows about owners: what more is known of them, and what Kubernetes granted them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gputally.metrics import GAUGE, INFO, Metric, Scope
from gputally.model import Detail, Owner

_OWNER_LABELS = ("kind", "namespace", "pod", "container", "workload")


def info(labels: Sequence[str] = (), annotations: Sequence[str] = ()) -> Metric:
    """The row about an owner, with the pod labels and annotations that were chosen."""

    def value(pair: tuple[Owner, Detail]) -> dict[tuple[str, ...], int]:
        detail = pair[1]
        shown = [detail.labels.get(key, "") for key in labels]
        shown += [detail.annotations.get(key, "") for key in annotations]
        return {tuple(shown): 1}

    names = label_names("label_", labels) + label_names("annotation_", annotations)
    return Metric(
        _OWNER,
        "gputally_workload_info",
        INFO,
        "A container on a GPU or with one allocated: its uid, node and id, and chosen labels of its pod.",
        value if names else lambda _: 1,
        by=names,
    )


def label_names(prefix: str, keys: Sequence[str]) -> tuple[str, ...]:
    """Names for a metric's labels; keys that come out alike are told apart by a number."""
    plain = [prefix + re.sub(r"[^a-zA-Z0-9_]", "_", key) for key in keys]
    counts, seen, names = Counter(plain), Counter[str](), list[str]()
    for name in plain:
        seen[name] += 1
        wanted = f"{name}_conflict{seen[name]}" if counts[name] > 1 else name
        while wanted in names:
            wanted += "_"
        names.append(wanted)
    return tuple(names)


def _names(owner: Owner) -> tuple[str, ...]:
    return (owner.kind, owner.namespace, owner.pod, owner.container, owner.workload)


def _about(pair: tuple[Owner, Detail]) -> tuple[str, ...]:
    owner, detail = pair
    return (*_names(owner), detail.uid, detail.node, detail.container_id)


_GRANT = Scope(
    "grant",
    (*_OWNER_LABELS, "gpu", "uuid", "mig"),
    lambda tally: tally.uses,
    lambda use: (*_names(use.owner), str(use.gpu), use.uuid, use.mig),
)
_LIMIT = Scope(
    "limit",
    (*_OWNER_LABELS, "gpu", "uuid", "mig", "method"),
    lambda tally: tally.limits,
    lambda limit: (*_names(limit.owner), str(limit.gpu), limit.uuid, limit.mig, limit.method),
)
_OWNER = Scope(
    "owner",
    (*_OWNER_LABELS, "uid", "node", "container_id"),
    lambda tally: tally.snapshot.details.items(),
    _about,
)

GRANT_METRICS = (
    Metric(
        _GRANT,
        "gputally_workload_granted",
        GAUGE,
        "1 for a device that Kubernetes allocated to the container; 0 where it is used without that.",
        lambda use: int(use.granted),
    ),
    Metric(
        _LIMIT,
        "gputally_workload_memory_limit_bytes",
        GAUGE,
        "GPU memory meant for the workload, by method: mig (its instance's), hami (what HAMi noted on its"
        " pod), ratio (the GPU's by the ratio of virtual GPUs), replicas (the GPU's by the containers that it"
        " is granted to at once, which time slicing does not enforce).",
        "memory_bytes",
    ),
)
