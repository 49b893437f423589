"""Several simulated nodes and one Prometheus that scrapes them and keeps our rules."""

import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.daemon import Daemon, Server
from tests.ops.rules import RULE_FILES

DATA = Path(__file__).parent / "data"
SEEDS = range(1, 4)
PARAMETERS = """\
groups:
  - name: parameters
    rules:
      - {record: "gputally:price_per_kwh", expr: vector(1), labels: {cluster: east, currency: TOKEN}}
      - {record: "gputally:co2_grams_per_kwh", expr: vector(1), labels: {cluster: east}}
"""
Series = list[tuple[dict[str, str], float]]


class Target(NamedTuple):
    """Something to scrape."""

    job: str
    port: int
    labels: dict[str, str]


class Prometheus(Server):
    """A Prometheus with our rules, at a quick pace."""

    listening = r'"Listening on".* address=127\.0\.0\.1:(\d+)'

    def __init__(self, executable: str, folder: Path, targets: list[Target]) -> None:
        for path in RULE_FILES:
            (folder / path.name).write_text(path.read_text().replace("interval: 1m", "interval: 1s"))
        (folder / "parameters.yaml").write_text(PARAMETERS)
        config = {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "*.yaml")],
            "scrape_configs": _jobs(targets),
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        super().__init__(
            [
                executable,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ]
        )

    def __enter__(self) -> Self:
        super().__enter__()
        self.until(lambda: self.get("/-/ready").status == 200)
        return self

    def wait_for(self, expression: str) -> Series:
        """What an expression yields, as soon as it yields something."""
        return self.until(lambda: self.query(expression))

    def query(self, expression: str) -> Series:
        """An instant vector, now; an error of Prometheus fails the test."""
        answer = json.loads(self.get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}").body)
        assert answer["status"] == "success", f"{expression}: {answer}"
        found = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [({}, float(found[1]))]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def labels(self, name: str, match: str) -> list[str]:
        """What Grafana offers for a variable."""
        path = f"/api/v1/label/{name}/values?{urllib.parse.urlencode({'match[]': match})}"
        values: list[str] = json.loads(self.get(path).body)["data"]
        return values


class Scene(NamedTuple):
    """All that runs."""

    server: Prometheus
    daemons: list[Daemon]


@contextmanager
def nodes(seeds: range, *flags: str) -> Iterator[list[Daemon]]:
    """Simulated nodes, each of its own seed."""
    pace = ("--interval", "1s", "--tick", "500ms")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Daemon("--machine", "simulated", "--simulated.seed", str(seed), *pace, *flags)
            )
            for seed in seeds
        ]


@contextmanager
def serving(text: bytes, kind: str = "text/plain; version=0.0.4") -> Iterator[int]:
    """A port on which every path answers the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            # Whoever asked may have been ended.
            with suppress(OSError):
                self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _jobs(targets: list[Target]) -> list[dict[str, Any]]:
    """One job of each name, with all its targets."""
    jobs: dict[str, dict[str, Any]] = {}
    for target in targets:
        job = jobs.setdefault(
            target.job, {"job_name": target.job, "honor_labels": True, "static_configs": []}
        )
        where = {"targets": [f"127.0.0.1:{target.port}"], "labels": target.labels}
        job["static_configs"].append(where)
    return list(jobs.values())
