"""The API server's list and watch of this node's pods."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from gputally.machine import Access, Machine
from gputally.model import Unreadable
from gputally.owners.inquiry import check_watch
from gputally.owners.pod_json import parse, pod_list
from gputally.owners.pods import Pods, from_object

WATCH_SECONDS = 300
"""How long the server is asked to keep a watch; then another goes on from there."""


class ApiServer:
    """Holds the pods of one node; without the node's name it would be those of the whole cluster."""

    name = "apiserver"
    tells_workload = True

    def __init__(self, machine: Machine, url: str, node: str, access: Access) -> None:
        self._machine = machine
        self._access = access
        self._base = f"{url.rstrip('/')}/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}')}"
        self._version = ""
        """Of the newest that the server told, be it in a bookmark."""
        self._goes_on = False
        """The watch ended well, so that nothing was missed."""
        self.pods = Pods()

    async def ask(self) -> None:
        """List, from the server's cache: any version will do; not where a watch can go on."""
        if self._goes_on:
            self._goes_on = False
            return
        page = await self._machine.get(f"{self._base}&resourceVersion=0", self._access)
        pods, self._version = pod_list(page)
        self.pods = self.pods.renewed(pods)

    async def follow(self, hurry: asyncio.Event) -> None:
        """Watch until the server ends it or no longer knows the version we were at."""
        url = (
            f"{self._base}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
            f"&resourceVersion={quote(self._version)}"
        )
        began = self._machine.clock.monotonic()
        async for line in self._machine.lines(url, self._access):
            if line.strip():
                self._take(parse(line))
        check_watch(self._machine.clock.monotonic() - began)
        self._goes_on = True

    def _take(self, event: Any) -> None:
        try:
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                raise Unreadable(f"watch: {item.get('message', 'error')}", item.get("code"))
            pod = from_object(item)
            self._version = str(item["metadata"].get("resourceVersion") or self._version)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unreadable(f"not an event of a watch: {error}") from None
        if kind != "BOOKMARK":
            self.pods = self.pods.changed(pod, gone=kind == "DELETED")
