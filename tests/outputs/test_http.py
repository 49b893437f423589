"""The HTTP transport on real sockets, with friendly and with hostile clients."""

import asyncio
import concurrent.futures
import contextlib
import gc
import http.client
import random
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from gputally.outputs.http import (
    AT_ONCE,
    Answer,
    BindError,
    HttpServer,
    Limits,
    Request,
    Respond,
    parse_address,
)

T = TypeVar("T")
PATIENCE = 60.0  # long enough for the noisiest machine; nothing waits that long when all is well
PATIENT = Limits(idle_seconds=600, kept_seconds=600, body_seconds=600, write_seconds=600)
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
GET_AND_CLOSE = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HALF = b"GET /metrics HTTP/1.1\r\nHos"


class Running:
    """A real server on a loop in its own thread."""

    def __init__(self, respond: Respond, limits: Limits, address: str, tls: ssl.SSLContext | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = HttpServer(respond, limits, tls)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        try:
            self.names = self.do(lambda: self.server.listen(address))
        except BaseException:
            self.end()
            raise
        self.port = int(self.names[0].rpartition(":")[2])

    def do(self, what: Callable[[], T]) -> T:
        """Run something in the server's loop."""

        async def run() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(PATIENCE)

    def stop(self, grace: float) -> concurrent.futures.Future[None]:
        """Begin to stop the server."""
        return asyncio.run_coroutine_threadsafe(self.server.stop(grace), self.loop)

    def end(self) -> None:
        """Stop the server and its loop."""
        self.stop(0).result(PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        self.loop.close()

    def connections(self) -> int:
        """How many connections the server holds."""
        return self.do(lambda: len(self.server.connections))


class Serve:
    """Starts servers and makes connections, and ends them all after the test."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack

    def __call__(
        self,
        respond: Respond,
        limits: Limits = PATIENT,
        address: str = "127.0.0.1:0",
        tls: ssl.SSLContext | None = None,
    ) -> Running:
        running = Running(respond, limits, address, tls)
        self.stack.callback(running.end)
        return running

    def client(self, running: Running, sent: bytes = b"", receive_buffer: int = 0) -> socket.socket:
        """A connection on which something has been sent."""
        client = self.stack.enter_context(socket.socket())
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", running.port))
        client.sendall(sent)
        return client


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:
        yield Serve(stack)


def hello(request: Request) -> Answer:
    """The simplest responder."""
    return Answer(200, f"{request.method} {request.path}?{request.query}\n".encode())


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must come true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def rest(client: socket.socket) -> bytes:
    """All that still comes until the server closes, by FIN or by RST."""
    got = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            got += piece
    return bytes(got)


def cut(client: socket.socket, patience: float = PATIENCE) -> bool:
    """Whether the connection is reset, or closed with nothing unread, without reading from it."""
    poll = select.poll()
    poll.register(client, select.POLLRDHUP)
    return bool(poll.poll(patience * 1000))


def scrape(running: Running, path: str = "/metrics") -> tuple[int, bytes]:
    """One request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


# What a request gets


def test_the_responder_sees_the_request(serve: Serve) -> None:
    seen: list[Request] = []

    def respond(request: Request) -> Answer:
        seen.append(request)
        return Answer(404, b"no\n", "text/html", (("Vary", "Accept"), ("X-A", "1"), ("X-A", "2")))

    running = serve(respond)
    asked = GET_AND_CLOSE.replace(b"/metrics", b"/a/b%20c?d=e&f").replace(
        b"Host", b"aCCept-encODing: gzip\r\nHost"
    )
    client = serve.client(running, asked)
    head, _, body = rest(client).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 404 Not Found"
    assert sorted(lines[1:]) == [
        "Connection: close",
        "Content-Length: 3",
        "Content-Type: text/html",
        "Vary: Accept",
        "X-A: 1",
        "X-A: 2",
        "X-Content-Type-Options: nosniff",
    ]
    assert body == b"no\n"
    (request,) = seen
    assert (request.method, request.path, request.query) == ("GET", "/a/b%20c", "d=e&f")
    assert request.headers["Accept-Encoding"] == request.headers.get("accept-encoding") == "gzip"


@pytest.mark.parametrize(
    "body",
    [b"", "10 µJ ☢\n".encode(), bytes(AT_ONCE), bytes(AT_ONCE + 1), bytes(range(256)) * 4096],
    ids=["empty", "short", "at once", "apart", "long"],
)
def test_content_length_counts_bytes_and_head_equals_get(serve: Serve, body: bytes) -> None:
    running = serve(lambda _: Answer(200, body, headers=(("Content-Encoding", "gzip"),)))
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        got = connection.getresponse()
        assert got.read() == body
        assert got.getheader("Content-Length") == str(len(body))
        connection.request("HEAD", "/")
        head = connection.getresponse()
        assert head.read() == b""
        assert head.getheaders() == got.getheaders()
        connection.request("GET", "/")  # nothing was left over on the connection
        assert connection.getresponse().read() == body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "X"])
def test_other_methods_are_405(serve: Serve, method: str) -> None:
    running = serve(hello)
    got = rest(serve.client(running, GET_AND_CLOSE.replace(b"GET", method.encode())))
    assert got.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in got


def test_a_connection_is_kept(serve: Serve) -> None:
    running = serve(hello)
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        connection.connect()
        ours = connection.sock
        for number in range(5):
            connection.request("GET", f"/{number}")
            assert connection.getresponse().read() == f"GET /{number}?\n".encode()
        assert connection.sock is ours
        assert running.connections() == 1
    until(lambda: running.connections() == 0)


def test_ten_requests_at_once(serve: Serve) -> None:
    running = serve(hello)
    asked = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(9))
    got = rest(serve.client(running, asked + GET_AND_CLOSE))
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 10
    places = [got.index(b"GET /%d?" % number) for number in range(9)]
    assert places == sorted(places)


def test_http_1_0(serve: Serve) -> None:
    running = serve(hello)
    got = rest(serve.client(running, b"GET /old HTTP/1.0\r\n\r\n"))
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert got.endswith(b"\r\n\r\nGET /old?\n")


def test_a_failing_responder_is_500_and_logged_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def respond(request: Request) -> Answer:
        if request.path == "/metrics":
            raise RuntimeError(f"broken {time.monotonic_ns()}")
        return hello(request) if request.path == "/fine" else Answer(1 // 0)

    running = serve(respond)
    got = rest(serve.client(running, GET * 4 + GET_AND_CLOSE))
    assert got.count(b"HTTP/1.1 500 Internal Server Error\r\n") == 5
    assert b"broken" not in got
    assert scrape(running, "/other")[0] == 500
    assert scrape(running, "/fine") == (200, b"GET /fine?\n")
    assert len(caplog.records) == 2
    assert "broken" in caplog.text


# Requests that are wrong


BAD = {
    "line": b"GET\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "smuggling": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "negative": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "huge": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
    "2 KiB": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2048\r\n\r\n" + b"a" * 2048,
    "chunks": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + b"a" * 2048,
    "tls": bytes.fromhex("16030100310100002d0303") + b"\r\n\r\n",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_bad_requests_are_refused_at_once(serve: Serve, bad: bytes, caplog: pytest.LogCaptureFixture) -> None:
    running = serve(hello)
    assert rest(serve.client(running, bad)) == b"HTTP/1.1 400 Bad Request\r\n\r\n"
    assert scrape(running)[0] == 200
    assert not caplog.records


def test_a_large_header_is_closed(serve: Serve) -> None:
    running = serve(hello)
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: %s\r\n\r\n"
    assert b"200 OK" not in rest(serve.client(running, request % (b"a" * 8192)))
    assert b"200 OK" in rest(serve.client(running, request % (b"a" * 8000)))
    endless = serve.client(running, HALF)
    with pytest.raises(ConnectionError):
        endless.sendall(bytes(64 << 20))
    assert scrape(running)[0] == 200


def test_garbage_is_closed_quietly(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    running = serve(hello)
    dice = random.Random(1)
    for _ in range(200):
        garbage = bytearray(dice.randbytes(40) + GET if dice.random() < 0.5 else GET)
        for _ in range(3):
            garbage[dice.randrange(len(garbage))] = dice.randrange(256)
        client = serve.client(running, bytes(garbage) + b"\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        rest(client)
        client.close()
    assert scrape(running)[0] == 200
    until(lambda: running.connections() == 0)
    assert not caplog.records


# Clients that want to stop others from being served


def test_slow_headers_are_closed_while_scrapes_are_answered(serve: Serve) -> None:
    running = serve(hello, Limits(idle_seconds=0.3, body_seconds=600, write_seconds=600))
    waiting = [serve.client(running, HALF) for _ in range(20)]

    def all_are_cut() -> bool:
        for client in waiting:
            with contextlib.suppress(ConnectionError):
                client.send(b"a")
        assert scrape(running)[0] == 200
        return all(cut(client, 0) for client in waiting)

    until(all_are_cut)
    until(lambda: running.connections() == 0)


def test_silent_and_idle_connections_are_closed(serve: Serve) -> None:
    limits = Limits(idle_seconds=0.3, kept_seconds=0.3, body_seconds=600, write_seconds=600)
    running = serve(hello, limits)
    silent, idle = serve.client(running), serve.client(running, GET)
    assert rest(silent) == b""
    assert rest(idle).endswith(b"GET /metrics?\n")


def test_who_has_asked_is_kept_for_the_next_scrape(serve: Serve) -> None:
    running = serve(hello, Limits(idle_seconds=0.3, kept_seconds=600, body_seconds=600, write_seconds=600))
    asked, silent = serve.client(running, GET), serve.client(running)
    assert asked.recv(65_536).endswith(b"GET /metrics?\n")
    assert rest(silent) == b""
    asked.send(GET)
    assert asked.recv(65_536).endswith(b"GET /metrics?\n")


def test_a_body_that_does_not_come_is_closed(serve: Serve) -> None:
    running = serve(hello, Limits(idle_seconds=600, body_seconds=0.3, write_seconds=600))
    assert rest(serve.client(running, GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 9\r\n\r\na"))) == b""


def test_a_body_has_a_deadline_of_its_own(serve: Serve) -> None:
    running = serve(hello, Limits(idle_seconds=1, body_seconds=600, write_seconds=600))
    asked = GET_AND_CLOSE.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\na")
    client = serve.client(running, asked)
    assert not cut(client, 1.5)
    client.sendall(b"b")
    assert rest(client).endswith(b"GET /metrics?\n")


def test_half_open_connections_give_way_to_scrapes(serve: Serve) -> None:
    most = 0

    def respond(request: Request) -> Answer:
        nonlocal most
        most = max(most, len(running.server.connections))
        return hello(request)

    limits = Limits(connections=16, idle_seconds=600, body_seconds=600, write_seconds=600)
    running = serve(respond, limits)
    clients = []
    for number in range(200):
        clients.append(serve.client(running, HALF if number % 2 else b""))
        if number % 20 == 19:
            assert scrape(running)[0] == 200
    until(lambda: sum(not cut(client, 0) for client in clients) <= 16)
    assert 1 <= running.connections() <= 16
    assert most <= 16
    assert not cut(clients[-1], 0), "the newest stays, the oldest goes"
    assert cut(clients[0], 0)


def test_a_request_not_yet_read_is_not_idle(serve: Serve) -> None:
    entered, release = threading.Event(), threading.Event()

    def respond(request: Request) -> Answer:
        if request.path == "/slow":
            entered.set()
            release.wait(PATIENCE)
        return hello(request)

    running = serve(respond, Limits(connections=16, idle_seconds=600, body_seconds=600, write_seconds=600))
    serve.client(running, GET.replace(b"/metrics", b"/slow"))
    assert entered.wait(PATIENCE)
    asked = serve.client(running, GET_AND_CLOSE)
    for _ in range(60):
        serve.client(running)
    release.set()
    assert rest(asked).endswith(b"GET /metrics?\n")


BIG = bytes(48 << 20)  # more than the kernel takes from us on behalf of a client


def big(request: Request) -> Answer:
    """A large body on /metrics, which is the same object each time."""
    return Answer(200, BIG) if request.path == "/metrics" else hello(request)


def test_a_client_that_never_reads_is_cut_and_its_answer_freed(serve: Serve) -> None:
    running = serve(big, Limits(idle_seconds=600, body_seconds=600, write_seconds=0.3))
    scrape(running, "/warm")
    before = sys.getrefcount(BIG)
    client = serve.client(running, GET, receive_buffer=4096)
    until(lambda: sys.getrefcount(BIG) > before)
    assert scrape(running, "/other")[0] == 200
    assert cut(client)
    until(lambda: sys.getrefcount(BIG) == before)
    assert running.connections() == 0


def test_a_client_that_reads_slowly_is_cut(serve: Serve) -> None:
    running = serve(big, Limits(idle_seconds=600, body_seconds=600, write_seconds=0.3))
    client = serve.client(running, GET_AND_CLOSE)
    got = 0
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            got += len(piece)
            time.sleep(0.02)  # slow, but never silent for as long as the deadline
    assert got < len(BIG)
    until(lambda: running.connections() == 0)


def test_what_a_gone_connection_left_in_the_kernel_is_dropped(serve: Serve) -> None:
    running = serve(
        lambda _: Answer(200, bytes(100_000)), Limits(idle_seconds=600, body_seconds=600, write_seconds=0.3)
    )
    serve.client(running, GET_AND_CLOSE, receive_buffer=4096)
    until(lambda: "04" in states(running.port))
    until(lambda: "04" not in states(running.port))


def states(port: int) -> set[str]:
    """The kernel's states of the connections of a port; 04 is FIN_WAIT1."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {line[3] for line in lines if line[1].endswith(f":{port:04X}")}


def test_the_longest_in_writing_gives_way_to_another(serve: Serve) -> None:
    limits = Limits(answers=2, idle_seconds=600, body_seconds=600, write_seconds=600)
    running = serve(big, limits)
    clients, before = [], sys.getrefcount(BIG)
    for _ in range(5):
        clients.append(serve.client(running, GET, receive_buffer=4096))
        assert clients[-1].recv(1) == b"H"
    assert all(cut(client) for client in clients[:3])
    until(lambda: sys.getrefcount(BIG) == before + 2)  # the two that wait hold the body itself, not a copy
    assert scrape(running)[0] == 200
    assert running.connections() <= 3


def test_nothing_is_left_behind(serve: Serve) -> None:
    running = serve(hello, Limits(connections=4))
    scrape(running)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(300):
        serve.client(running, GET).close()
        rest(serve.client(running, b"\r\n\r\n"))
    until(lambda: running.connections() == 0)
    gc.collect()
    assert len(gc.get_objects()) - before < 3000


# Addresses


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (":10400", ("", 10400)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "80", "host", "host:", ":65536", ":-1", ":٣", "::1:80", "[::1]", "[a]:80", "http://a:80", "a b:1"],
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT, :PORT or"):
        parse_address(text)


def test_a_second_instance_cannot_bind(serve: Serve) -> None:
    port = serve(hello).port
    for address, host in ((f"127.0.0.1:{port}", "127.0.0.1"), (f":{port}", "all addresses")):
        with pytest.raises(BindError) as caught:
            serve(hello, address=address)
        assert str(caught.value) == f"port {port} on {host} is in use (Address already in use)"


def test_an_address_that_is_not_ours(serve: Serve) -> None:
    with pytest.raises(BindError) as caught:
        serve(hello, address="192.0.2.1:10400")
    assert str(caught.value) == (
        "port 10400 on 192.0.2.1 cannot be listened on (Cannot assign requested address)"
    )
    with pytest.raises(BindError, match=r"port 80 on a\.\.b cannot be listened on"):
        serve(hello, address="a..b:80")


def test_the_port_is_free_again_after_a_stop(serve: Serve) -> None:
    first = serve(hello)
    scrape(first)
    first.stop(0).result(PATIENCE)
    again = serve(hello, address=first.names[0])
    assert again.names == first.names
    assert scrape(again)[0] == 200


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_ipv6_and_all_addresses(serve: Serve) -> None:
    alone = serve(hello, address="[::1]:0")
    assert alone.names == (f"[::1]:{alone.port}",)
    both = serve(hello, address=":0")
    assert both.names == (f"[::]:{both.port}",)
    for running, host in ((alone, "::1"), (both, "::1"), (both, "127.0.0.1")):
        with socket.create_connection((host, running.port), PATIENCE) as client:
            client.sendall(GET_AND_CLOSE)
            assert rest(client).endswith(b"GET /metrics?\n")


# Stopping


def test_stop_does_not_wait_for_ever(serve: Serve) -> None:
    running = serve(big)
    idle = serve.client(running, GET.replace(b"/metrics", b"/other"))
    assert idle.recv(1) == b"H"
    never = serve.client(running, GET, receive_buffer=4096)
    assert never.recv(1) == b"H"
    running.stop(0.3).result(PATIENCE)
    assert cut(never)
    assert rest(idle).endswith(b"GET /other?\n")
    assert running.connections() == 0
    with pytest.raises(ConnectionError):
        serve.client(running)
    running.stop(0.3).result(PATIENCE)  # twice does no harm


def test_stop_lets_an_answer_finish(serve: Serve) -> None:
    running = serve(big)
    client, half = serve.client(running, GET), serve.client(running, HALF)
    assert client.recv(1) == b"H"
    until(lambda: running.connections() == 2)
    stopped = running.stop(10 * PATIENCE)
    assert rest(half) == b""
    assert not stopped.done()
    assert len(rest(client).partition(b"\r\n\r\n")[2]) == len(BIG)
    stopped.result(PATIENCE)


# TLS


def test_tls(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    context, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(ours)
    limits = Limits(connections=4, idle_seconds=600, body_seconds=600, write_seconds=600)
    running = serve(hello, limits, tls=context)
    silent = [serve.client(running, sent) for sent in (b"", b"", b"\x16\x03", b"", b"\x16", b"")]
    with ours.wrap_socket(serve.client(running), server_hostname="127.0.0.1") as client:
        client.sendall(GET_AND_CLOSE)
        assert rest(client).endswith(b"GET /metrics?\n")
    rest(serve.client(running, GET))
    assert sum(cut(each, 0) for each in silent) >= 3
    assert not caplog.records
