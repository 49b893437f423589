"""What passes between us and the process that holds the NVML library: JSON, each letter behind its length."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

LENGTH = struct.Struct("!I")
MOST_BYTES = 8 * 2**20
"""Of a letter; the longest list of processes that is ever asked for takes a tenth of it."""


def send(channel: socket.socket, content: Any) -> None:
    """Write a letter; ValueError or TypeError before anything is written where it cannot be one."""
    text = json.dumps(content, separators=(",", ":")).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"a letter of {len(text)} bytes; at most {MOST_BYTES} may be sent")
    channel.sendall(LENGTH.pack(len(text)) + text)


def receive(channel: socket.socket) -> Any:
    """Wait for a letter; EOFError when nobody is left to write one, ValueError when it is none."""
    (length,) = LENGTH.unpack(_exactly(channel, LENGTH.size))
    if length > MOST_BYTES:
        raise ValueError(f"a letter of {length} bytes; at most {MOST_BYTES} are read")
    return json.loads(_exactly(channel, length))


def _exactly(channel: socket.socket, count: int) -> bytes:
    piece = channel.recv(count)
    if len(piece) == count:
        return piece
    pieces, missing = [piece], count - len(piece)
    while piece and missing:
        piece = channel.recv(missing)
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise EOFError
    return b"".join(pieces)
