"""Names from the folders of pod logs: there before a container starts, without any server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from gputally.lanes import Lane
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.owners.inquiry import pause
from gputally.owners.pods import Pod, Pods

EVERY = 30.0
LEAST = 0.5
"""Seconds between two lists: who waits for a name makes us hurry."""
DEADLINE = 5.0
Names = Mapping[str, str]
"""Of a folder, each with where it points to."""
_FOLDER = re.compile(r"([^_/]+)_([^_/]+)_([0-9a-fA-F-]{32,36})")
_LINK = re.compile(r"[^_]+_[^_]+_.+-([0-9a-f]{64})\.log")
_BEGINNING = re.compile(r"[0-9a-f]{8,63}")
LONGEST = 255
"""Bytes of a file's name, to which the kubelet cuts those of links: the end of the id is lost."""
_TARGET = re.compile(r".*/([^_/]+)_([^_/]+)_([0-9a-fA-F-]{32,36})/([^/]+)/[^/]+\.log")


class PodLogs:
    """Holds the pods that have a log folder; it does not know their labels or owners."""

    name = "pod_logs"
    tells_workload = False

    def __init__(self, machine: Machine, folder: str, deadline: float = DEADLINE) -> None:
        self._machine = machine
        self._folder = folder.rstrip("/")
        self._deadline = deadline
        self._lane = Lane(self.name)
        self._listed: tuple[Names, Names] = ({}, {})
        self.pods = Pods()

    async def ask(self) -> None:
        """List the folders, in a lane: the disk they are on may hang."""
        listed = await self._lane.ask(self._list, self._deadline)
        if listed != self._listed:
            self._listed = listed
            self.pods = self.pods.renewed(read(*listed))

    def _list(self) -> tuple[Names, Names]:
        """Pods, and links to containers; those may be missing, pods may not."""
        folders = self._machine.folder(f"{self._folder}/pods")
        try:
            return folders, self._machine.folder(f"{self._folder}/containers")
        except Unreadable:
            return folders, {}

    async def follow(self, hurry: asyncio.Event) -> None:
        """Wait for the next time."""
        await pause(EVERY, hurry, LEAST)


def read(folders: Names, links: Names) -> list[Pod]:
    """Pods by the names of their folders, with the containers that links point from."""
    containers: dict[str, dict[str, str]] = {}
    cut: dict[str, list[tuple[str, str]]] = {}
    for name, target in links.items():
        link, place = _LINK.fullmatch(name), _TARGET.fullmatch(target)
        if link and place:
            containers.setdefault(place[3], {})[link[1]] = place[4]
        elif place and (beginning := _beginning(name, place)):
            cut.setdefault(place[3], []).append((beginning, place[4]))
    found = filter(None, map(_FOLDER.fullmatch, folders))
    return [Pod(m[3], m[1], m[2], containers.get(m[3], {}), cut=tuple(cut.get(m[3], ()))) for m in found]


def _beginning(name: str, place: re.Match[str]) -> str:
    """What a link that was cut still tells of the id, if that is enough to tell containers apart."""
    before = f"{place[2]}_{place[1]}_{place[4]}-"
    rest = name.removesuffix(".log").removeprefix(before)
    is_cut = len(name) == LONGEST and name.startswith(before)
    return rest if is_cut and _BEGINNING.fullmatch(rest) else ""
