"""gRPC as it goes over the wire: servers that keep to it, and servers that do not."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import hpack
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
)

from gputally.machine.grpc import MOST_BYTES, call, messages
from gputally.machine.messages import LIST_V1, WATCH_PODS
from gputally.model import Unreadable
from tests.fakes.background import Background
from tests.fakes.rpc import DeafServer, RpcServer

UNAVAILABLE = 14
SETTINGS = SettingsFrame(0)


@pytest.fixture
def background() -> Iterator[Background]:
    with Background() as running:
        yield running


def ask(socket: Path) -> bytes:
    return asyncio.run(call(str(socket), LIST_V1, b"which?"))


def headers(*about: tuple[str, str], end: bool = False) -> HeadersFrame:
    return HeadersFrame(1, hpack.Encoder().encode(about), flags=["END_HEADERS", *["END_STREAM"] * end])


def data(body: bytes, *, end: bool = False) -> DataFrame:
    return DataFrame(1, body, flags=["END_STREAM"] * end)


def message(body: bytes, packed: int = 0) -> bytes:
    return bytes([packed]) + len(body).to_bytes(4, "big") + body


def wire(*frames: Frame) -> bytes:
    return b"".join(frame.serialize() for frame in (SETTINGS, *frames))


OK = headers((":status", "200"), ("content-type", "application/grpc"))
WELL = headers(("grpc-status", "0"), end=True)


def test_an_answer_is_put_together_from_any_frames(background: Background, tmp_path: Path) -> None:
    body = message(b"these")
    frames = [data(body[place : place + 1]) for place in range(len(body))]
    DeafServer(background, tmp_path / "k.sock", wire(OK, *frames, PingFrame(0), WELL))
    assert ask(tmp_path / "k.sock") == b"these"


def test_the_largest_answer_comes_whole_and_in_time(background: Background, tmp_path: Path) -> None:
    """Longer than any window: the server goes on only when it is told that it may."""
    largest = random.Random(1).randbytes(MOST_BYTES)
    server = RpcServer(background, tmp_path / "k.sock", {LIST_V1: largest})
    assert ask(server.path) == largest
    server.stop()


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ((OK, data(message(b"x", packed=1)), WELL), "packed"),
        ((OK, data(message(b"x") + message(b"y")), WELL), "not gRPC: more than one message"),
        ((OK, data(message(b"xyz")[:-1]), WELL), "not gRPC: it ends within a message"),
        ((OK, data(b"\0\0"), WELL), "not gRPC: it ends within a message"),
        ((OK, data(message(b"x"), end=True)), "not gRPC: it ends without a status"),
        ((headers((":status", "404"), end=True),), "not gRPC: HTTP status 404"),
        ((OK, headers(("grpc-status", "well"), end=True)), "not gRPC: invalid literal"),
        ((OK, headers(("grpc-status", "99"), end=True)), "List on .*: status 99: no reason given"),
        ((OK, data(message(b"x")), headers(("grpc-status", "13"), end=True)), "INTERNAL: no reason given"),
        (
            (
                headers(
                    (":status", "200"), ("grpc-status", "7"), ("grpc-message", "not you: 100%25"), end=True
                ),
            ),
            "List on .*: PERMISSION_DENIED: not you: 100%$",
        ),
    ],
)
def test_what_is_no_answer_is_told_in_words(
    background: Background, tmp_path: Path, frames: tuple[Frame, ...], said: str
) -> None:
    server = DeafServer(background, tmp_path / "k.sock", wire(*frames))
    with pytest.raises(Unreadable, match=said):
        ask(tmp_path / "k.sock")
    assert server.visits == 1


@pytest.mark.parametrize(
    "frames",
    [
        (),
        (OK, data(message(b"x"))),
        (OK, RstStreamFrame(1, 2)),
        (GoAwayFrame(0, last_stream_id=2**31 - 1), PingFrame(0, b"12345678")),
        (OK, data(message(b"x")), GoAwayFrame(0, last_stream_id=2**31 - 1)),
    ],
    ids=["closes", "closes before the end", "resets", "is stopped gracefully", "goes away"],
)
def test_a_peer_that_breaks_off_is_asked_once_more(
    background: Background, tmp_path: Path, frames: tuple[Frame, ...]
) -> None:
    server = DeafServer(background, tmp_path / "k.sock", wire(*frames))
    with pytest.raises(Unreadable, match=r"lost|broke off") as caught:
        ask(tmp_path / "k.sock")
    assert (server.visits, caught.value.code) == (2, UNAVAILABLE)


def test_bytes_that_are_nothing_are_unreadable(background: Background, tmp_path: Path) -> None:
    dice = random.Random(7)
    whole = wire(OK, data(message(b"these")), WELL)
    server = DeafServer(background, tmp_path / "k.sock", b"")
    readable = 0
    for _ in range(60):
        garbage = bytearray(whole)
        for _ in range(dice.randint(1, 6)):
            garbage[dice.randrange(len(garbage))] = dice.randrange(256)
        server.says = bytes(garbage)
        try:
            ask(tmp_path / "k.sock")
        except Unreadable:
            continue
        readable += 1
    assert 0 < readable < 60, "some bytes do not matter, and some do"


def test_a_stream_ends_as_the_server_says(background: Background, tmp_path: Path) -> None:
    server = RpcServer(background, tmp_path / "k.sock", {})
    for each in (b"one", b"", b"three" * 100_000, None):
        server.tell(WATCH_PODS, each)

    async def follow() -> list[bytes]:
        async with aclosing(messages(str(server.path), WATCH_PODS, b"")) as stream:
            return [each async for each in stream]

    assert asyncio.run(follow()) == [b"one", b"", b"three" * 100_000]
    server.stop()


def test_words_of_a_refusal_are_read(background: Background, tmp_path: Path) -> None:
    refusal = GRPCError(Status.FAILED_PRECONDITION, "déjà 100 %")
    server = RpcServer(background, tmp_path / "k.sock", {LIST_V1: refusal})
    with pytest.raises(Unreadable, match="FAILED_PRECONDITION: déjà 100 %"):
        ask(server.path)
    server.stop()


def test_an_error_holds_no_half_of_an_answer(background: Background, tmp_path: Path) -> None:
    half = message(bytes(1_000_000))[:900_000]
    frames = [data(half[place : place + 10_000]) for place in range(0, len(half), 10_000)]
    DeafServer(background, tmp_path / "k.sock", wire(OK, *frames))
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="lost") as caught:
            ask(tmp_path / "k.sock")
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.__traceback__ is not None
    assert most > 900_000 > 3 * held
