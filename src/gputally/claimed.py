"""How Dynamic Resource Allocation names a device."""

from __future__ import annotations

from typing import NamedTuple


class Claimed(NamedTuple):
    """A device as Dynamic Resource Allocation names it."""

    claim: str
    namespace: str
    driver: str
    pool: str
    device: str
