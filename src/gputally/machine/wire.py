"""Protobuf on the wire: read and written by tables that name only the fields we need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gputally.model import Unreadable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


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


def decode(data: bytes | memoryview, message: Message) -> dict[str, Any]:
    """The fields of a message by name; fields that the table does not name are skipped."""
    found = {field.name: field.empty() for field in message.values()}
    for place, kind, value in _fields(memoryview(data)):
        field = message.get(place)
        if field is None:
            continue
        if kind != (VARINT if field.is_number else BYTES):
            raise Unreadable(f"not protobuf: field {place} is of wire type {kind}")
        decoded = value if isinstance(value, int) else _inside(value, field)
        if field.many:
            found[field.name].append(decoded)
        else:
            found[field.name] = decoded
    return found


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


def _inside(value: memoryview, field: Field) -> Any:
    return bytes(value).decode("utf-8", "replace") if field.of is None else decode(value, field.of)


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        place, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield place, kind, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Unreadable(f"not protobuf: wire type {kind}")
        if at + size > len(data):
            raise Unreadable("not protobuf: cut short")
        yield place, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
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
