"""The writer of a file: it holds nobody up, and says once what it cannot do."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from gputally.writing import Writer


class Disk:
    """Where a file is written, as long as there is room."""

    def __init__(self) -> None:
        self.full = False
        self.gate = threading.Event()
        self.gate.set()
        self.written: list[int] = []
        self.failures = 0

    def write(self, number: int) -> None:
        self.gate.wait()
        if self.full:
            raise OSError("no room")
        self.written.append(number)

    def failed(self) -> None:
        self.failures += 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_it_is_said_once_that_a_file_cannot_be_written_and_once_that_it_can(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        writer = Writer("/x/y", "scrapes go on", disk.failed)
        for disk.full in (False, True, True, True, False, False):
            await writer.write(lambda: disk.write(1))

    asyncio.run(work())
    assert caplog.messages == ["/x/y cannot be written; scrapes go on: no room", "/x/y is written again"]
    assert (len(disk.written), disk.failures) == (3, 3)


def test_while_an_older_write_is_under_way_none_is_begun_and_the_last_one_waits(disk: Disk) -> None:
    async def work() -> None:
        writer = Writer("/x/y", "scrapes go on", disk.failed)
        disk.gate.clear()
        for number in (1, 2, 3):
            writer.begin(lambda number=number: disk.write(number))  # type: ignore[misc]
            await asyncio.sleep(0)
        assert writer.busy
        last = asyncio.ensure_future(writer.write(lambda: disk.write(4)))
        await asyncio.sleep(0)
        disk.gate.set()
        await last

    asyncio.run(work())
    assert (disk.written, disk.failures) == ([1, 4], 0)


def test_on_a_disk_that_hangs_every_write_fails_and_the_end_does_not_wait(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        writer = Writer("/x/y", "scrapes go on", disk.failed, deadline=0.05)
        disk.gate.clear()
        await writer.write(lambda: disk.write(1))
        writer.begin(lambda: disk.write(2))
        await writer.remove(lambda: disk.write(3))
        disk.gate.set()

    asyncio.run(work())
    assert disk.failures == 2
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "/x/y cannot be written; scrapes go on",
        "/x/y is left as it is",
    ]
