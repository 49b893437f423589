"""The textfile for node_exporter: the bytes of a scrape in a file, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from gputally import files
from gputally.loop import Followed, Outlet
from gputally.writing import Writer

READABLE = 0o644
"""node_exporter runs as another user."""


class Textfile:
    """A file in a folder of ours; each write that failed is counted."""

    def __init__(
        self, directory: str, name: str, body: Callable[[], bytes], failed: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._name = name
        self._body = body
        self._writer = Writer(f"{directory}/{name}", "what is there stays", failed)

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
        return Followed(outlet, self._begin)

    async def end(self) -> None:
        """Remove the file: numbers of a program that ended are not to be scraped as if it ran."""
        await self._writer.remove(self._remove)

    def _begin(self) -> None:
        body = self._body()
        self._writer.begin(lambda: self._write(body))

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
