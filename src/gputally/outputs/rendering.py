"""One rendering of a Tally: parts that are written when it is published, joined or packed for who asks."""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, groupby
from operator import attrgetter, is_not

from isal import isal_zlib as zlib

AFRESH = 100
"""Texts after which it is looked anew which of their parts change."""
SMALL = 16_384
"""Bytes that are packed anew in less time than it takes to begin another piece after them."""
LEVEL = 1
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\x03"
EOF = b"# EOF\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One family: what each format has above its lines, and the lines."""

    plain: bytes
    openmetrics: bytes
    lines: bytes


@dataclass(frozen=True)
class Text:
    """All parts, in both formats."""

    parts: tuple[Part, ...]
    samples: int
    collisions: int
    """Samples that had the labels of another one in their family."""
    packers: Packers = field(default_factory=lambda: Packers(), compare=False)
    """Of a writer that writes one text after the other: what stays is packed once."""

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
        return self.packers.plain.gzip(self.parts)

    @cached_property
    def openmetrics_gzip(self) -> bytes:
        """In OpenMetrics, packed."""
        return self.packers.openmetrics.gzip(self.parts)


def together(texts: Sequence[Text], packers: Packers) -> Text:
    """Several texts as one."""
    parts = tuple(part for text in texts for part in text.parts)
    return Text(parts, sum(text.samples for text in texts), sum(text.collisions for text in texts), packers)


@dataclass(frozen=True)
class Stretch:
    """Parts as a piece of any deflate stream, with the length and the CRC of their text."""

    parts: tuple[Part, ...]
    size: int
    checksum: int
    deflated: bytes


class Packer:
    """Makes gzip files of one text after the other, in one format.

    Parts that change are packed apart from those that stay, which are packed once, all that stand together,
    unless those are small.
    """

    def __init__(self, above: str, end: bytes = b"") -> None:
        self._above = attrgetter(above)
        self._end = Part(end, end, b"")
        self._before: tuple[Part, ...] = ()
        self._restless: set[int] = set()
        """Which of them were others the time before, since they were last divided from the start."""
        self._bounds: list[tuple[int, int]] = []
        self._rounds = 0
        self.stretches: list[Stretch] = []

    def gzip(self, parts: tuple[Part, ...]) -> bytes:
        """All parts as one gzip file."""
        stream = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed, checksum, size = [GZIP_HEADER], 0, 0
        before, self.stretches = self.stretches, []
        known = {id(stretch.parts[0]): stretch for stretch in before}
        for run in self._divided((*parts, self._end)):
            stretch = known.get(id(run[0]))
            if stretch is None or stretch.parts != run:
                stretch = self._pack(run, stream)
            checksum = zlib.crc32_combine(checksum, stretch.checksum, stretch.size)
            self.stretches.append(stretch)
            packed.append(stretch.deflated)
            size += stretch.size
        return b"".join([*packed, stream.flush(), struct.pack("<II", checksum, size & 0xFFFFFFFF)])

    def _pack(self, parts: tuple[Part, ...], stream: zlib.Compress) -> Stretch:
        text = b"".join([piece for part in parts for piece in (self._above(part), part.lines)])
        # In one go, since ISA-L begins a block with every call, and flushed, so that nothing that follows
        # refers to anything before it.
        deflated = stream.compress(text) + stream.flush(zlib.Z_FULL_FLUSH)
        return Stretch(parts, len(text), zlib.crc32(text), deflated)

    def _divided(self, parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
        """Runs of parts that stay, and of parts that do not."""
        alike = len(parts) == len(self._before)
        changed = {*compress(range(len(parts)), map(is_not, parts, self._before))} if alike else set()
        self._before = parts
        self._rounds = self._rounds + 1 if alike else 0
        if self._rounds % AFRESH == 0:
            self._restless = set()
        if self._rounds % AFRESH == 0 or not changed <= self._restless:
            self._restless |= changed
            self._bounds = self._bounds_of(parts)
        return [parts[begin:end] for begin, end in self._bounds]

    def _bounds_of(self, parts: tuple[Part, ...]) -> list[tuple[int, int]]:
        sizes = [len(self._above(part)) + len(part.lines) for part in parts]
        small = [run for run in _runs(len(parts), self._restless) if sum(sizes[slice(*run)]) < SMALL]
        return _runs(len(parts), self._restless.union(*[range(*run) for run in small]))


def _runs(size: int, apart: Container[int]) -> list[tuple[int, int]]:
    """Where each begins and ends."""
    runs = [[*run] for _, run in groupby(range(size), apart.__contains__)]
    return [(run[0], run[-1] + 1) for run in runs]


@dataclass(frozen=True)
class Packers:
    """One for each format."""

    plain: Packer = field(default_factory=lambda: Packer("plain"))
    openmetrics: Packer = field(default_factory=lambda: Packer("openmetrics", EOF))
