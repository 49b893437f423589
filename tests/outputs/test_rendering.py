"""Renderings joined and packed, unpacked again by others."""

from __future__ import annotations

import gzip
import subprocess
import zlib

from hypothesis import given
from hypothesis import strategies as st

from gputally.outputs.rendering import AFRESH, SMALL, Packers, Part, Text, together

small = st.binary(max_size=200)
large = st.builds(
    lambda line, more: line * (8192 // len(line) + more), st.binary(min_size=1), st.integers(1, 9)
)
parts = st.lists(st.builds(Part, small, small, small | large), max_size=6).map(tuple)


@given(parts)
def test_packed_and_plain_are_the_same(parts: tuple[Part, ...]) -> None:
    text = Text(parts, 0, 0)
    assert gzip.decompress(text.plain_gzip) == text.plain
    assert gzip.decompress(text.openmetrics_gzip) == text.openmetrics
    assert text.openmetrics.endswith(b"# EOF\n")


@given(parts, st.data())
def test_texts_that_share_parts_and_packers_are_packed_right(
    first: tuple[Part, ...], data: st.DataObject
) -> None:
    packers = Packers()
    for _ in range(3):
        text = Text(first, 0, 0, packers)
        assert gzip.decompress(text.openmetrics_gzip) == text.openmetrics
        assert gzip.decompress(text.plain_gzip) == text.plain
        others = data.draw(parts)
        first = tuple(data.draw(st.sampled_from((*first, *others))) for _ in range(len(first) or len(others)))


def test_parts_that_stay_are_packed_once_and_apart_from_those_that_change() -> None:
    packers, parts = Packers(), [Part(b"%d" % n, b"", b"x" * SMALL) for n in range(9)]
    for number in range(4):
        parts[3:5] = [Part(b"3", b"", b"%d" % number), Part(b"4", b"", b"%d" % number)]
        before, text = packers.plain.stretches, Text(tuple(parts), 0, 0, packers)
        assert gzip.decompress(text.plain_gzip) == text.plain
    first, changed, last = packers.plain.stretches
    assert [len(stretch.parts) for stretch in (first, changed, last)] == [3, 2, 5]
    assert (first, last) == (before[0], before[2])
    assert first.deflated is before[0].deflated


def test_a_little_that_stays_between_parts_that_change_is_packed_with_them() -> None:
    packers, parts = Packers(), [Part(b"%d" % n, b"", b"x" * SMALL) for n in range(9)]
    parts[4] = Part(b"4", b"", b"x")
    for number in range(4):
        parts[3::2] = [Part(b"%d" % n, b"", b"%d" % number) for n in (3, 5, 7)]
        text = Text(tuple(parts), 0, 0, packers)
        assert gzip.decompress(text.plain_gzip) == text.plain
    assert [len(stretch.parts) for stretch in packers.plain.stretches] == [3, 3, 1, 1, 2]


def test_what_changed_once_is_packed_with_its_neighbours_again_after_a_while() -> None:
    packers, parts = Packers(), [Part(b"%d" % n, b"", b"x" * SMALL) for n in range(9)]
    for number in range(2 * AFRESH):
        if number == 5:
            parts[3] = Part(b"3", b"", b"another")
        text = Text(tuple(parts), 0, 0, packers)
        assert gzip.decompress(text.plain_gzip) == text.plain
        assert len(packers.plain.stretches) == (3 if 5 <= number < AFRESH else 1)


def test_many_small_parts_are_packed_as_well_as_in_one_piece() -> None:
    parts = [
        Part(
            f"# HELP a_{n} Of {n}.\n".encode(),
            b"",
            b"".join(b'a_%d{gpu="%d"} %d\n' % (n, g, n * g) for g in range(8)),
        )
        for n in range(99)
    ]
    text = Text(tuple(parts), 0, 0)
    assert len(text.plain_gzip) < 1.3 * len(zlib.compress(text.plain, 1))


def test_packed_text_is_one_gzip_member_that_any_program_reads() -> None:
    text = Text((Part(b"# a\n", b"# b\n", b"x 1\n" * 9000), Part(b"# c\n", b"# d\n", b"y 1\n")), 0, 0)
    unpacker = zlib.decompressobj(31)
    assert unpacker.decompress(text.plain_gzip) == text.plain
    assert unpacker.eof
    assert not unpacker.unused_data
    told = subprocess.run(["gzip", "-dc"], input=text.openmetrics_gzip, capture_output=True, check=True)
    assert told.stdout == text.openmetrics
    assert not told.stderr


def test_several_texts_are_one() -> None:
    first, second = Text((Part(b"1", b"2", b"3"),), 4, 5), Text((Part(b"6", b"7", b"8"),), 9, 10)
    both = together([first, second], Packers())
    assert (both.plain, both.openmetrics) == (b"1368", b"2378# EOF\n")
    assert (both.samples, both.collisions) == (13, 15)
