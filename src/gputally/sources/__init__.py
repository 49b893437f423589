"""Sources turn raw answers into numbers about GPUs and their processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gputally.model import Device, Pace, Reading


class Source(Protocol):
    """Something that tells of GPUs."""

    name: str

    async def read(self, pace: Pace) -> Reading | None:
        """What is known now, None if nobody needs this source, Unreadable if it is down; never waits long."""

    async def close(self) -> None:
        """Let go of the hardware."""


class Companion(Protocol):
    """Something that tells more of GPUs which a source has found."""

    name: str

    @property
    def stuck(self) -> Mapping[str, int]:
        """Lane -> calls outstanding past their deadline, also while it is down."""

    async def read(self, pace: Pace, devices: Sequence[Device]) -> Reading | None:
        """Devices with only what it adds to these; None if it has not answered yet, or need not be there."""

    async def close(self) -> None:
        """Let go of the hardware."""
