"""Folders, and the command lines of a few known programs."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from gputally.model import Unreadable

MOST_NAMES = 20_000
MOST_BYTES = 65_536
_CONTAINER = re.compile(r"[0-9a-f]{64}|pod[0-9a-f]{8}[-_]?[0-9a-f]{4}")
_SETTING = re.compile(
    r"""(?:--)?([A-Za-z][A-Za-z-]{0,60})(?::[ \t]+|=)(["']?)([^\s"'#]{1,4096})\2[ \t]*(?:#.*)?"""
)
SETTLED = 2.0
"""Seconds after which what is added to a folder surely gives it another time of change."""


class Folders:
    """Folders that are listed again and again; one that has not changed since is not listed anew."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[tuple[int, ...], Mapping[str, str]]] = {}

    def list(self, path: str) -> Mapping[str, str]:
        """Names in a folder, each with its target if it is a symbolic link."""
        mark = _mark(path)
        known = self._listed.get(path)
        if known is not None and known[0] == mark:
            return known[1]
        names = folder(path)
        self._listed.pop(path, None)
        if mark and time.time() - mark[-1] / 1e9 > SETTLED:
            self._listed[path] = mark, names
        return names


def folder(path: str) -> Mapping[str, str]:
    """Names in a folder, each with its target if it is a symbolic link."""
    try:
        with os.scandir(path) as entries:
            return {entry.name: _target(entry) for entry in islice(entries, MOST_NAMES)}
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}", error.errno) from None


def dated(path: str, most: int) -> tuple[float, bytes]:
    """When a regular file was last written, and all of it; what is no file is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}", error.errno) from None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable(f"{path}: not a regular file")
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}", error.errno) from None
    finally:
        os.close(fd)
    if len(content) > most:
        raise Unreadable(f"{path}: more than {most} bytes")
    return about.st_mtime, content


def device(path: str) -> int:
    """The error of opening a device as a driver's library does; 0 if there is none."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return error.errno or -1
    return 0


def is_there(path: str) -> bool:
    """There is something at that path, and we may see it."""
    return os.path.exists(path)


def flags(proc: str, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
    """Walks /proc once; no other flag is handed on, since command lines may hold secrets."""
    found: dict[str, str] = {}
    node = _containers(f"{proc}/1")
    for pid in sorted((name for name in folder(proc) if name.isdigit()), key=int):
        try:
            command = _read(f"{proc}/{pid}/comm").strip()
            if command in commands and command not in found and _is_nodes_own(f"{proc}/{pid}", node):
                found[command] = _read(f"{proc}/{pid}/cmdline")
        except OSError:
            continue  # it went meanwhile
    for command in commands:
        if command in found:
            return chosen(found[command].split("\0"), wanted)
    raise Unreadable(f"no process runs {' or '.join(sorted(commands))}")


def _is_nodes_own(process: str, node: set[str]) -> bool:
    """Not of a container that took the name: it would have us believe its own kubelet."""
    return os.stat(process).st_uid in (0, os.geteuid()) and _containers(process) <= node


def _containers(process: str) -> set[str]:
    """Containers and pods that a process is in; a node that is itself a container has some, too."""
    try:
        return set(_CONTAINER.findall(_read(f"{process}/cgroup")))
    except OSError:
        return set()


def settings(content: bytes, wanted: Collection[str]) -> dict[str, str]:
    """The wanted settings of JSON, of YAML whose values are one word, or of flags one to a line."""
    text = content.decode("utf-8", "replace")
    if not text.lstrip().startswith("{"):
        lines = map(_SETTING.fullmatch, text.splitlines())
        return {line[1]: line[3] for line in lines if line and line[1] in wanted}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {name: found[name] for name in wanted if isinstance(found.get(name), str)}


def chosen(words: Collection[str], wanted: Collection[str]) -> dict[str, str]:
    """The wanted flags of a command line, written `--flag value`, `--flag=value` or as a k3s kubelet-arg."""
    found: dict[str, str] = {}
    waiting = ""
    for word in words:
        if waiting:
            found[waiting], waiting = word, ""
            continue
        name, equals, value = word.lstrip("-").removeprefix("kubelet-arg=").lstrip("-").partition("=")
        if name not in wanted:
            continue
        if equals:
            found[name] = value
        elif word.startswith("-"):
            waiting = name
    return found


def _mark(path: str) -> tuple[int, ...]:
    """What is another as soon as a name comes or goes."""
    try:
        about = os.stat(path)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}", error.errno) from None
    return about.st_dev, about.st_ino, about.st_mtime_ns


def _target(entry: os.DirEntry[str]) -> str:
    try:
        return os.readlink(entry.path) if entry.is_symlink() else ""
    except OSError:
        return ""


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")
