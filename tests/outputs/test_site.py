"""What is served, without a socket."""

from __future__ import annotations

import gzip
import re

import pytest

from gputally import __version__
from gputally.dialects import DIALECTS
from gputally.machine.clocks import VirtualClock
from gputally.machine.simulated import SimulatedMachine
from gputally.model import Device, Health, Snapshot
from gputally.outputs.http import Answer, Request
from gputally.outputs.landing import landing
from gputally.outputs.site import Site, wants_openmetrics
from gputally.outputs.text import OPENMETRICS_TYPE, PLAIN_TYPE
from gputally.tally import Gpu, Tally

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


class Served:
    """A site on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = VirtualClock(100.0)
        self.site = Site(SimulatedMachine(self.clock), max_age=15.0)

    def publish(self, power: float = 200.0) -> None:
        now = self.clock.monotonic()
        device = Device("GPU-1", 0, power_watts=power, read_at=now, gauges_at=now)
        snapshot = Snapshot(now, self.clock.time(), (device,), health=(Health("nvml", up=True),))
        self.site.publish(Tally(snapshot, "simulated", (Gpu(device, fresh=True, energy_uj=5),)))

    def get(self, path: str = "/metrics", **headers: str) -> Answer:
        return self.site.respond(
            Request("GET", path, "", {name.replace("_", "-"): value for name, value in headers.items()})
        )


@pytest.fixture
def served() -> Served:
    return Served()


def test_before_the_first_tally_a_scrape_says_that_we_are_not_up(served: Served) -> None:
    assert b"gputally_up 0\n" in served.get().body
    assert b'machine="simulated"' in served.get().body
    assert served.get("/-/ready").status == 503
    assert served.get("/-/healthy").status == served.get("/healthz").status == 200


def test_a_published_tally_is_served_as_it_was_rendered(served: Served) -> None:
    served.publish()
    first = served.get()
    served.clock.jump(110.0)
    assert served.get().body is first.body
    assert b"gputally_up 1\n" in first.body
    assert b"gputally_gpu_power_watts{" in first.body
    assert served.get("/metrics/native").body == first.body == served.site.body()
    assert served.get("/readyz").status == 200


def test_a_tally_that_is_too_old_is_not_served_as_now(served: Served) -> None:
    served.publish()
    served.clock.jump(116.0)
    assert b"gputally_up 0\n" in served.get().body
    assert b"power_watts" not in served.get().body
    served.publish(201.0)
    assert b" 201.0\n" in served.get().body


def test_formats_by_accept(served: Served) -> None:
    served.publish()
    assert served.get().content_type == PLAIN_TYPE
    assert served.get(Accept=PROMETHEUS).content_type == OPENMETRICS_TYPE
    assert served.get(Accept=PROMETHEUS).body.endswith(b"# EOF\n")
    assert ("Vary", "Accept, Accept-Encoding") in served.get().headers


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.1", False),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        (";;;,,q=", False),
    ],
)
def test_who_gets_openmetrics(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


def test_gzip_is_made_once_for_all_who_take_it(served: Served) -> None:
    served.publish()
    first, second = served.get(Accept_Encoding="gzip"), served.get(Accept_Encoding="br, gzip;q=0.5")
    assert first.body is second.body
    assert gzip.decompress(first.body) == served.get().body
    assert ("Content-Encoding", "gzip") in first.headers
    plain = served.get(Accept_Encoding="gzip;q=0")
    assert ("Content-Encoding", "gzip") not in plain.headers


def test_what_is_not_there_says_what_is(served: Served) -> None:
    assert served.get("/nothing").status == 404
    assert b"/metrics/native" in served.get("/metrics/klingon").body
    assert served.get("/metrics/klingon").status == 404
    assert served.get("/").status == 200
    assert b'href="/metrics"' in served.get("/").body


def test_the_landing_page_says_what_is_behind_each_link(served: Served) -> None:
    page = served.get("/").body.decode()
    for link in ("/metrics", "/metrics/native", "/-/healthy", "/-/ready"):
        assert f'<dt><a href="{link}">{link}</a></dt><dd>' in page
        assert served.get(link).status != 404
    assert __version__ in page
    assert "This machine is simulated" in page


def test_the_landing_page_needs_nothing_else_and_runs_nothing(served: Served) -> None:
    page = served.get("/")
    assert ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'") in page.headers
    assert b'name="viewport"' in page.body
    assert not re.search(rb"<script|src=|url\(|https?:|@import", page.body)


def test_every_dialect_and_the_other_exporter_are_on_the_landing_page() -> None:
    page = landing("local", "/metrics", [*DIALECTS, "upstream"], "/-/healthy", "/-/ready").decode()
    assert "<dd>only metrics under the names of dcgm-exporter</dd>" in page
    assert page.count("<dt>") == page.count("<dd>") == len(DIALECTS) + 4
    assert 'notice"' not in page


def test_a_path_is_text_on_the_landing_page_whatever_is_in_it() -> None:
    page = landing("local", '/"><script>', [], "/-/healthy", "/-/ready").decode()
    assert "<script>" not in page
    assert 'href="/&quot;&gt;&lt;script&gt;"' in page
