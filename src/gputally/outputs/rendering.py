"""One rendering of a Tally: parts that are written when it is published, joined or packed for who asks."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

LARGE = 8192
"""A family from this size on is packed by itself; those between two large ones are packed together."""
LEVEL, MEMORY = 1, 6
"""With less memory than zlib's default such text is packed faster, and no worse."""
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\x03"
EOF = b"# EOF\n"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text as a piece of any deflate stream."""

    pieces: tuple[bytes, ...]
    deflated: bytes


@dataclass(slots=True)
class Part:
    """One family: what each format has above its lines, and the lines."""

    plain: bytes
    openmetrics: bytes
    lines: bytes
    packed: dict[bytes, Stretch] = field(default_factory=dict, compare=False)
    """What is above it -> the stretch that begins with it, as it was last packed."""


@dataclass(frozen=True)
class Text:
    """All parts, in both formats."""

    parts: tuple[Part, ...]
    samples: int
    collisions: int
    """Samples that had the labels of another one in their family."""

    @cached_property
    def plain(self) -> bytes:
        """In format 0.0.4."""
        return b"".join([piece for part in self.parts for piece in (part.plain, part.lines)])

    @cached_property
    def openmetrics(self) -> bytes:
        """In OpenMetrics."""
        pieces = [piece for part in self.parts for piece in (part.openmetrics, part.lines)]
        return b"".join([*pieces, EOF])

    @cached_property
    def plain_gzip(self) -> bytes:
        """In format 0.0.4, packed."""
        return _gzip([(part.plain, part) for part in self.parts])

    @cached_property
    def openmetrics_gzip(self) -> bytes:
        """In OpenMetrics, packed."""
        return _gzip([(part.openmetrics, part) for part in self.parts], EOF)


def together(texts: Sequence[Text]) -> Text:
    """Several texts as one."""
    parts = tuple(part for text in texts for part in text.parts)
    return Text(parts, sum(text.samples for text in texts), sum(text.collisions for text in texts))


def _gzip(parts: Iterable[tuple[bytes, Part]], end: bytes = b"") -> bytes:
    """Headers and lines as one gzip file; stretches that were packed before are put in as they are."""
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, MEMORY)
    packed, checksum, size = [GZIP_HEADER], 0, 0
    for (header, part), pieces in _stretches(parts, end):
        stretch = part.packed.get(header)
        if stretch is None or stretch.pieces != pieces:
            # Flushed, so that nothing that follows refers to anything before it.
            deflated = b"".join([*map(stream.compress, pieces), stream.flush(zlib.Z_FULL_FLUSH)])
            stretch = part.packed[header] = Stretch(pieces, deflated)
        packed.append(stretch.deflated)
        for piece in pieces:
            checksum, size = zlib.crc32(piece, checksum), size + len(piece)
    return b"".join([*packed, stream.flush(), struct.pack("<II", checksum, size & 0xFFFFFFFF)])


def _stretches(
    parts: Iterable[tuple[bytes, Part]], end: bytes
) -> Iterator[tuple[tuple[bytes, Part], tuple[bytes, ...]]]:
    """The header and part with which each stretch begins, and its text."""
    first: tuple[bytes, Part] | None = None
    small: list[bytes] = []
    for each in parts:
        header, part = each
        if len(part.lines) < LARGE:
            first = first or each
            small += (header, part.lines)
            continue
        if first:
            yield first, (b"".join(small),)
            first = None
            small.clear()
        yield each, (header, part.lines)  # not joined: that would be a copy
    yield first or (end, Part(b"", b"", b"")), (b"".join([*small, end]),)
