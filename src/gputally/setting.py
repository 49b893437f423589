"""What a setting is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One setting."""

    flag: str
    default: str
    read: Callable[[str], Any]
    shape: str
    help: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "GPUTALLY_" + re.sub("[.-]", "_", self.flag).upper()

    @property
    def name(self) -> str:
        """Its attribute of Config."""
        return re.sub("[.-]", "_", self.flag)
