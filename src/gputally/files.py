"""Files of a privileged process: in its own folder, never through a link, whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress


class Unsafe(Exception):
    """A folder or file that is not to be trusted; the text names it and what is wrong."""


def open_folder(path: str) -> int:
    """A descriptor of a folder that only we can change."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Unsafe(f"{path}: {error.strerror}; it must be a folder (not a link) that is there") from None
    about = os.fstat(fd)
    if about.st_uid != os.geteuid():
        os.close(fd)
        raise Unsafe(f"{path}: belongs to uid {about.st_uid}, not to ours ({os.geteuid()})")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise Unsafe(f"{path}: others can write there; chmod go-w {path}")
    return fd


def open_parent(path: str) -> tuple[int, str]:
    """A descriptor of the folder of a file, and the file's name in it.

    The folder is ours or root's, and nobody else can change our files there: a sticky /tmp will do.
    """
    parent, name = os.path.split(os.path.abspath(path))
    try:
        fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unsafe(f"{path}: {error.strerror}; {parent} must be a folder that is there") from None
    about = os.fstat(fd)
    shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
    if not name or shared or about.st_uid not in (0, os.geteuid()):
        os.close(fd)
        raise Unsafe(f"{path}: others could change files in {parent}; choose a folder of ours or root's")
    return fd, name


def refuse_foreign(folder: int, name: str) -> None:
    """Raise Unsafe if there is something of this name that is not a plain file of ours."""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink != 1:
        raise Unsafe(f"{name}: there is something that is not a plain file of ours; take it away first")


def open_to_append(path: str) -> int:
    """A descriptor of a plain file of ours, made if it is not there; never a link or a FIFO."""
    folder, name = open_parent(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        refuse_foreign(folder, name)
        fd = os.open(name, flags, 0o640, dir_fd=folder)
    except OSError as error:
        raise Unsafe(f"{path}: {error.strerror}") from None
    finally:
        os.close(folder)
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink != 1:
        os.close(fd)
        raise Unsafe(f"{path}: not a plain file of ours")
    return fd


def write(folder: int, name: str, data: bytes, mode: int = 0o600) -> None:
    """Put a file into the folder, whole: a new file beside it, made sure of, then renamed."""
    temporary = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def remove(folder: int, name: str) -> None:
    """Take a file out of the folder, and what writes that were cut short left beside it."""
    leftover = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}")
    for found in os.listdir(folder):
        if found == name or leftover.fullmatch(found):
            with suppress(FileNotFoundError):
                os.unlink(found, dir_fd=folder)


def read(folder: int, name: str, most: int) -> bytes | None:
    """A file of the folder, or None if it is not there; refuses what is not plainly ours."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unsafe(f"{name}: {error.strerror}") from None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_nlink != 1:
            raise Unsafe(f"{name}: not a plain file of ours")
        if about.st_size > most:
            raise Unsafe(f"{name}: larger than {most} bytes")
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(most)
    finally:
        os.close(fd)
