"""The text of another exporter, read strictly and within bounds: the whole page, or a reason; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from gputally.foreign import ForeignFamily, ForeignSample
from gputally.model import Losses, Unreadable

MOST_SAMPLES = 50_000
MOST_LABELS = 64
LONGEST_LINE = 65_536

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_START = re.compile(_NAME)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ABOUT = re.compile(rf"#[ \t]+(HELP|TYPE)[ \t]+({_NAME})(?:[ \t]+(.*))?")
_NUMBER = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[Ii]nf(?:inity)?)", re.ASCII)
_TIMESTAMP = re.compile(r"-?[0-9]{1,18}")
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")


@dataclass
class _Family:
    type: str | None = None
    help: str | None = None
    samples: list[ForeignSample] = field(default_factory=list)


def read_text(page: bytes, oldest: float) -> tuple[tuple[ForeignFamily, ...], Losses]:
    """Families of a page, without samples that are no number or older than `oldest` (Unix time)."""
    try:
        text = page.decode()
    except UnicodeDecodeError:
        raise Unreadable("upstream: not text in UTF-8") from None
    if text and not text.endswith("\n"):
        raise Unreadable("upstream: cut short, its last line does not end")
    families: dict[str, _Family] = {}
    dropped: Counter[str] = Counter()
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            raise Unreadable(f"upstream: line {number} is longer than {LONGEST_LINE}")
        bare = line.strip(" \t\r")
        if bare.startswith("#"):
            _note(families, bare, number)
        elif bare:
            count += 1
            if count > MOST_SAMPLES:
                raise Unreadable(f"upstream: more than {MOST_SAMPLES} samples")
            _add(families, bare, number, oldest, dropped)
    told = [
        ForeignFamily(name, f.type, f.help, tuple(f.samples)) for name, f in families.items() if f.samples
    ]
    return tuple(told), Losses(dropped)


def _note(families: dict[str, _Family], line: str, number: int) -> None:
    match = _ABOUT.fullmatch(line)
    if match is None:
        return  # a comment like any other
    family = families.setdefault(match[2], _Family())
    if match[1] == "HELP":
        family.help = match[3] or ""
    elif match[3] in _TYPES:
        family.type = match[3]
    else:
        raise _malformed(line, number)


def _add(families: dict[str, _Family], line: str, number: int, oldest: float, dropped: Counter[str]) -> None:
    parts = _parts(line)
    labels = None if parts is None else _labels(parts[1])
    if parts is None or labels is None:
        raise _malformed(line, number)
    name, _, value, timestamp = parts
    if timestamp is not None and timestamp / 1000 < oldest:
        dropped["upstream_old"] += 1
    elif _NAN.fullmatch(value):
        dropped["upstream_nan"] += 1
    elif _NUMBER.fullmatch(value):
        family = families.setdefault(_family_of(families, name), _Family())
        family.samples.append(ForeignSample(name, labels, value))
    else:
        raise _malformed(line, number)


def _parts(line: str) -> tuple[str, str, str, int | None] | None:
    """Name, labels, value and timestamp; by hand, since one expression for it all takes too long to fail."""
    start = _START.match(line)
    if start is None:
        return None
    rest, labels = line[start.end() :], ""
    if rest.lstrip(" \t").startswith("{"):
        inside, brace, rest = rest.lstrip(" \t")[1:].rpartition("}")
        labels = inside
        if not brace:
            return None
    elif not rest.startswith((" ", "\t")):
        return None
    words = rest.replace("\t", " ").strip(" ").split(" ", 1)
    timestamp = words[1].strip(" ") if len(words) == 2 else None
    if timestamp is not None and not _TIMESTAMP.fullmatch(timestamp):
        return None
    return start[0], labels, words[0], None if timestamp is None else int(timestamp)


def _family_of(families: Mapping[str, _Family], name: str) -> str:
    for kind, suffixes in _SUFFIXES.items():
        for suffix in suffixes:
            family = families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if family is not None and family.type == kind:
                return name.removesuffix(suffix)
    return name


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    """Names and values; None where they make no sense."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip(" \t")):
        match = _LABEL.match(text, at)
        if match is None or match[1] in found or len(found) == MOST_LABELS:
            return None
        found[match[1]] = re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), match[2])
        at = match.end()
    return tuple(found.items())


def _malformed(line: str, number: int) -> Unreadable:
    return Unreadable(f"upstream: line {number} is not Prometheus text: {line[:60]!r}")
