"""Renderings joined and packed, unpacked again by others."""

from __future__ import annotations

import gzip
import subprocess
import zlib

from hypothesis import given
from hypothesis import strategies as st

from gputally.outputs.rendering import LARGE, Part, Text, together

small = st.binary(max_size=200)
large = st.builds(
    lambda line, more: line * (LARGE // len(line) + more), st.binary(min_size=1), st.integers(1, 9)
)
parts = st.lists(st.builds(Part, small, small, small | large), max_size=6).map(tuple)


@given(parts)
def test_packed_and_plain_are_the_same(parts: tuple[Part, ...]) -> None:
    text = Text(parts, 0, 0)
    assert gzip.decompress(text.plain_gzip) == text.plain
    assert gzip.decompress(text.openmetrics_gzip) == text.openmetrics
    assert text.openmetrics.endswith(b"# EOF\n")


@given(parts, parts)
def test_large_parts_that_stay_are_packed_once(first: tuple[Part, ...], more: tuple[Part, ...]) -> None:
    before = Text(first, 0, 0)
    assert gzip.decompress(before.openmetrics_gzip) == before.openmetrics
    assert gzip.decompress(before.plain_gzip) == before.plain
    large = [part for part in first if len(part.lines) >= LARGE]
    kept = [dict(part.packed) for part in large]
    assert all(
        packed.keys() == {part.plain, part.openmetrics} for part, packed in zip(large, kept, strict=True)
    )
    after = Text((*more, *first), 0, 0)
    assert gzip.decompress(after.openmetrics_gzip) == after.openmetrics
    assert gzip.decompress(after.plain_gzip) == after.plain
    for part, packed in zip(large, kept, strict=True):
        assert all(part.packed[header] is stretch for header, stretch in packed.items())


def test_small_parts_are_packed_together_and_again_when_one_of_them_changed() -> None:
    one, two, large = Part(b"1", b"1", b"a"), Part(b"2", b"2", b"b"), Part(b"3", b"3", b"c" * LARGE)
    for _ in range(2):
        assert gzip.decompress(Text((one, two, large), 0, 0).plain_gzip) == b"1a2b3" + large.lines
        assert (list(one.packed), list(two.packed), list(large.packed)) == ([b"1"], [], [b"3"])
    kept = one.packed[b"1"]
    assert gzip.decompress(Text((one, two), 0, 0).plain_gzip) == b"1a2b"
    assert one.packed[b"1"] is kept
    assert gzip.decompress(Text((one, Part(b"2", b"2", b"d")), 0, 0).plain_gzip) == b"1a2d"
    assert one.packed[b"1"] is not kept
    assert gzip.decompress(Text((two, one), 0, 0).openmetrics_gzip) == b"2b1a# EOF\n"


def test_packed_text_is_one_gzip_member_that_any_program_reads() -> None:
    text = Text((Part(b"# a\n", b"# b\n", b"x 1\n" * LARGE), Part(b"# c\n", b"# d\n", b"y 1\n")), 0, 0)
    unpacker = zlib.decompressobj(31)
    assert unpacker.decompress(text.plain_gzip) == text.plain
    assert unpacker.eof
    assert not unpacker.unused_data
    told = subprocess.run(["gzip", "-dc"], input=text.openmetrics_gzip, capture_output=True, check=True)
    assert told.stdout == text.openmetrics
    assert not told.stderr


def test_several_texts_are_one() -> None:
    first, second = Text((Part(b"1", b"2", b"3"),), 4, 5), Text((Part(b"6", b"7", b"8"),), 9, 10)
    both = together([first, second])
    assert (both.plain, both.openmetrics) == (b"1368", b"2378# EOF\n")
    assert (both.samples, both.collisions) == (13, 15)
