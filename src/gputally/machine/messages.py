"""Messages of the kubelet and the runtimes: of each only the fields we read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputally.machine.masks import KEPT_NOTES
from gputally.machine.wire import Message, decode, encode, many, number, one, pairs, text, texts

_DEVICES: Message = {1: text("resource_name"), 2: texts("device_ids")}
_CLAIM: Message = {2: text("driver_name"), 3: text("pool_name"), 4: text("device_name")}
_DYNAMIC: Message = {2: text("claim_name"), 3: text("claim_namespace"), 4: many("claim_resources", _CLAIM)}
_CONTAINER: Message = {1: text("name"), 2: many("devices", _DEVICES), 5: many("dynamic_resources", _DYNAMIC)}
POD_RESOURCES: Message = {1: text("name"), 2: text("namespace"), 3: many("containers", _CONTAINER)}
LIST: Message = {1: many("pod_resources", POD_RESOURCES)}
ALLOCATABLE: Message = {1: many("devices", _DEVICES)}

_OWNER: Message = {1: text("kind"), 3: text("name"), 5: text("apiVersion"), 6: number("controller")}
_META: Message = {
    1: text("name"),
    3: text("namespace"),
    5: text("uid"),
    8: one("creationTimestamp", {1: number("seconds")}),
    11: pairs("labels"),
    12: pairs("annotations"),
    13: many("ownerReferences", _OWNER),
}
_STATUS_OF_CONTAINER: Message = {1: text("name"), 8: text("containerID")}
_STATUS: Message = {
    1: text("phase"),
    8: many("containerStatuses", _STATUS_OF_CONTAINER),
    10: many("initContainerStatuses", _STATUS_OF_CONTAINER),
    13: many("ephemeralContainerStatuses", _STATUS_OF_CONTAINER),
}
POD: Message = {1: one("metadata", _META), 3: one("status", _STATUS)}
PODS: Message = {1: many("pods", POD)}
POD_EVENT: Message = {1: number("type"), 2: one("pod", POD)}
ENTRIES = 1
"""The field of a list, of pods and of what they were given, that holds one message for each."""
DELETED = 2

_CRI_CONTAINER: Message = {1: text("id"), 2: text("pod_sandbox_id"), 6: number("state"), 8: pairs("labels")}
CRI_CONTAINERS: Message = {1: many("containers", _CRI_CONTAINER)}
_CRI_META: Message = {1: text("name"), 2: text("uid"), 3: text("namespace")}
_CRI_SANDBOX: Message = {
    1: text("id"),
    2: one("metadata", _CRI_META),
    3: number("state"),
    5: pairs("labels"),
    6: pairs("annotations"),
}
CRI_SANDBOXES: Message = {1: many("items", _CRI_SANDBOX)}

LIST_V1 = "/v1.PodResourcesLister/List"
LIST_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"
ALLOCATABLE_V1 = "/v1.PodResourcesLister/GetAllocatableResources"
LIST_PODS = "/v1alpha1.Pods/ListPods"
WATCH_PODS = "/v1alpha1.Pods/WatchPods"
LIST_CONTAINERS = "/runtime.v1.RuntimeService/ListContainers"
LIST_SANDBOXES = "/runtime.v1.RuntimeService/ListPodSandbox"

ANSWERS: Mapping[str, Message] = {
    LIST_V1: LIST,
    LIST_V1ALPHA1: LIST,
    ALLOCATABLE_V1: ALLOCATABLE,
    LIST_PODS: PODS,
    LIST_CONTAINERS: CRI_CONTAINERS,
    LIST_SANDBOXES: CRI_SANDBOXES,
}


def trimmed(method: str, answer: bytes) -> bytes:
    """An answer with nothing in it but what we read: pod specifications and annotations hold secrets."""
    table = ANSWERS[method]
    return encode(_without_notes(decode(answer, table)), table)


def _without_notes(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_notes(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: _without_notes(part) for name, part in value.items()}
    if "annotations" in kept:
        notes = kept["annotations"]
        kept["annotations"] = [pair for pair in notes if pair["key"].startswith(KEPT_NOTES)]
    return kept
