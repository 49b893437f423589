"""A library that crashes, in a process of its own and in ours (F14)."""

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputally.machine.nvml_letters import MOST_BYTES, receive, send
from tests.daemon import GPUTALLY, PATIENCE, Daemon, environment, find
from tests.fakes.nvml import CRASH, FakeNvml
from tests.faults.nodes import US, daemon, ended, of, state, well

INIT, POWER = "nvmlInit_v2", "nvmlDeviceGetPowerUsage"
APART = ("--nvml.isolation", "process")
ALL = (0, 1, 2, 3)


def children(pid: int) -> dict[int, str]:
    """Children of a process -> how they are by the kernel's letter; Z is a zombie."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = path.read_text().partition(" (")
        except OSError:
            continue
        letter, parent, *_ = rest.rpartition(") ")[2].split()
        if int(parent) == pid:
            found[int(number)] = letter
    return found


def child(node: Daemon) -> int:
    """The one process that holds the library."""
    (found,) = node.until(lambda: children(node.pid))
    return found


def gone(pid: int) -> bool:
    """Whether a process ends; one that only waits to be reaped has ended."""

    def there() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
        except OSError:
            return False

    until = time.monotonic() + PATIENCE
    while there() and time.monotonic() < until:
        time.sleep(0.02)
    return not there()


def holds_library(pid: int) -> bool:
    return "libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text()


def descriptors(node: Daemon) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def crash_once(fake: FakeNvml, place: int | None, call: str) -> None:
    fake.answer(place, call, CRASH, times=1)


def lost_and_back(node: Daemon, fake: FakeNvml, harm: Callable[[], None]) -> None:
    """Whatever happens, the source is down for a while, and then all is as before."""
    harm()
    node.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [0])
    assert node.get("/-/healthy").status == 200
    node.wait_for(lambda s: well(s, fake, *ALL) and find(s, "gputally_source_up", source="nvml") == [1])


def test_F14_apart_the_library_tells_the_same(fake: FakeNvml) -> None:
    fake.gpus[0].run(US, memory=3 << 30)
    fake.gpus[0].busy({US: 40})
    with daemon(fake, *APART) as node:
        samples = node.wait_for(lambda s: well(s, fake, *ALL) and of(s, fake, 0, "processes") == 1)
        assert find(samples, "gputally_workload_memory_used_bytes") == [3 << 30]
        assert find(samples, "gputally_nvml_errors_total") == []
        assert (holds_library(node.pid), holds_library(child(node))) == (False, True)
        fake.xid(1, 79)
        node.wait_for(lambda s: of(s, fake, 1, "xid_errors_total", xid="79") == 1)


def test_F14_apart_a_crash_of_the_library_is_survived_and_nothing_is_counted_twice(fake: FakeNvml) -> None:
    for gpu in fake.gpus:
        gpu.freeze()
    with daemon(fake, *APART) as node:
        node.wait_for(lambda s: well(s, fake, *ALL))
        fake.gpus[1].jump(40_000)
        node.wait_for(lambda s: of(s, fake, 1, "energy_joules_total") == 40)
        before, held = child(node), descriptors(node)

        def harm() -> None:
            crash_once(fake, 1, POWER)
            assert gone(before)
            fake.gpus[1].jump(200_000)

        lost_and_back(node, fake, harm)
        assert child(node) != before
        assert "Z" not in children(node.pid).values()
        after = node.metrics()
        assert of(after, fake, 1, "energy_joules_total") == 40
        fake.gpus[1].jump(5_000)
        node.wait_for(lambda s: of(s, fake, 1, "energy_joules_total") == 45)
        assert descriptors(node) <= held + 1, "one may be of a scrape"
        assert any("SIGSEGV" in line["msg"] for line in node.log if line["level"] == "warning")


def test_F14_apart_it_may_be_killed(fake: FakeNvml) -> None:
    with daemon(fake, *APART) as node:
        before = node.wait_for(lambda s: well(s, fake, *ALL))
        lost_and_back(node, fake, lambda: os.kill(child(node), signal.SIGKILL))
        after = node.metrics()
        for place in ALL:
            was, now = (of(s, fake, place, "energy_joules_total") or 0 for s in (before, after))
            assert now >= was


def test_F14_apart_a_library_that_always_crashes_is_started_ever_more_seldom(fake: FakeNvml) -> None:
    fake.crash(0, POWER)
    with daemon(fake, *APART) as node:
        node.until(lambda: fake.calls(None, INIT) == 2)
        node.until(lambda: not children(node.pid))
        began = time.monotonic()
        node.until(lambda: fake.calls(None, INIT) == 3)
        assert time.monotonic() - began > 7
        assert node.get("/metrics").status == 200


def test_F14_apart_a_crash_at_the_start_is_survived(fake: FakeNvml) -> None:
    crash_once(fake, None, INIT)
    with daemon(fake, *APART) as node:
        node.wait_for(lambda s: find(s, "gputally_source_up", source="nvml") == [0])
        node.wait_for(lambda s: well(s, fake, *ALL))


def test_F14_in_our_own_process_a_crash_is_what_it_is(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        node.wait_for(lambda s: well(s, fake, *ALL))
        assert children(node.pid) == {}
        fake.crash(0, POWER)
        assert ended(node) == -signal.SIGSEGV


@pytest.mark.parametrize("hung", [False, True])
def test_F14_apart_it_ends_when_we_are_killed(fake: FakeNvml, hung: bool) -> None:
    with daemon(fake, *APART) as node:
        node.wait_for(lambda s: well(s, fake, *ALL))
        if hung:
            fake.hang(0)
            node.wait_for(lambda s: state(s, fake, 0) == "hung")
        other = child(node)
        os.kill(node.pid, signal.SIGKILL)
        ended_too = gone(other)
        if not ended_too:
            os.kill(other, signal.SIGKILL)
        assert ended_too


def test_F14_apart_a_gpu_that_hangs_delays_nobody_and_both_end(fake: FakeNvml) -> None:
    with daemon(fake, *APART) as node:
        node.wait_for(lambda s: well(s, fake, *ALL))
        fake.hang(2)
        hung = node.wait_for(lambda s: state(s, fake, 2) == "hung" and well(s, fake, 0, 1, 3))
        assert find(hung, "gputally_stuck_calls", lane="gpu2") == [1]
        asked = fake.calls(3, POWER)
        node.wait_for(lambda s: fake.calls(3, POWER) > asked + 3)
        fake.release(2)
        node.wait_for(lambda s: well(s, fake, *ALL))
        fake.hang(2)
        node.wait_for(lambda s: state(s, fake, 2) == "hung")
        other = child(node)
        assert node.terminate() == 0
        assert gone(other)


def test_F14_apart_signals_to_all_of_a_unit_are_for_us(fake: FakeNvml) -> None:
    with daemon(fake, *APART) as node:
        node.wait_for(lambda s: well(s, fake, *ALL))
        other = child(node)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP):
            os.kill(other, number)
        asked = fake.calls(3, POWER)
        node.wait_for(lambda s: fake.calls(3, POWER) > asked + 2 and well(s, fake, *ALL))
        assert child(node) == other


def test_F14_apart_at_rest_there_is_no_other_process(fake: FakeNvml) -> None:
    with daemon(fake, *APART) as node:
        node.wait_for(lambda s: well(s, fake, *ALL))
        other = child(node)
        os.kill(node.pid, signal.SIGUSR2)
        node.wait_for(lambda s: find(s, "gputally_yielded") == [1] and fake.initialised == 0)
        assert gone(other)
        os.kill(node.pid, signal.SIGUSR2)
        node.wait_for(lambda s: well(s, fake, *ALL))
        os.kill(child(node), signal.SIGKILL)
        os.kill(node.pid, signal.SIGUSR2)
        node.wait_for(lambda s: find(s, "gputally_yielded") == [1])
        assert not any("still holds" in line["msg"] for line in node.log)


def test_F14_apart_one_look_leaves_nobody_behind(fake: FakeNvml) -> None:
    words = [*GPUTALLY, "show", "--nvml.library", str(fake.library), *APART, "--tick", "100ms"]
    done = subprocess.run(words, env=environment(fake.env), capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert done.stdout.count(b"\ngputally_gpu_up{") == 4
    assert fake.initialised == 0


def test_F14_letters_are_whole_and_bounded() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        for letter in ({"answer": [[1, None, 2**64 - 1]]}, [None, "x" * 100_000, [1.5]]):
            send(ours, letter)
            assert receive(theirs) == letter
        with pytest.raises(ValueError, match="at most"):
            send(ours, "x" * MOST_BYTES)
        ours.sendall(struct.pack("!I", MOST_BYTES + 1))
        with pytest.raises(ValueError, match="at most"):
            receive(theirs)
        ours.sendall(struct.pack("!I", 3) + b"{{{")
        with pytest.raises(ValueError, match="Expecting"):
            receive(theirs)
        ours.sendall(struct.pack("!I", 9) + b"{}")
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)
