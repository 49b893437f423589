"""Rows about owners: what more is known of them, and what Kubernetes granted them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from gputally.dialects.native.scopes import WORK_LABELS, work
from gputally.metrics import GAUGE, INFO, Metric, Scope
from gputally.model import Detail, Owner


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


def _about(pair: tuple[Owner, Detail]) -> tuple[Owner, str, str, str]:
    owner, detail = pair
    return owner, detail.uid, detail.node, detail.container_id


def _spell(about: tuple[Owner, str, str, str]) -> tuple[str, ...]:
    owner, *more = about
    return (owner.kind, owner.namespace, owner.pod, owner.container, owner.workload, *more)


_GRANT = Scope(
    "grant", WORK_LABELS, lambda tally: tally.uses, attrgetter("owner", "gpu", "uuid", "mig"), work
)
_LIMIT = Scope(
    "limit",
    (*WORK_LABELS, "method"),
    lambda tally: tally.limits,
    attrgetter("owner", "gpu", "uuid", "mig", "method"),
    work,
)
_OWNER = Scope(
    "owner",
    ("kind", "namespace", "pod", "container", "workload", "uid", "node", "container_id"),
    lambda tally: tally.snapshot.details,
    _about,
    _spell,
)

GRANT_METRICS = (
    Metric(
        _GRANT,
        "gputally_workload_granted",
        GAUGE,
        "1 for a device that Kubernetes allocated to the container; 0 where it is used without that.",
        "granted",
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
