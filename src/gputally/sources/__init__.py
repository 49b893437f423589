"""Sources turn raw answers into numbers about GPUs and their processes."""

from __future__ import annotations

from typing import Protocol

from gputally.model import Pace, Reading


class Source(Protocol):
    """Something that tells of GPUs."""

    name: str

    async def read(self, pace: Pace) -> Reading | None:
        """What is known now, None if nobody needs this source, Unreadable if it is down; never waits long."""

    async def close(self) -> None:
        """Let go of the hardware."""
