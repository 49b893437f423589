"""Disks that hang: who needs them is down, and nobody else waits; each heals when the disk answers."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gputally.machine import Access
from gputally.machine.clocks import RealClock, VirtualClock
from gputally.machine.disk import Disk
from gputally.machine.local import LocalMachine
from gputally.model import PENDING, Device, Holder, Owner, Unreadable
from gputally.owners.cgroup import parse
from gputally.owners.discovery import Places, discover
from gputally.owners.host import CgroupOwner
from gputally.owners.inquiry import Inquiry
from gputally.owners.jobs import JobFiles
from gputally.owners.logs import PodLogs
from gputally.owners.runtimes import DockerFiles
from gputally.owners.shelf import DEADLINE, Late, Shelf
from gputally.owners.whereabouts import FIRST_PAUSE, Kubelet
from tests.owners.stage import GPU, HEX, OTHER, UID, Stage

DOCKER = "0::/system.slice/docker-{}.scope\n"
BEAT = 0.02
LATE = 1.0
"""Seconds that a beat may be late on a busy computer; a disk here hangs for longer."""


class HungDisk(Stage):
    """A local machine whose disk answers nothing until it is let go."""

    name = "local"

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.command_line: Mapping[str, str] | None = {
            "kubelet-args-file": "/var/snap/microk8s/1/args/kubelet"
        }

    def folder(self, path: str) -> Mapping[str, str]:
        self._hang()
        return {f"ml_train-0_{UID}": ""} if path.endswith("/pods") else {}

    def file(self, path: str) -> bytes | None:
        self._hang()
        return super().file(path)

    def settings(self, path: str, wanted: Collection[str]) -> Mapping[str, str]:
        self._hang()
        return {}

    def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
        if self.command_line is None:
            raise Unreadable("no process runs kubelet")
        return self.command_line

    def _hang(self) -> None:
        self.released.wait(20)


@pytest.fixture
def disk() -> Iterator[HungDisk]:
    machine = HungDisk()
    yield machine
    machine.released.set()


class Beats:
    """A part of the program that has nothing to do with the disk, and how late it was at most."""

    async def __aenter__(self) -> Beats:
        self.latest = 0.0
        self._task = asyncio.ensure_future(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(BEAT)
            self.latest = max(self.latest, time.monotonic() - before - BEAT)


async def until(look: Callable[[], object], seconds: float = 10.0) -> None:
    give_up = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)


def test_a_listing_of_logs_that_hangs_takes_only_the_logs_down(disk: HungDisk) -> None:
    async def scene() -> None:
        party = PodLogs(disk, "/var/log", deadline=1.0)
        inquiry = Inquiry(RealClock(), party)
        inquiry.start()
        async with Beats() as beats:
            await until(lambda: inquiry.health is not None)
            assert inquiry.health is not None
            assert (inquiry.is_up, inquiry.health.reason) == (False, "pod_logs: no answer within 1 s")
            await asyncio.sleep(1.2)
            disk.released.set()
            await until(lambda: inquiry.is_up)
        assert party.pods.by_uid[UID].name == "train-0"
        assert beats.latest < LATE
        await inquiry.stop()

    asyncio.run(scene())


def test_a_kubelet_whose_folders_hang_is_looked_for_beside_everybody_else(disk: HungDisk) -> None:
    async def scene() -> None:
        async with Beats() as beats:
            outside = discover(disk, Places(kubernetes="on", cri_socket="auto"))
            await outside.refresh()
            down = {health.source: health.reason for health in outside.health() if not health.up}
            waited = {"kubelet: no answer within 5 s", "kubelet: an earlier call has not returned"}
            assert {down["cri"], down["pod_resources"]} <= waited
        assert beats.latest < LATE

    asyncio.run(scene())


def test_what_was_not_found_for_a_hung_disk_is_found_when_it_answers(disk: HungDisk) -> None:
    async def scene() -> None:
        kubelet = Kubelet(disk, deadline=1.0)
        with pytest.raises(Unreadable):
            await kubelet.root()
        disk.released.set()
        await asyncio.sleep(0.1)
        assert await kubelet.root() == "/var/lib/kubelet"

    asyncio.run(scene())


def test_a_folder_that_was_guessed_is_kept_while_the_disk_hangs(disk: HungDisk) -> None:
    disk.command_line = None
    disk.released.set()

    async def scene() -> None:
        kubelet = Kubelet(disk, deadline=0.1)
        assert await kubelet.root() == "/var/lib/kubelet"
        disk.released.clear()
        assert isinstance(disk.clock, VirtualClock)
        disk.clock.jump(1000.0 + FIRST_PAUSE)
        assert await kubelet.root() == "/var/lib/kubelet"

    asyncio.run(scene())


def test_a_file_of_docker_that_hangs_leaves_the_container_pending_and_then_by_its_id(disk: HungDisk) -> None:
    assert isinstance(disk.clock, VirtualClock)
    docker = DockerFiles(disk, parse)
    for number, name in ((HEX, "web"), (OTHER, "db")):
        disk.files[f"/var/lib/docker/containers/{number}/config.v2.json"] = (
            f'{{"ID": "{number}", "Name": "/{name}"}}'.encode()
        )
    process, other = disk.start(1, DOCKER.format(HEX)), disk.start(2, DOCKER.format(OTHER))
    plain = CgroupOwner().refine(process, PENDING)
    began = time.monotonic()
    assert docker.refine(process, plain) is PENDING
    assert docker.refine(other, plain) is PENDING
    assert time.monotonic() - began < LATE
    disk.clock.jump(1000.0 + DEADLINE + 1)
    assert docker.refine(process, plain) == plain
    disk.released.set()
    wait_for(lambda: docker.refine(other, plain) not in (PENDING, plain))
    assert docker.refine(other, plain).container == "db"


def test_job_files_on_a_disk_that_is_slow_are_all_read_in_the_end(disk: HungDisk) -> None:
    jobs = JobFiles(disk, "/jobs")
    jobs.look([Device(GPU, 3, holders=(Holder(1, None),))])
    disk.files[f"/jobs/{GPU}"] = b"4711\n"
    process, host = disk.start(1, "0::/\n"), Owner("host", workload="train")
    assert jobs.refine(process, host) is PENDING
    disk.released.set()
    wait_for(lambda: jobs.refine(process, host) == Owner("job", workload="4711"))


def test_what_a_disk_answers_in_time_is_read_anew_each_time(disk: HungDisk) -> None:
    disk.released.set()

    def read_thrice() -> bool:
        shelf = Shelf(disk, "shelf")
        try:
            for content in (b"1", b"2"):
                disk.files["/a"] = content
                assert shelf.file("/a") == content
            assert shelf.file("/b") is None
        except Late:  # on a busy computer
            return False
        return True

    wait_for(read_thrice)


def wait_for(look: Callable[[], object]) -> None:
    give_up = time.monotonic() + 10
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_one_place_that_hangs_holds_up_no_other() -> None:
    released = threading.Event()

    async def scene() -> None:
        disk = Disk()
        hung = asyncio.gather(
            *(disk.ask("/nfs", lambda: released.wait(20)) for _ in range(2)), return_exceptions=True
        )
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert await disk.ask("/run", lambda: 7) == 7
        assert time.monotonic() - began < LATE
        first, second = await hung
        assert "no answer within 2 s" in str(first)
        assert "an earlier call has not returned" in str(second)
        released.set()
        await asyncio.sleep(0.1)
        assert await disk.ask("/nfs", lambda: 8) == 8

    asyncio.run(scene())


@pytest.mark.parametrize("wrong", ["token", "ca"])
def test_a_token_or_certificate_that_is_a_pipe_stops_nobody(tmp_path: Path, wrong: str) -> None:
    """Whoever opens a pipe waits until somebody writes to it."""
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    access = Access(token_file=pipe) if wrong == "token" else Access(ca_file=pipe)

    async def scene() -> None:
        async with Beats() as beats:
            with pytest.raises(Unreadable, match="pipe"):
                await LocalMachine("/nowhere").get("https://127.0.0.1:1/pods", access)
        assert beats.latest < LATE

    asyncio.run(scene())
    os.close(os.open(pipe, os.O_RDWR))  # lets go of whoever waits
