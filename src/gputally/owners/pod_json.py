"""Lists of pods in JSON, read without keeping the large parts that we do not need."""

from __future__ import annotations

import json
from typing import Any

from gputally.model import Unreadable
from gputally.owners.pods import Pod, from_object

UNREAD = {"spec", "managedFields", "conditions", "volumes", "volumeMounts", "state", "lastState"}


def pod_list(page: bytes) -> tuple[list[Pod], str]:
    """The pods of a list, and the version of the list; a list of nothing may be written as null."""
    content = parse(page)
    try:
        items = content.get("items") or ()
        version = str((content.get("metadata") or {}).get("resourceVersion", ""))
        return [from_object(item) for item in items], version
    except (AttributeError, TypeError, ValueError) as error:
        raise Unreadable(f"not a list of pods: {error}") from None


def parse(text: bytes) -> Any:
    """JSON, each object without its unread parts from the moment it is whole."""
    try:
        return json.loads(text, object_pairs_hook=_needed)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error}") from None


def _needed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Labels and annotations have any name, but are texts, which the unread parts never are.
    return {name: value for name, value in pairs if name not in UNREAD or isinstance(value, str)}
