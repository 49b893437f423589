"""Protobuf on the wire: read and written by tables that name only the fields we need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gputally.model import Unreadable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
KINDS = (VARINT, FIXED64, BYTES, FIXED32)
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True)
class Field:
    """One field of a message: text unless it is a number or a message of its own."""

    name: str
    of: Mapping[int, Field] | None = None
    many: bool = False
    is_number: bool = False

    def empty(self) -> Any:
        """What the field is when it was not sent."""
        if self.many:
            return []
        return 0 if self.is_number else "" if self.of is None else decode(b"", self.of)


Message = Mapping[int, Field]


def text(name: str) -> Field:
    """A string."""
    return Field(name)


def texts(name: str) -> Field:
    """Strings."""
    return Field(name, many=True)


def number(name: str) -> Field:
    """An integer, a boolean or an enumeration."""
    return Field(name, is_number=True)


def one(name: str, of: Message) -> Field:
    """A message inside."""
    return Field(name, of)


def many(name: str, of: Message) -> Field:
    """Messages inside."""
    return Field(name, of, many=True)


PAIR: Message = {1: text("key"), 2: text("value")}


def pairs(name: str) -> Field:
    """A map of strings; on the wire a list of pairs."""
    return Field(name, PAIR, many=True)


def decode(data: bytes, message: Message) -> dict[str, Any]:
    """The fields of a message by name; fields that the table does not name are skipped."""
    return _decode(data, 0, len(data), message)


def pieces(data: bytes, place: int) -> Iterator[bytes]:
    """The messages that one field holds, one after the other, as they were sent."""
    for at, kind, _, begin, end in _fields(data, 0, len(data)):
        if at == place:
            _check(at, kind, BYTES)
            yield data[begin:end]


def encode(values: Mapping[str, Any], message: Message) -> bytes:
    """The message with these fields."""
    parts = []
    for place, field in sorted(message.items()):
        value = values.get(field.name)
        if value:
            items = value if field.many else (value,)
            parts += [_encoded(place, field, item) for item in items]
    return b"".join(parts)


def as_mapping(entries: list[dict[str, str]]) -> dict[str, str]:
    """Pairs of a map as a dict."""
    return {entry["key"]: entry["value"] for entry in entries}


def as_pairs(mapping: Mapping[str, str]) -> list[dict[str, str]]:
    """A dict as pairs of a map."""
    return [{"key": key, "value": value} for key, value in mapping.items()]


def _decode(data: bytes, begin: int, end: int, message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, kind, value, first, last in _fields(data, begin, end):
        field = message.get(place)
        if field is None:
            continue
        _check(place, kind, VARINT if field.is_number else BYTES)
        item = value if field.is_number else _inside(data, first, last, field)
        if field.many:
            found.setdefault(field.name, []).append(item)
        else:
            found[field.name] = item
    for field in message.values():
        if field.name not in found:
            found[field.name] = field.empty()
    return found


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each field its place, its wire type, its number or size, and where it begins and ends."""
    while at < end:
        key, at = _varint(data, at, end)
        kind, value, begin = key & 7, 0, at
        if kind in (VARINT, BYTES):
            value, begin = _varint(data, at, end)
        at = begin + (value if kind == BYTES else FIXED_SIZES.get(kind, 0))
        if at > end or kind not in KINDS:
            raise Unreadable(
                "not protobuf: cut short" if kind in KINDS else f"not protobuf: wire type {kind}"
            )
        yield key >> 3, kind, value, begin, at


def _check(place: int, kind: int, wanted: int) -> None:
    if kind != wanted:
        raise Unreadable(f"not protobuf: field {place} is of wire type {kind}")


def _inside(data: bytes, begin: int, end: int, field: Field) -> Any:
    if field.of is not None:
        return _decode(data, begin, end, field.of)
    return data[begin:end].decode("utf-8", "replace")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends; most are of one byte."""
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise Unreadable("not protobuf: a number without end")


def _encoded(place: int, field: Field, value: Any) -> bytes:
    if field.is_number:
        return _number(place << 3) + _number(int(value))
    body = str(value).encode() if field.of is None else encode(value, field.of)
    return _number(place << 3 | BYTES) + _number(len(body)) + body


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
