"""One rendering of a Tally: parts that are written when it is published, joined or packed for who asks."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

LARGE = 8192
"""Lines from this size on are packed by themselves, and not again while they stay as they are."""
LEVEL, MEMORY = 1, 6
"""With less memory than zlib's default such text is packed faster, and no worse."""
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\x03"
EOF = b"# EOF\n"


@dataclass(slots=True)
class Part:
    """One family: what each format has above its lines, and the lines."""

    plain: bytes
    openmetrics: bytes
    lines: bytes
    deflated: bytes = field(default=b"", compare=False)
    """The lines as a piece of any deflate stream; empty until somebody asks for it."""


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
        return _gzip((part.plain, part) for part in self.parts)

    @cached_property
    def openmetrics_gzip(self) -> bytes:
        """In OpenMetrics, packed."""
        end = (EOF, Part(b"", b"", b""))
        return _gzip([*((part.openmetrics, part) for part in self.parts), end])


def together(texts: Sequence[Text]) -> Text:
    """Several texts as one."""
    parts = tuple(part for text in texts for part in text.parts)
    return Text(parts, sum(text.samples for text in texts), sum(text.collisions for text in texts))


def _gzip(parts: Iterable[tuple[bytes, Part]]) -> bytes:
    """Headers and lines as one gzip file; lines that were packed before are put in as they are."""
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, MEMORY)
    packed, checksum, size = [GZIP_HEADER], 0, 0
    for text, part in _chunks(parts):
        checksum, size = zlib.crc32(text, checksum), size + len(text)
        if part is None:
            # Flushed, so that nothing that follows refers to anything before it.
            packed += (stream.compress(text), stream.flush(zlib.Z_FULL_FLUSH))
        else:
            part.deflated = part.deflated or stream.compress(text) + stream.flush(zlib.Z_FULL_FLUSH)
            packed.append(part.deflated)
    return b"".join([*packed, stream.flush(), struct.pack("<II", checksum, size & 0xFFFFFFFF)])


def _chunks(parts: Iterable[tuple[bytes, Part]]) -> Iterator[tuple[bytes, Part | None]]:
    """Large lines by themselves, with their part; everything between them joined."""
    small: list[bytes] = []
    for header, part in parts:
        small.append(header)
        if len(part.lines) < LARGE:
            small.append(part.lines)
        else:
            yield b"".join(small), None
            yield part.lines, part
            small.clear()
    yield b"".join(small), None
