"""Series of another exporter, as it wrote them."""

from __future__ import annotations

from typing import NamedTuple


class ForeignSample(NamedTuple):
    """One line: names, labels and value exactly as they were written."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: str
    uuid: str = ""
    """The GPU it speaks of, once that is found to be one of ours."""
    mig: str = ""


class ForeignFamily(NamedTuple):
    """Lines under one HELP and TYPE; None where none was written."""

    name: str
    type: str | None
    help: str | None
    samples: tuple[ForeignSample, ...]
