"""What is served: the newest Tally as text, rendered when it was published, and a few plain pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from gputally.dialects import native
from gputally.joined import PodLabels, with_pods
from gputally.machine import Machine
from gputally.metrics import Family, Metric, Table, families
from gputally.model import Snapshot
from gputally.outputs import foreign
from gputally.outputs.http import Answer, Request
from gputally.outputs.landing import landing
from gputally.outputs.rendering import Packers, Text, together
from gputally.outputs.text import OPENMETRICS_TYPE, PLAIN_TYPE, TextWriter
from gputally.tally import Tally

UPSTREAM = "upstream"
HTML_TYPE = "text/html; charset=utf-8"
ONLY_OURS = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
"""A browser loads nothing more for a page, and runs nothing in it."""
HEALTHY = ("/-/healthy", "/healthz")
READY = ("/-/ready", "/readyz")
NATIVE: Mapping[str, tuple[Metric, ...]] = {"native": native.METRICS}
KNOWN_CLIENTS = 16
"""How many different Accept headers are remembered: each client sends the same ones every time."""
NO_ALIASES: Mapping[str, str] = {}


class Site:
    """Answers every request from what was last published; asks nothing of anybody."""

    def __init__(
        self,
        machine: Machine,
        *,
        tables: Mapping[str, tuple[Metric, ...]] = NATIVE,
        path: str = "/metrics",
        aliases: Mapping[str, str] = NO_ALIASES,
        max_age: float = 15.0,
        upstream: PodLabels | None = None,
    ) -> None:
        self._machine, self._clock = machine, machine.clock
        self._tables = {name: Table(metrics) for name, metrics in tables.items()}
        self._path = path
        self._aliases = aliases
        self._max_age = max_age
        self._upstream = upstream
        """What pods are called on series of another exporter; None where there is none."""
        self._alone = (*tables, UPSTREAM) if upstream is not None else tuple(tables)
        """What has a page of its own."""
        self._pages = sorted({path, *(f"{path}/{name}" for name in self._alone)})
        self._writers = {name: TextWriter() for name in tables}
        self._shared = {name: TextWriter() for name in tables}
        self._packers = Packers()
        self._texts: Mapping[str, Text] = {}
        """Path -> what is served there."""
        self._published_at: float | None = None
        self._bare = _bare(machine)
        page = landing(machine.name, path, self._alone, HEALTHY[0], READY[0])
        self._landing = Answer(200, page, HTML_TYPE, (ONLY_OURS,))
        self.served = False
        """The newest Tally was asked for."""

    def publish(self, tally: Tally) -> int:
        """Render the Tally, which is served from now on; tells how many series had another's labels."""
        rows = {name: table.families(tally) for name, table in self._tables.items()}
        alone = {name: self._writers[name].write(found) for name, found in rows.items()}
        texts = {f"{self._path}/{name}": text for name, text in alone.items()}
        shared = self._apart(rows, alone)
        if self._upstream is not None:
            passed = with_pods(tally.snapshot, self._upstream)
            taken = {family.metric.name for families in rows.values() for family in families}
            shared.append(foreign.write(passed, taken))
            if any(health.up for health in tally.snapshot.health if health.source == UPSTREAM):
                texts[f"{self._path}/{UPSTREAM}"] = foreign.write(passed)
        texts[self._path] = shared[0] if len(shared) == 1 else together(shared, self._packers)
        self._texts, self._published_at = texts, tally.snapshot.monotonic
        self.served = False
        return texts[self._path].collisions

    def failed(self, faults: int) -> None:
        """Count these ticks on the bare page: if all fail, no Tally comes to tell of them."""
        self._bare = _bare(self._machine, faults)

    def _apart(self, rows: Mapping[str, Sequence[Family]], texts: Mapping[str, Text]) -> list[Text]:
        """The texts of all dialects for one page: a family that two of them have is the first one's."""
        seen: set[str] = set()
        apart = []
        if len(texts) == 1:
            return list(texts.values())
        for name, families_of_it in rows.items():
            kept = [family for family in families_of_it if family.metric.stem not in seen]
            seen |= {family.metric.stem for family in families_of_it}
            whole = len(kept) == len(families_of_it)
            apart.append(texts[name] if whole else self._shared[name].write(kept))
        return apart

    @property
    def health_paths(self) -> frozenset[str]:
        """Where health is told and, whatever paths were chosen for them, no metrics are."""
        under = f"{self._path}/"
        return frozenset(
            path
            for path in (*HEALTHY, *READY)
            if self._aliases.get(path) != "metrics" and path != self._path and not path.startswith(under)
        )

    def body(self) -> bytes:
        """The newest text as `show` prints it."""
        return self._texts[self._path].plain

    def respond(self, request: Request) -> Answer:
        """Answer one request."""
        alias = self._aliases.get(request.path)
        if alias in ("health", "ready"):
            return Answer(200, b"OK") if alias == "health" or self._is_current else Answer(503, b"KO")
        if alias == "metrics":
            request = replace(request, path=self._path)
        if request.path == self._path or request.path.startswith(f"{self._path}/"):
            return self._metrics(request)
        if request.path == "/":
            return self._landing
        if request.path in HEALTHY:
            return Answer(200, b"healthy\n")
        if request.path in READY:
            return self._readiness()
        return Answer(404, b"not found; metrics are at " + self._path.encode() + b"\n")

    @property
    def _is_current(self) -> bool:
        """There is a Tally, and it is not too old to be shown as now."""
        at = self._published_at
        return at is not None and self._clock.monotonic() - at <= self._max_age

    def _readiness(self) -> Answer:
        if self._is_current:
            return Answer(200, b"ready\n")
        if self._published_at is None:
            return Answer(503, b"the first collection is under way\n")
        return Answer(503, b"the newest metrics are too old to be shown; the log says why\n")

    def _metrics(self, request: Request) -> Answer:
        if request.path not in self._pages:
            return Answer(404, f"no such dialect; there is {', '.join(self._pages)}\n".encode())
        if not self._is_current:
            return _answer(self._bare, request)
        if request.path not in self._texts:
            return Answer(503, b"the other exporter is down; gputally_source_up and the log say so\n")
        self.served = True
        return _answer(self._texts[request.path], request)


def _bare(machine: Machine, faults: int = 0) -> Text:
    """What is served while there is no Tally, and when the newest one is too old to be shown as now."""
    nothing = Tally(Snapshot(machine.clock.monotonic(), machine.clock.time()), machine.name, faults=faults)
    return TextWriter().write(families(native.BARE_METRICS, nothing))


def _answer(text: Text, request: Request) -> Answer:
    """The text in the format and encoding that the client takes."""
    openmetrics = wants_openmetrics(request.headers.get("Accept", ""))
    kind = OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE
    headers = (("Vary", "Accept, Accept-Encoding"),)
    if _accepts(request.headers.get("Accept-Encoding", ""), "gzip"):
        packed = text.openmetrics_gzip if openmetrics else text.plain_gzip
        return Answer(200, packed, kind, (*headers, ("Content-Encoding", "gzip")))
    return Answer(200, text.openmetrics if openmetrics else text.plain, kind, headers)


@lru_cache(maxsize=KNOWN_CLIENTS)
def wants_openmetrics(accept: str) -> bool:
    """Whether the client likes OpenMetrics at least as much as plain text."""
    plain = max(_quality(accept, "text/plain"), _quality(accept, "text/*"), _quality(accept, "*/*"))
    openmetrics = _quality(accept, "application/openmetrics-text")
    return openmetrics > 0 and openmetrics >= plain


def _quality(accept: str, kind: str) -> float:
    """The weight a client gives to a media type; 0 where it does not name it or wants another version."""
    best = 0.0
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if name == kind and values.get("version", "1.0.0") in ("1.0.0", "0.0.4", "0.0.1"):
            best = max(best, _number(values.get("q", "1")))
    return best


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


@lru_cache(maxsize=KNOWN_CLIENTS)
def _accepts(accept: str, encoding: str) -> bool:
    return max(_quality(accept, encoding), _quality(accept, "*")) > 0
