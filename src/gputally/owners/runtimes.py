"""Names of Docker's and Podman's containers, from what they leave lying about: no socket, no network."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gputally.machine import Machine
from gputally.machine.file_masks import CONMON, conmon_words
from gputally.model import PENDING, Owner, Process, Unreadable
from gputally.owners.host import Identify, qualified
from gputally.owners.identity import Identity
from gputally.owners.shelf import Late, Shelf

MOST_ANCESTORS = 32
LONGEST = 128


class DockerFiles:
    """Docker's own files, where they can be read; not for rootless ids, which anybody can claim."""

    name = "docker-files"

    def __init__(self, machine: Machine, identify: Identify, root: str = "/var/lib/docker") -> None:
        self._shelf = Shelf(machine, self.name)
        self._identify = identify
        self._root = root

    def refine(self, process: Process, owner: Owner) -> Owner:
        """The same owner under the container's name."""
        if owner.kind != "docker":
            return owner
        identity = self._identify(process.cgroup)
        if identity.container_id is None or identity.rootless:
            return owner
        try:
            return _named(owner, identity, self._name(identity.container_id))
        except Late:
            return PENDING
        except Unreadable:
            return owner

    def _name(self, container_id: str) -> str:
        content = self._shelf.file(f"{self._root}/containers/{container_id}/config.v2.json")
        try:
            about = json.loads(content or b"{}")
        except (ValueError, RecursionError):
            return ""
        if not isinstance(about, dict) or about.get("ID") != container_id:
            return ""
        name = about.get("Name")
        return name.lstrip("/") if isinstance(name, str) else ""


class ConmonNames:
    """Podman's names, from the command line of the conmon that started the container."""

    name = "conmon"

    def __init__(self, machine: Machine, identify: Identify) -> None:
        self._machine = machine
        self._identify = identify

    def refine(self, process: Process, owner: Owner) -> Owner:
        """The same owner under the container's name."""
        if owner.kind != "podman":
            return owner
        identity = self._identify(process.cgroup)
        if identity.container_id is None:
            return owner
        return _named(owner, identity, self._name(process.key.pid, identity.container_id))

    def _name(self, pid: int, container_id: str) -> str:
        """Of the first ancestor outside the container: one inside could call itself conmon."""
        for ancestor in self._ancestors(pid):
            cgroup = self._text(f"/proc/{ancestor}/cgroup")
            if self._identify(cgroup).container_id == container_id:
                continue
            words = conmon_words(self._text(f"/proc/{ancestor}/cmdline").split("\0"))
            flags = dict(zip(words[1::2], words[2::2], strict=False))
            told = {short: flags.get(short) or flags.get(long, "") for short, long in CONMON.items()}
            return told["-n"] if told["-c"] == container_id else ""
        return ""

    def _ancestors(self, pid: int) -> Iterator[int]:
        for _ in range(MOST_ANCESTORS):
            fields = self._text(f"/proc/{pid}/stat").rpartition(")")[2].split()
            parent = fields[1] if len(fields) > 1 else ""
            if not (parent.isascii() and parent.isdigit()) or int(parent) < 2:
                return
            pid = int(parent)
            yield pid

    def _text(self, path: str) -> str:
        return (self._machine.file(path) or b"").decode("utf-8", "replace")


def _named(owner: Owner, identity: Identity, name: str) -> Owner:
    name = name[:LONGEST]
    return owner._replace(container=name, workload=qualified(identity, name)) if name else owner
