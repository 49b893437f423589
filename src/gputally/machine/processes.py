"""Processes of this machine: read once from /proc, then watched until they end."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from gputally.model import Namespaces, Process, ProcessKey

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
        self._is_proc = os.path.realpath(root) == "/proc"
        self._pidfds = self._is_proc and hasattr(os, "pidfd_open")
        self._watches: dict[int, _Watch] = {}
        self._by_pidfd: dict[int, _Watch] = {}
        self._epoll = select.epoll()
        self._booted_at = _booted_at(root)
        self._ticks = os.sysconf("SC_CLK_TCK")

    def read(self, pid: int) -> Process | None:
        """The process as it is now, watched from now on."""
        try:
            folder = os.open(f"{self._root}/{pid:d}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        spare = [folder]
        try:
            start, comm, dead = _stat(folder)
            cgroup = _text(folder, "cgroup")
            if dead and _is_nowhere(cgroup):
                return None  # the kernel has already taken it out of its cgroups: not a process of the host
            pidfd = self._pidfd(pid)
            if pidfd is not None:
                spare.append(pidfd)
            if _stat(folder)[0] != start:  # the pidfd must have been opened while this very process lived
                return None
            self._watch(_Watch(ProcessKey(pid, start), spare.pop(), is_pidfd=pidfd is not None))
        except (OSError, ValueError):
            return None
        finally:
            for fd in spare:
                os.close(fd)  # which ends its watch, too
        started_at = None if self._booted_at is None else self._booted_at + start / self._ticks
        return Process(ProcessKey(pid, start), comm, cgroup, started_at, self._monotonic(start))

    def ended(self) -> Sequence[ProcessKey]:
        """Those that went; one question, whatever the number of processes."""
        over = []
        for fd, _ in self._epoll.poll(0):
            if fd in self._by_pidfd:
                over.append(self._by_pidfd[fd])
            else:  # nobody's: it would be told at every tick
                with suppress(OSError):
                    self._epoll.unregister(fd)
        if len(self._by_pidfd) < len(self._watches):
            over += [w for w in self._watches.values() if not w.is_pidfd and not _lives(w)]
        for watch in over:
            self._drop(watch)
        return [watch.key for watch in over]

    def close(self) -> None:
        """Stop watching."""
        for watch in list(self._watches.values()):
            self._drop(watch)
        self._epoll.close()

    def namespaces(self) -> Namespaces | None:
        """Ours; a folder that only looks like /proc has none."""
        if not self._is_proc:
            return None
        try:
            inode = os.stat(f"{self._root}/self/ns/pid").st_ino
            own = read_file(f"{self._root}/self/cgroup") or b""
        except OSError:
            return None
        init = read_file(f"{self._root}/1/cgroup")
        return Namespaces(inode, os.getpid(), _decoded(own), None if init is None else _decoded(init))

    def _monotonic(self, start: int) -> float | None:
        """A start by our monotonic clock, not later than it was: the kernel cuts it down to whole ticks.

        Not by way of the wall clock, which is set; a folder that only looks like /proc has no such time.
        """
        if not self._is_proc:
            return None
        now = time.monotonic()
        return now - (time.clock_gettime(time.CLOCK_BOOTTIME) - start / self._ticks)

    def _watch(self, watch: _Watch) -> None:
        known = self._watches.get(watch.key.pid)
        if known is not None:
            self._drop(known)
        self._watches[watch.key.pid] = watch
        if watch.is_pidfd:
            self._by_pidfd[watch.fd] = watch

    def _pidfd(self, pid: int) -> int | None:
        if not self._pidfds:
            return None
        fd = -1
        try:
            fd = os.pidfd_open(pid)
            self._epoll.register(fd, select.EPOLLIN)
        except OSError:  # an old kernel, a sandbox that forbids it, or too many watches
            if fd >= 0:
                os.close(fd)
            return None
        return fd

    def _drop(self, watch: _Watch) -> None:
        self._watches.pop(watch.key.pid, None)
        self._by_pidfd.pop(watch.fd, None)
        os.close(watch.fd)  # which ends its watch, too


def exists(pid: int) -> bool:
    """Whether the kernel has such a process in our PID namespace, visible in /proc or not."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def read_file(path: str, most: int = MOST_BYTES) -> bytes | None:
    """A regular file of bounded size; a pipe or a device is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        parts, left = [], most + 1
        while left > 0 and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts) if left > 0 else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_nowhere(cgroup: str) -> bool:
    """No line leads anywhere but to the root."""
    return all(line.endswith(":/") for line in cgroup.splitlines())


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _stat(folder: int) -> tuple[int, str, bool]:
    """Start time, name, and whether it is a zombie; the name may hold anything, even brackets."""
    text = _text(folder, "stat")
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        raise ValueError("stat is cut short")
    return int(fields[19]), head.partition("(")[2], fields[0] in ("Z", "X")


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
        with open(f"{root}/stat", encoding="ascii", errors="replace") as lines:
            return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)
    except (OSError, ValueError):
        return None
