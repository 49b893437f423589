"""What is kept of answers that may hold secrets."""

from __future__ import annotations

import json
from typing import Any

HAMI = "hami.io/vgpu-devices-allocated"
"""What HAMi's scheduler notes on a pod: uuid,vendor,MiB,cores of each device, by container."""
ALLOCATIONS = (HAMI,)
KEPT_NOTES = ("kubernetes.io/config.", *ALLOCATIONS)
"""Beginnings of annotations that are kept: what the kubelet and schedulers noted."""
KEPT_OF_POD = (
    *("name", "namespace", "uid", "labels", "annotations", "ownerReferences"),
    *("creationTimestamp", "resourceVersion"),
)
KEPT_OF_STATUS = ("phase", "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def without_secrets(page: bytes) -> bytes:
    """A list of pods without their specifications; other pages only as far as they name containers."""
    try:
        content = json.loads(page)
    except ValueError:
        return b"null"
    if isinstance(content, list):
        kept: Any = [_only(item, ("Id", "Names", "Labels")) for item in content]
    else:
        kept = _only(content, ("kind", "apiVersion", "metadata"))
        kept["items"] = [_pod(item) for item in content.get("items") or ()]
    return json.dumps(kept, indent=1).encode()


def _pod(item: dict[str, Any]) -> dict[str, Any]:
    metadata = _only(item.get("metadata", {}), KEPT_OF_POD)
    notes = metadata.pop("annotations", None) or {}
    metadata["annotations"] = {k: v for k, v in notes.items() if k.startswith(KEPT_NOTES)}
    status = _only(item.get("status", {}), KEPT_OF_STATUS)
    for field in KEPT_OF_STATUS[1:]:
        if field in status:
            status[field] = [_only(container, ("name", "containerID")) for container in status[field] or ()]
    return {"metadata": metadata, "status": status}


def _only(content: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: content[name] for name in names if name in content} if isinstance(content, dict) else {}
