"""Another exporter that is dead, slow, huge, lying or of another node (F56), beside the real command."""

from __future__ import annotations

import gzip
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputally.machine.messages import LIST_V1
from tests.daemon import GPUTALLY, Daemon, Samples, environment, find
from tests.fakes.background import Background
from tests.fakes.nvml import FakeNvml
from tests.fakes.pages import Behaviour, Pages, page, squeezed
from tests.fakes.rpc import RpcServer, pods_of

TEMP = "dcgm_gpu_temp"


@pytest.fixture
def nvml(tmp_path: Path, nvml_library: Path) -> FakeNvml:
    (tmp_path / "nvml").mkdir()
    return FakeNvml(tmp_path / "nvml", 2, library=nvml_library)


@pytest.fixture
def text(nvml: FakeNvml) -> bytes:
    lines = [f'{TEMP}{{gpu="{n}",uuid="{gpu.uuid}"}} {31 + n}' for n, gpu in enumerate(nvml.gpus[:2])]
    return "\n".join([f"# HELP {TEMP} GPU temperature (in C).", f"# TYPE {TEMP} gauge", *lines, ""]).encode()


def daemon(nvml: FakeNvml, *flags: str, **env: str) -> Daemon:
    own = ("--nvml.library", str(nvml.library), "--interval", "1s", "--tick", "1s")
    return Daemon(*own, *flags, env={**nvml.env, **env})


def up(samples: Samples, state: float = 1) -> bool:
    return find(samples, "gputally_source_up", source="upstream") == [state]


@pytest.mark.parametrize("answer", [page, squeezed])
def test_its_series_come_out_behind_ours_and_alone(nvml: FakeNvml, text: bytes, answer: type) -> None:
    with Pages(answer(text)) as pages, daemon(nvml, "--upstream.url", pages.url) as server:
        assert find(server.wait_for(up), TEMP) == [31, 32]
        assert server.get("/metrics").body.endswith(text)
        assert server.get("/metrics/upstream").body == text
        assert server.get("/metrics/native").body.find(TEMP.encode()) == -1
        asked = pages.requests[0].decode()
        assert "Accept: text/plain" in asked
        assert "Accept-Encoding: gzip" in asked


def test_pods_with_grants_are_added(nvml: FakeNvml, text: bytes, tmp_path: Path) -> None:
    with Background() as background, Pages(page(text)) as pages:
        granted = pods_of(("ml", "train-0", "main", [nvml.gpus[0].uuid]))
        RpcServer(background, tmp_path / "kubelet/pod-resources/kubelet.sock", {LIST_V1: granted})
        flags = ("--kubelet.root", str(tmp_path / "kubelet"), "--kubernetes.logs", str(tmp_path))
        names = ("--upstream.pod-labels", "pod_name,pod_namespace,container_name")
        with daemon(nvml, "--upstream.url", pages.url, *flags, *names) as server:
            found = server.wait_for(lambda s: find(s, TEMP, pod_name="train-0"))
            assert find(found, TEMP, pod_name="train-0", pod_namespace="ml", container_name="main") == [31]
            assert find(found, TEMP) == [31, 32]


def _drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"#")
        time.sleep(0.2)


def _silent(connection: socket.socket) -> None:
    time.sleep(60)


def _endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"# nothing\n" * 10_000)


BOMB = gzip.compress(b"#" * 200_000_000, 9)
GOOD = b't{gpu="0"} 1\n'
FAULTS: dict[str, tuple[Behaviour, str]] = {
    "redirect": (page(b"", "Location: http://127.0.0.1:1/", status="302 Found"), "HTTP 302"),
    "error": (page(b"oh no", status="500 Oh"), "HTTP 500 oh no"),
    "html": (page(b"<!doctype html>\n<html>\n", "Content-Type: text/html"), "line 1 is not Prometheus text"),
    "garbage": (page(os.urandom(5000) + b"\xff"), "UTF-8"),
    "not-http": (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "."),
    "closed": (lambda connection: None, "closed"),
    "silent": (_silent, "no whole answer in 3 s|has not answered"),
    "drip": (_drip, "no whole answer in 3 s"),
    "endless": (_endless, "more than 8388608 bytes|no whole answer"),
    "huge": (page(b"# x\n" * 3_000_000), "more than 8388608 bytes"),
    "bomb": (page(BOMB, "Content-Encoding: gzip"), "more than 8388608 bytes"),
    "cut-gzip": (squeezed(GOOD * 100, -12), "gzip is cut short"),
    "not-gzip": (page(GOOD, "Content-Encoding: gzip"), "says that it is gzip and is not"),
    "brotli": (page(GOOD, "Content-Encoding: br"), "its encoding is 'br'"),
    "cut": (page(GOOD[:-3]), "cut short"),
    "shorter-than-said": (page(GOOD, length=1000), "."),
    "many": (page(b't{gpu="0"} 1\n' * 50_001), "more than 50000 samples"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_f56_a_bad_answer_is_refused_with_a_reason_and_shows_nothing_old(
    nvml: FakeNvml, text: bytes, fault: str
) -> None:
    behaviour, reason = FAULTS[fault]
    with Pages(page(text)) as pages, daemon(nvml, "--upstream.url", pages.url) as server:
        assert find(server.wait_for(up), TEMP) == [31, 32]
        pages.behaviour = behaviour
        down = server.wait_for(lambda s: up(s, 0))
        assert find(down, TEMP) == []
        assert find(down, "gputally_up") == [1]
        assert server.get("/metrics/upstream").status == 503
        server.line(f"upstream is down: .*({reason})")
        asked = len(pages.requests)
        for _ in range(20):
            server.metrics()
        assert len(pages.requests) - asked < 10, "a scrape asked for the page"
        pages.behaviour = page(text)
        assert find(server.wait_for(up), TEMP) == [31, 32]
        assert find(server.metrics(), "gputally_self_resident_memory_bytes")[0] < 200 * 2**20


def test_a_dead_endpoint_shows_nothing_and_holds_up_nobody(nvml: FakeNvml, text: bytes) -> None:
    with Pages(page(text)) as pages, daemon(nvml, "--upstream.url", pages.url) as server:
        server.wait_for(up)
        pages.close()
        down = server.wait_for(lambda s: up(s, 0))
        assert find(down, TEMP) == []
        assert server.terminate() == 0


def test_series_of_other_nodes_are_refused_and_counted(nvml: FakeNvml, text: bytes) -> None:
    foreign = f'{TEMP}{{gpu="0",uuid="GPU-99999999-0000-0000-0000-000000000000"}} 99\n'.encode()
    nan = f'{TEMP}{{gpu="1"}} NaN\n'.encode()
    with Pages(page(text + foreign + nan)) as pages, daemon(nvml, "--upstream.url", pages.url) as server:
        samples = server.wait_for(up)
        assert find(samples, TEMP) == [31, 32]
        for reason in ("upstream_foreign_gpu", "upstream_nan"):
            assert find(samples, "gputally_samples_dropped_total", reason=reason)[0] >= 1


def test_names_of_ours_are_not_shown_twice(nvml: FakeNvml, text: bytes) -> None:
    ours = b'gputally_gpu_up{gpu="0"} 7\n'
    with Pages(page(text + ours)) as pages, daemon(nvml, "--upstream.url", pages.url) as server:
        assert 7 not in find(server.wait_for(up), "gputally_gpu_up")
        assert ours in server.get("/metrics/upstream").body


def test_proxies_of_the_environment_are_not_asked(nvml: FakeNvml, text: bytes) -> None:
    dead = {
        "http_proxy": "http://127.0.0.1:1",
        "HTTP_PROXY": "http://127.0.0.1:1",
        "ALL_PROXY": "http://127.0.0.1:1",
    }
    with Pages(page(text)) as pages, daemon(nvml, "--upstream.url", pages.url, **dead) as server:
        assert find(server.wait_for(up), TEMP) == [31, 32]


@pytest.fixture
def file(tmp_path: Path, text: bytes) -> Path:
    path = tmp_path / "dcgm.prom"
    path.write_bytes(text)
    return path


@pytest.fixture
def reading(nvml: FakeNvml, file: Path) -> Iterator[Daemon]:
    with daemon(nvml, "--upstream.file", str(file)) as server:
        server.until(lambda: _rewrite(file) and up(server.metrics()))
        yield server


def _rewrite(file: Path) -> bool:
    os.utime(file)
    return True


def test_a_file_that_nobody_writes_any_more_is_not_shown(reading: Daemon, file: Path) -> None:
    assert find(reading.metrics(), TEMP) == [31, 32]
    down = reading.wait_for(lambda s: up(s, 0))
    assert find(down, TEMP) == []
    reading.line("last written [3-9] s ago")
    _rewrite(file)
    assert find(reading.wait_for(up), TEMP) == [31, 32]


def test_a_file_from_the_future_is_not_shown(reading: Daemon, file: Path) -> None:
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    assert find(reading.wait_for(lambda s: up(s, 0)), TEMP) == []


def test_what_is_no_file_is_not_waited_for(reading: Daemon, file: Path) -> None:
    file.unlink()
    reading.line("upstream is down: .*No such file")
    os.mkfifo(file)
    reading.line("upstream is down: .*not a regular file")
    file.unlink()
    file.write_bytes(b"# x\n" * 3_000_000)
    reading.line("upstream is down: .*more than 8388608 bytes")
    assert find(reading.metrics(), "gputally_up") == [1]


def test_without_nvml_a_file_says_itself_which_gpus_there_are(file: Path, tmp_path: Path) -> None:
    flags = ("--nvml.library", "/nowhere", "--smi", "off", "--interval", "5s", "--upstream.file", str(file))
    with Daemon(*flags) as server:
        samples = server.wait_for(up)
        assert find(samples, TEMP) == [31, 32]


def test_a_recording_has_the_text(nvml: FakeNvml, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    source = ["--upstream.file", str(file)]
    command = [*GPUTALLY, "record", str(folder), "--nvml.library", str(nvml.library), *source]
    subprocess.run(command, env=environment(nvml.env), check=True, timeout=60)
    shown = subprocess.run(
        [*GPUTALLY, "show", "--machine", f"recorded:{folder}", *source],
        env=environment(),
        capture_output=True,
    )
    assert shown.stdout.endswith(file.read_bytes())


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--upstream.url", "http://127.0.0.1:1/", "--upstream.file", "/x"), "cannot both be used"),
        (("--upstream.url", "ftp://x/"), "--upstream.url 'ftp://x/' cannot be used"),
        (("--upstream.url", "http://user:secret@x/"), "cannot be used"),
        (("--upstream.pod-labels", "pod,namespace"), "three label names"),
        (("--upstream.pod-labels", "pod,name-space,c"), "three label names"),
    ],
)
def test_settings_that_make_no_sense_are_errors(flags: tuple[str, ...], reason: str) -> None:
    command = [*GPUTALLY, "serve", "--web.listen-address", "127.0.0.1:0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert ended.returncode == 2
    assert re.search(reason, ended.stderr), ended.stderr
