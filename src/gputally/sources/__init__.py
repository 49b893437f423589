"""Sources turn raw answers into numbers about GPUs and their processes."""

from __future__ import annotations

from typing import Protocol

from gputally.model import Pace, Reading


class Source(Protocol):
    """Something that tells of GPUs."""

    name: str

    async def read(self, pace: Pace) -> Reading:
        """What is known now, or Unreadable if this source is down; never waits long."""

    async def close(self) -> None:
        """Let go of the hardware."""
