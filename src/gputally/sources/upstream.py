"""Another exporter as a source: its text, from a URL or a file, never older than it may be."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlsplit

from gputally.foreign import ForeignFamily
from gputally.lanes import Lane
from gputally.machine import Access, Machine
from gputally.model import Device, DeviceInfo, Losses, Pace, Reading, Unreadable
from gputally.sources.upstream_text import read_text

MOST_BYTES = 8 * 2**20
DEADLINE = 3.0
SKEW = 60.0
"""Seconds by which a file may be from the future."""
ACCESS = Access(
    accept="text/plain;version=0.0.4",
    gzip=True,
    connect_seconds=1.0,
    seconds=DEADLINE,
    most_bytes=MOST_BYTES,
)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
UUID = re.compile(r"GPU-[0-9a-fA-F-]{36}")

Page = tuple[tuple[ForeignFamily, ...], Losses]


class UpstreamSource:
    """Asks at every interval; what comes late is taken up at the next one, unless it is too old by then."""

    name = "upstream"

    def __init__(
        self, machine: Machine, *, url: str, file: str, max_age: float, patience: float = 0.5
    ) -> None:
        self._machine = machine
        self._url = url
        self._file = file
        self._max_age = max_age
        self._patience = patience
        self._vouched = bool(file) or urlsplit(url).hostname in LOOPBACK
        """It can only be of this node, so that GPUs which nobody else knows are believed."""
        self._lane = Lane("upstream")
        self._asking: asyncio.Task[Page] | None = None
        self._asked_at = 0.0
        self._reason = "upstream: has not answered yet"

    async def read(self, pace: Pace) -> Reading:
        """The newest text at the interval's pace; between, only how the source is."""
        page: Page = ((), Losses())
        if pace is not Pace.TICK:
            page = await self._page() or page
        families, losses = page
        stuck = {self._lane.name: int(self._lane.stuck)}
        seen = named(families) if self._vouched else ()
        return Reading(foreign=families, seen=seen, stuck=stuck, losses=losses, down=self._reason)

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _page(self) -> Page | None:
        """What was answered, waited for a little; None where there is nothing that could be shown as now."""
        now = self._machine.clock.monotonic()
        if self._asking is None:
            self._asked_at = now
            self._asking = asyncio.ensure_future(self._ask())
        await asyncio.wait((self._asking,), timeout=self._patience)
        if not self._asking.done():
            self._reason = "upstream: has not answered yet"
            return None
        task, self._asking = self._asking, None
        try:
            page = task.result()
        except Unreadable as error:
            self._reason = str(error)
            return None
        age = self._machine.clock.monotonic() - self._asked_at
        self._reason = f"upstream: its answer came {age:.0f} s late" if age > self._max_age else ""
        return None if self._reason else page

    async def _ask(self) -> Page:
        oldest = self._machine.clock.time() - self._max_age
        if self._file:
            return await self._lane.ask(lambda: self._read_file(oldest), DEADLINE)
        body = await self._machine.get(self._url, ACCESS)
        return await self._lane.ask(lambda: read_text(body, oldest), DEADLINE)

    def _read_file(self, oldest: float) -> Page:
        written_at, content = self._machine.dated(self._file, MOST_BYTES)
        if not oldest <= written_at <= oldest + self._max_age + SKEW:
            age = oldest + self._max_age - written_at
            raise Unreadable(f"{self._file}: last written {age:.0f} s ago; its writer seems to have stopped")
        return read_text(content, oldest)


def named(families: tuple[ForeignFamily, ...]) -> tuple[Device, ...]:
    """The GPUs that a text names by uuid and index, for nodes where nobody else tells of them."""
    found: dict[str, Device] = {}
    for family in families:
        for sample in family.samples:
            labels = dict(sample.labels)
            uuid, index = labels.get("UUID") or labels.get("uuid") or "", labels.get("gpu", "")
            if uuid not in found and UUID.fullmatch(uuid) and re.fullmatch(r"[0-9]{1,4}", index):
                info = DeviceInfo(model=labels.get("modelName"), pci_bus_id=labels.get("pci_bus_id"))
                found[uuid] = Device(uuid, int(index), info=info)
    return tuple(sorted(found.values(), key=lambda device: device.index))
