"""What a dashboard is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard."""

    name: str
    query: str


@dataclass(frozen=True)
class Row:
    """A heading between panels."""

    title: str


@dataclass(frozen=True)
class Panel:
    """One picture: queries are pairs of an expression and a legend."""

    title: str
    unit: str
    description: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    stack: bool = False
    steps: tuple[float, ...] = ()
    value: str = "Value"
    hide: tuple[str, ...] = ()


@dataclass(frozen=True)
class Board:
    """One dashboard; its uid never changes, since links and bookmarks hold it."""

    file: str
    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    parts: tuple[Row | Panel, ...]
    span: str = "6h"
    refresh: str = "30s"


def stat(title: str, unit: str, description: str, query: str, steps: tuple[float, ...] = ()) -> Panel:
    """One number."""
    return Panel(title, unit, description, ((query, ""),), "stat", width=4, height=4, steps=steps)


def table(
    title: str, unit: str, description: str, query: str, value: str, hide: tuple[str, ...] = ()
) -> Panel:
    """Rows of labels with one number each."""
    return Panel(title, unit, description, ((query, ""),), "table", value=value, hide=hide)
