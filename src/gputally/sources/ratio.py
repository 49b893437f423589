"""The ratio of virtual to physical GPUs: a number, or a file that holds one and may change."""

from __future__ import annotations

import logging
import re

from gputally.machine.processes import read_file
from gputally.model import Unreadable

log = logging.getLogger(__name__)


def parse_ratio(text: str) -> float:
    """An integer or a decimal from 1 to 1000."""
    if not re.fullmatch(r"\d{1,4}(\.\d{1,9})?", text) or not 1 <= float(text) <= 1000:
        raise ValueError("a number from 1 to 1000, such as 4 or 2.5")
    return float(text)


class RatioFile:
    """Reads the file each time, so that a change counts at once; says once when it cannot.

    It is a setting of ours and no answer of a machine, so it is read here whichever machine answers.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reason = ""

    def check(self) -> float:
        """The ratio, or Unreadable with what is wrong."""
        content = read_file(self._path)
        if content is None:
            raise Unreadable(f"{self._path} is not there, or not for us to read")
        text = content[:1000].decode("utf-8", "replace").strip()
        try:
            return parse_ratio(text)
        except ValueError as error:
            raise Unreadable(f"{self._path} holds {text[:40]!r}; it must hold {error}") from None

    def __call__(self) -> float | None:
        """The ratio as it is now; None while it cannot be read."""
        try:
            ratio = self.check()
        except Unreadable as error:
            if str(error) != self._reason:
                log.warning("no memory limits by ratio: %s", error)
            self._reason = str(error)
            return None
        if self._reason:
            log.info("the ratio of virtual GPUs is %g again", ratio)
        self._reason = ""
        return ratio
