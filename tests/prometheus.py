"""A real Prometheus beside the daemons of a test."""

import json
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.daemon import Server

CONFIG = """\
global:
  scrape_interval: 1s
  evaluation_interval: 1s
rule_files: [rules.yml]
scrape_configs:
"""
JOB = """\
  - job_name: {job}
    honor_labels: true
    static_configs:
      - targets: ["127.0.0.1:{port}"]
        labels: {{namespace: monitoring, pod: gputally-x7, container: gputally}}
"""
Series = list[tuple[dict[str, str], float]]


class Prometheus(Server):
    """A Prometheus that scrapes these daemons every second, each as a job of its name."""

    listening = r'"Listening on".* address=127\.0\.0\.1:(\d+)'

    def __init__(
        self, executable: str, folder: Path, jobs: Mapping[str, Server], rules: str = "", more: str = ""
    ) -> None:
        config = folder / "prometheus.yml"
        (folder / "rules.yml").write_text(rules or "groups: []")
        config.write_text(
            CONFIG + "".join(JOB.format(job=job, port=d.port) for job, d in jobs.items()) + more
        )
        super().__init__(
            [
                executable,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ]
        )

    def __enter__(self) -> Self:
        super().__enter__()
        self.until(lambda: self.get("/-/ready").status == 200)
        return self

    def api(self, path: str, **parameters: str) -> Any:
        """The data of one answer of the HTTP API."""
        answer = json.loads(self.get(f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}").body)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> Series:
        """An instant vector, now."""
        found = self.api("query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def values(self, expression: str) -> list[float]:
        """Only the numbers of an instant vector, in order."""
        return sorted(value for _, value in self.query(expression))

    def wait_for(self, expression: str, predicate: Callable[[Series], object]) -> Series:
        """The first answer to a query of which the predicate is true."""
        return self.until(lambda: (found,) if predicate(found := self.query(expression)) else None)[0]

    def wait_until(self, expression: str, *values: float) -> None:
        """Return once a query yields these numbers."""
        self.wait_for(expression, lambda found: sorted(value for _, value in found) == sorted(values))
