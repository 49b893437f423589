"""Real processes for tests: the gputally command, and others beside it, each ended by who started it."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from prometheus_client.parser import text_string_to_metric_families

PATIENCE = 60.0
"""Seconds after which a test no longer waits for what should have come long before."""
GPUTALLY = (sys.executable, "-m", "gputally")
# The kernel ends the child even where pytest cannot: at a timeout it leaves without clearing up.
LEASH = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()

T = TypeVar("T")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Response(NamedTuple):
    """What a server answered, whatever the status."""

    status: int
    headers: Message
    body: bytes


class Child:
    """A process that lives as long as the `with` it was started in; its stderr is kept in `lines`."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._command = [*LEASH, *command]
        self._env = environment(env)

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process itself, not a shell around it."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def line(self, pattern: str) -> re.Match[str]:
        """The first line of stderr that matches, waited for."""
        return self.until(lambda: next(filter(None, (re.search(pattern, line) for line in self.lines)), None))

    def until(self, look: Callable[[], T | None], seconds: float = PATIENCE) -> T:
        """What `look` finds, as soon as it finds anything true; it fails when the process has ended."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self.exit_code is not None
            found = look()
            if found:
                return found
            assert not ended, self._tale(f"ended with {self.exit_code}")
            assert time.monotonic() < deadline, self._tale(f"not within {seconds:g} s")
            time.sleep(0.05)

    def terminate(self) -> int:
        """Ask it to end, wait until it has, and tell its exit code."""
        self._process.terminate()
        return self._end()

    def kill(self) -> int:
        """End it at once."""
        self._process.kill()
        return self._end()

    def _end(self) -> int:
        try:
            return self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self.lines.append(line.rstrip("\n"))

    def _tale(self, what: str) -> str:
        return "\n".join([f"{' '.join(self._command)}: {what}", *self.lines[-20:]])


class Server(Child):
    """A child that answers HTTP on 127.0.0.1, on the port that it tells in a line like `listening`."""

    listening: str
    port: int

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.port = int(self.line(self.listening)[1])
        except BaseException:
            self.kill()
            raise
        return self

    def url(self, path: str) -> str:
        """Where a path of it is."""
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Response:
        """Its answer to one request."""
        request = urllib.request.Request(self.url(path), headers=dict(headers or {}), method=method)
        try:
            with _OPENER.open(request, timeout=PATIENCE) as answer:
                return Response(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, error.headers, error.read())


class Daemon(Server):
    """`gputally serve` with these flags, on a free port."""

    listening = r"listening on http://127\.0\.0\.1:(\d+)/"

    def __init__(self, *flags: str, env: Mapping[str, str] | None = None) -> None:
        own = ("--web.listen-address", "127.0.0.1:0", "--log.format", "json")
        super().__init__([*GPUTALLY, "serve", *own, *flags], env)

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log lines, without what something else wrote to stderr."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def metrics(self, path: str = "/metrics") -> Samples:
        """What a scrape gets, as prometheus_client reads it; no series may come twice."""
        answer = self.get(path)
        assert answer.status == 200, answer
        return parse(answer.body.decode())

    def wait_for(self, predicate: Callable[[Samples], object], seconds: float = PATIENCE) -> Samples:
        """The first scrape of which the predicate is true."""

        def scrape() -> Samples | None:
            samples = self.metrics() if self.exit_code is None else {}
            return samples if samples and predicate(samples) else None

        return self.until(scrape, seconds)


def parse(text: str) -> Samples:
    """Name and labels of every sample -> its value."""
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"twice: {key}"
            samples[key] = sample.value
    return samples


def find(samples: Samples, name: str, **labels: str) -> list[float]:
    """Values of the series of this name that have at least these labels."""
    wanted = labels.items()
    return [value for (series, held), value in samples.items() if series == name and wanted <= held]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without settings of gputally that somebody may have left in it, and with these."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GPUTALLY_")}
    return {**ours, **(more or {})}


# A proxy that the environment names is none for 127.0.0.1.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
