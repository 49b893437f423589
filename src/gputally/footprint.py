"""What the process takes of its node: descriptors, memory, and time to look for garbage."""

from __future__ import annotations

import ctypes
import gc
import resource
from contextlib import suppress

DESCRIPTORS = 16_384
GARBAGE = 50_000
"""New objects after which the collector looks for cycles: a publication makes ten thousand, and no cycle."""
LARGE = 512 * 1024
"""Bytes from which on a block is given back to the kernel as soon as it is freed: more than a rendering
wants, since new pages cost it more than what is done with them."""
SPARE = 4 * LARGE
"""Bytes of smaller blocks that are kept for the next rendering."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def allow_more_descriptors() -> None:
    """One descriptor per GPU process is kept; take what we may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def give_memory_back() -> None:
    """Keep no memory for the largest answer there ever was.

    Left to itself glibc takes a large block that was freed as a sign to keep such blocks from then on.
    """
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):  # other C libraries have none
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.mallopt(M_TRIM_THRESHOLD, SPARE)


def settle() -> None:
    """What is loaded by now stays: the collector need not walk through it again and again."""
    gc.freeze()
    gc.set_threshold(GARBAGE)
