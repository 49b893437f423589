"""The textfile for node_exporter: the bytes of a scrape in a file, whole or not at all."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress

from gputally import files
from gputally.lanes import Lane
from gputally.loop import Followed, Outlet
from gputally.model import Unreadable

log = logging.getLogger(__name__)

DEADLINE = 10.0
READABLE = 0o644
"""node_exporter runs as another user."""


class Textfile:
    """Writes in a lane, so that no disk holds anybody up; says once when it cannot, and counts."""

    def __init__(
        self, directory: str, name: str, body: Callable[[], bytes], failed: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._name = name
        self._body = body
        self._failed = failed
        self._failing = False
        self._lane = Lane("textfile")
        self._writing: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Raise Unsafe where others could write too, or we could not."""
        os.close(files.open_folder(self._directory))
        if not os.access(self._directory, os.W_OK | os.X_OK):
            raise files.Unsafe(f"{self._directory}: cannot be written to")

    def begin(self) -> None:
        """Take away what an earlier run left behind; not before we know that no other one runs."""
        with suppress(OSError, files.Unsafe):
            self._remove()

    def behind(self, outlet: Outlet) -> Outlet:
        """The outlet, with the file written after each publication."""
        return Followed(outlet, self._start)

    async def end(self) -> None:
        """Remove the file: numbers of a program that ended are not to be scraped as if it ran."""
        if self._writing is not None:
            await self._writing
        with suppress(OSError, files.Unsafe, Unreadable):
            await self._lane.ask(self._remove, DEADLINE)

    def _start(self) -> None:
        body = self._body()
        self._writing = asyncio.ensure_future(self._publish(body))

    async def _publish(self, body: bytes) -> None:
        try:
            await self._lane.ask(lambda: self._write(body), DEADLINE)
        except (OSError, files.Unsafe, Unreadable) as error:
            self._failed()
            if not self._failing:
                log.warning(
                    "%s in %s cannot be written, what is there stays: %s", self._name, self._directory, error
                )
            self._failing = True
        else:
            if self._failing:
                log.info("%s in %s is written again", self._name, self._directory)
            self._failing = False

    def _write(self, body: bytes) -> None:
        folder = files.open_folder(self._directory)
        try:
            files.write(folder, self._name, body, READABLE)
        finally:
            os.close(folder)

    def _remove(self) -> None:
        folder = files.open_folder(self._directory)
        try:
            files.remove(folder, self._name)
        finally:
            os.close(folder)
