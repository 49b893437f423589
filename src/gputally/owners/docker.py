"""Names of Docker and Podman containers, from their sockets where those are given."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from gputally.machine import Access, Machine
from gputally.model import Owner, Unreadable
from gputally.owners.host import qualified
from gputally.owners.identity import Identity
from gputally.owners.inquiry import pause

EVERY = 15.0
LEAST = 2.0
MOST_CONTAINERS = 10_000
_OF_USER = re.compile(r"(?:/var)?/run/user/([0-9]{1,10})/.+")
PAGE = "http://localhost/v1.41/containers/json?all=true"


class ContainerNames:
    """Holds id -> name of one engine's containers; docker and podman speak the same."""

    def __init__(self, machine: Machine, kind: str, socket: str) -> None:
        self.name = kind
        self._machine = machine
        self._access = Access(socket=socket)
        of_user = _OF_USER.fullmatch(socket)
        self._user = None if of_user is None else int(of_user[1])
        """Whose engine it is; None for root's, which knows of nobody's rootless containers."""
        self.names: dict[str, str] = {}

    async def ask(self) -> None:
        """List the containers."""
        page = await self._machine.get(PAGE, self._access)
        try:
            content: list[Any] = json.loads(page)
            self.names = {item["Id"]: _name(item) for item in content[:MOST_CONTAINERS]}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise Unreadable(f"{self.name}: not a list of containers: {error}") from None

    async def follow(self, hurry: asyncio.Event) -> None:
        """Wait for the next time."""
        await pause(EVERY, hurry, LEAST)

    def named(self, identity: Identity, owner: Owner) -> Owner | None:
        """The owner with the container's name; None where it is none of these."""
        name = self.names.get(identity.container_id or "")
        user = identity.uid if identity.rootless else None
        if identity.kind != self.name or user != self._user or not name:
            return None
        return owner._replace(container=name, workload=qualified(identity, name))


def _name(item: Any) -> str:
    names = item.get("Names") or [item["Id"][:12]]
    return str(names[0]).lstrip("/")
