"""Dialects: tables of metric rows over the Tally, each in the words of one world."""

from __future__ import annotations

from collections.abc import Mapping

from gputally.dialects import native
from gputally.metrics import Metric

DIALECTS: Mapping[str, tuple[Metric, ...]] = {"native": native.METRICS}
