"""What this program uses, by the kernel's account."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from gputally.machine.local import own_usage


def test_our_own_usage_is_what_the_kernel_says() -> None:
    before, usage = resource.getrusage(resource.RUSAGE_SELF), own_usage()
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert usage.cpu_seconds is not None
    assert usage.resident_bytes is not None
    spent = [used.ru_utime + used.ru_stime for used in (before, after)]
    assert spent[0] - 0.02 <= usage.cpu_seconds <= spent[1] + 0.02
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    assert usage.resident_bytes == pytest.approx(resident, rel=0.2)
    assert usage.open_fds == len(os.listdir("/proc/self/fd")) - 1
    assert usage.threads == len(os.listdir("/proc/self/task"))
