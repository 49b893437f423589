"""Checksums of gzip over text of which most was summed before: that is not read again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import accumulate, repeat
from typing import NamedTuple

POLYNOMIAL = 0xEDB88320
"""Of CRC-32; as in its sums, the highest power is the lowest bit."""
ALL, HIGHEST = 0xFFFFFFFF, 0x80000000
BITS, NIBBLE = 32, 4


class Summed(NamedTuple):
    """What a piece of text does to the checksum of all that stands before it."""

    checksum: int
    """Of the piece alone."""
    moved: tuple[tuple[int, ...], ...]
    """What each nibble of a checksum becomes, the lowest first, when as many bytes follow as it has."""

    def after(self, before: int) -> int:
        """The checksum with the piece at its end."""
        checksum = self.checksum
        for moved in self.moved:
            checksum ^= moved[before & 15]
            before >>= NIBBLE
        return checksum


def summed(pieces: Iterable[bytes]) -> Summed:
    """A piece, given in parts."""
    checksum = size = 0
    for piece in pieces:
        checksum, size = zlib.crc32(piece, checksum), size + len(piece)
    highest = zlib.crc32(bytes(size), ALL ^ HIGHEST) ^ ALL  # that bit of a sum, moved by so many zeros
    bits = list(accumulate(repeat(highest, BITS), lambda bit, _: bit >> 1 ^ (POLYNOMIAL if bit & 1 else 0)))
    bits.reverse()
    return Summed(checksum, tuple(_mixed(*bits[n : n + NIBBLE]) for n in range(0, BITS, NIBBLE)))


def _mixed(*bits: int) -> tuple[int, ...]:
    """What becomes of every mixture of those bits."""
    mixed = [0]
    for bit in bits:
        mixed += [bit ^ other for other in mixed]
    return tuple(mixed)
