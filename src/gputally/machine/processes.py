"""Processes of this machine: read once from /proc, then watched until they end."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from dataclasses import dataclass

from gputally.model import Process, ProcessKey

MOST_BYTES = 65_536


@dataclass(frozen=True)
class _Watch:
    """What tells us that a process ended: a pidfd, or its /proc folder where there is no pidfd."""

    key: ProcessKey
    fd: int
    is_pidfd: bool


class LocalProcesses:
    """Reads a process through one folder descriptor, so that a reused pid is never mistaken for it."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._pidfds = os.path.realpath(root) == "/proc" and hasattr(os, "pidfd_open")
        self._watches: dict[int, _Watch] = {}
        self._poll = select.poll()
        self._booted_at = _booted_at(root)
        self._ticks = os.sysconf("SC_CLK_TCK")

    def read(self, pid: int) -> Process | None:
        """The process as it is now, watched from now on."""
        try:
            folder = os.open(f"{self._root}/{pid:d}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        keep = False
        try:
            start, comm = _stat(folder)
            cgroup = _text(folder, "cgroup")
            watch = self._watch(ProcessKey(pid, start), folder)
            keep = watch.fd == folder
            if _stat(folder)[0] != start:  # the pidfd was opened while this very process lived
                self._drop(watch)
                return None
        except (OSError, ValueError):
            return None
        finally:
            if not keep:
                os.close(folder)
        started_at = None if self._booted_at is None else self._booted_at + start / self._ticks
        return Process(ProcessKey(pid, start), comm, cgroup, started_at)

    def ended(self) -> Sequence[ProcessKey]:
        """Those that went; one poll, whatever the number of processes."""
        gone = {fd for fd, _ in self._poll.poll(0)}
        over = [w for w in self._watches.values() if (w.fd in gone if w.is_pidfd else not _lives(w))]
        for watch in over:
            self._drop(watch)
        return [watch.key for watch in over]

    def close(self) -> None:
        """Stop watching."""
        for watch in list(self._watches.values()):
            self._drop(watch)

    def _watch(self, key: ProcessKey, folder: int) -> _Watch:
        known = self._watches.get(key.pid)
        if known is not None:
            self._drop(known)
        watch = self._pidfd(key) or _Watch(key, folder, is_pidfd=False)
        self._watches[key.pid] = watch
        return watch

    def _pidfd(self, key: ProcessKey) -> _Watch | None:
        if not self._pidfds:
            return None
        try:
            fd = os.pidfd_open(key.pid)
        except OSError:
            return None  # an old kernel, or a sandbox that forbids it
        self._poll.register(fd, select.POLLIN)
        return _Watch(key, fd, is_pidfd=True)

    def _drop(self, watch: _Watch) -> None:
        self._watches.pop(watch.key.pid, None)
        if watch.is_pidfd:
            self._poll.unregister(watch.fd)
        os.close(watch.fd)


def _stat(folder: int) -> tuple[int, str]:
    """Start time and name; the name may hold anything, so the fields begin after the last bracket."""
    text = _text(folder, "stat")
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        raise ValueError("stat is cut short")
    return int(fields[19]), head.partition("(")[2]


def _text(folder: int, name: str) -> str:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _lives(watch: _Watch) -> bool:
    try:
        return _stat(watch.fd)[0] == watch.key.start
    except (OSError, ValueError):
        return False


def _booted_at(root: str) -> float | None:
    try:
        with open(f"{root}/stat", encoding="ascii", errors="replace") as stat:
            return next((float(line.split()[1]) for line in stat if line.startswith("btime ")), None)
    except (OSError, ValueError):
        return None
