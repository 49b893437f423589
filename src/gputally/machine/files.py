"""Folders, and the command lines of a few known programs."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Mapping
from itertools import islice

from gputally.model import Unreadable

MOST_NAMES = 20_000
MOST_BYTES = 65_536
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


def is_there(path: str) -> bool:
    """There is something at that path, and we may see it."""
    return os.path.exists(path)


def flags(proc: str, commands: Collection[str], wanted: Collection[str]) -> Mapping[str, str]:
    """Walks /proc once; no other flag is handed on, since command lines may hold secrets."""
    for pid in sorted((name for name in folder(proc) if name.isdigit()), key=int):
        try:
            if _read(f"{proc}/{pid}/comm").strip() in commands:
                return chosen(_read(f"{proc}/{pid}/cmdline").split("\0"), wanted)
        except OSError:
            continue  # it went meanwhile
    raise Unreadable(f"no process runs {' or '.join(sorted(commands))}")


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
