"""Rows that are kept by column: what is done for each of them is one loop of the interpreter's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Generic, NoReturn, TypeVar, overload

T = TypeVar("T", bound=tuple[Any, ...])


class Columns(Sequence[T], Generic[T]):
    """Named tuples of one kind, made from their columns only for who looks at them."""

    def __init__(self, kind: type[T], columns: Iterable[Sequence[Any]]) -> None:
        self._kind = kind
        self.columns = tuple(columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[T]:
        # A row from its fields, without the cost of a constructor.
        return map(tuple.__new__, repeat(self._kind), zip(*self.columns, strict=True))

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> NoReturn: ...
    def __getitem__(self, place: int | slice) -> T:
        if isinstance(place, slice):
            raise TypeError("rows are taken one by one, or all")
        return tuple.__new__(self._kind, [column[place] for column in self.columns])


def column(rows: Sequence[tuple[Any, ...]], place: int) -> tuple[Any, ...]:
    """One field of each of the rows."""
    if isinstance(rows, Columns):
        return tuple(rows.columns[place])  # the very same, where it is a tuple
    return tuple(map(itemgetter(place), rows))


def picker(places: Sequence[int | slice]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes those places of a column, in that order."""
    if len(places) < 2:  # of one alone, itemgetter would not make a row
        return lambda column: [column[place] for place in places]
    pick: Callable[[Sequence[Any]], Sequence[Any]] = itemgetter(*places)
    return pick
