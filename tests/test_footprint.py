"""What the process takes of its node, seen from the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gputally.footprint import LARGE

BLOCK = 8 * 2**20
ANSWERS = f"""
import os, sys
from gputally import footprint

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1] == "given back":
    footprint.give_memory_back()
kept, before = [], resident()
for _ in range(3):
    answer = b"x" * {BLOCK}
    kept.append(b"y" * 5000)  # what is learned from it, and stays
    del answer
print(resident() - before)
"""
SCRAPES = 50
RENDERINGS = f"""
import resource
from gputally import footprint

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

footprint.give_memory_back()
for place in range({SCRAPES} + 5):
    if place == 5:
        before = faults()
    texts = [b"x" * size for size in ({LARGE // 2}, {LARGE // 2}, {LARGE - 4096})]
    del texts
print(faults() - before)
"""


def run(code: str, *words: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, capture_output=True, text=True, timeout=60
    )
    return int(done.stdout)


def left_over(how: str) -> int:
    return run(ANSWERS, how)


def test_a_large_answer_leaves_no_memory_behind() -> None:
    """Seen beside a process that is left to the C library."""
    if left_over("kept") < BLOCK // 2:
        pytest.skip("this C library gives back large blocks by itself")
    assert left_over("given back") < BLOCK // 4


def test_what_each_rendering_wants_is_not_asked_of_the_kernel_each_time() -> None:
    assert run(RENDERINGS) < SCRAPES
