"""Resolvers say whose a process is; each refines what the one before it knew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Protocol

from gputally.model import UNKNOWN, Owner, Process
from gputally.owners.host import CgroupOwner


class Resolver(Protocol):
    """Something that knows more about whose a process is."""

    name: str

    def refine(self, process: Process, owner: Owner) -> Owner:
        """The owner, as far as is known with this; the same one where nothing is added."""


def resolve(resolvers: Sequence[Resolver], process: Process) -> Owner:
    """Whose the process is, by all resolvers in turn."""
    return reduce(lambda owner, resolver: resolver.refine(process, owner), resolvers, UNKNOWN)


def steps(resolvers: Sequence[Resolver], process: Process) -> Iterator[tuple[str, Owner]]:
    """Each resolver's name, and the owner as it is after it."""
    owner = UNKNOWN
    for resolver in resolvers:
        owner = resolver.refine(process, owner)
        yield resolver.name, owner


OWNERS: tuple[Resolver, ...] = (CgroupOwner(),)
