"""GPUs that are to be reset, and whoever may tell us to let go of them (F08)."""

import base64
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import yaml

from gputally.outputs.http import Answer, Request
from gputally.yielding import Yielding, commanded
from tests.daemon import GPUTALLY, Daemon, Samples, environment, find
from tests.fakes.background import Background
from tests.fakes.nvml import FakeNvml
from tests.fakes.web import NODES, WebServer
from tests.faults.nodes import daemon, of, well

COMMANDS = ("--web.enable-yield",)
LABEL = "nvidia.com/gpu.deploy.client"
PAUSED = "paused-for-mig-change"


def rests(node: Daemon, fake: FakeNvml) -> Samples:
    """The first scrape at rest: nothing is held, and of GPUs only what they counted is told."""
    samples = node.wait_for(lambda s: find(s, "gputally_yielded") == [1] and fake.initialised == 0)
    assert set(find(samples, "gputally_gpu_up")) <= {0}
    assert find(samples, "gputally_gpu_power_watts") == []
    assert fake.control.event_sets == fake.control.gpm_samples == 0
    return samples


def works(node: Daemon, fake: FakeNvml) -> Samples:
    return node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3) and find(s, "gputally_yielded") == [0])


def stopped(fake: FakeNvml, *places: int) -> None:
    """The counter stands still: what is added to it is all there is."""
    for place in places:
        fake.gpus[place].freeze()


def test_F08_told_to_let_go_it_holds_nothing_until_told_again(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        before = works(node, fake)
        node._process.send_signal(signal.SIGUSR2)
        rests(node, fake)
        fake.gpus[0].reset()
        node._process.send_signal(signal.SIGUSR2)
        after = works(node, fake)
        for place in range(4):
            total = of(after, fake, place, "energy_joules_total") or 0
            assert total >= (of(before, fake, place, "energy_joules_total") or 0)


def test_F08_the_rest_ends_by_itself(fake: FakeNvml) -> None:
    with daemon(fake, "--nvml.yield", "2s") as node:
        works(node, fake)
        node._process.send_signal(signal.SIGUSR2)
        rests(node, fake)
        works(node, fake)


def test_F08_at_a_request_it_lets_go_and_counts_on_from_where_it_takes_up(fake: FakeNvml) -> None:
    stopped(fake, 0, 1, 2, 3)
    with daemon(fake, *COMMANDS) as node:
        works(node, fake)
        fake.gpus[0].jump(40_000)
        fake.gpus[1].jump(40_000)
        node.wait_for(lambda s: of(s, fake, 1, "energy_joules_total") == 40)
        answer = node.get("/-/yield?for=5m", method="POST")
        assert (answer.status, answer.body[:30]) == (202, b"letting go of the GPUs for 300")
        resting = rests(node, fake)
        assert [of(resting, fake, place, "energy_joules_total") for place in range(4)] == [40, 40, 0, 0]
        fake.gpus[0].reset()
        fake.gpus[1].jump(200_000)
        assert node.get("/-/resume", method="POST").status == 202
        after = works(node, fake)
        assert [of(after, fake, place, "energy_joules_total") for place in (0, 1)] == [40, 40]
        fake.gpus[0].jump(3_000)
        fake.gpus[1].jump(5_000)
        last = node.wait_for(lambda s: of(s, fake, 1, "energy_joules_total") == 45)
        assert of(last, fake, 0, "energy_joules_total") == 43


def test_F08_a_request_without_a_time_has_that_of_the_setting(fake: FakeNvml) -> None:
    with daemon(fake, *COMMANDS, "--nvml.yield", "2s") as node:
        works(node, fake)
        assert b"for 2 s" in node.get("/-/yield", method="POST").body
        rests(node, fake)
        works(node, fake)


def test_F08_commands_are_for_those_who_may(fake: FakeNvml) -> None:
    with daemon(fake, *COMMANDS) as node:
        works(node, fake)
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            refused = node.get("/-/yield", method=method)
            assert (refused.status, refused.headers["Allow"]) == (405, "POST")
        refused = node.get("/metrics", method="POST")
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
        for time in ("", "soon", "0s", "25h", "-5m", "1e9", "9" * 400 + "s"):
            refused = node.get(f"/-/yield?for={time}", method="POST")
            assert refused.status == 400, time
            assert b"duration" in refused.body
        assert node.get("/-/yield", {"Origin": "http://example.com"}, "POST").status == 403
        assert works(node, fake)


def test_F08_without_the_setting_there_is_no_command(fake: FakeNvml) -> None:
    with daemon(fake) as node:
        works(node, fake)
        assert [node.get("/-/yield", method=method).status for method in ("POST", "GET")] == [405, 404]
        assert works(node, fake)


def test_F08_a_command_needs_the_password_that_all_else_needs(fake: FakeNvml, tmp_path: Path) -> None:
    users = {"ann": bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()}
    (tmp_path / "web.yml").write_text(yaml.safe_dump({"basic_auth_users": users}))
    with daemon(fake, *COMMANDS, "--web.config.file", str(tmp_path / "web.yml")) as node:
        key = {"Authorization": "Basic " + base64.b64encode(b"ann:secret").decode()}
        assert node.get("/-/yield", method="POST").status == 401
        assert node.get("/-/yield", key, "POST").status == 202


class Everywhere(Daemon):
    """Listens on all addresses."""

    listening = r"listening on http://\[::\]:(\d+)/"


def test_F08_a_peer_on_the_network_is_refused(fake: FakeNvml) -> None:
    flags = ("--nvml.library", str(fake.library), *COMMANDS, "--web.listen-address", ":0")
    with Everywhere(*flags, env=fake.env) as node:
        assert node.get("/-/resume", method="POST").status == 202, "127.0.0.1, as IPv6 writes it"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
            except OSError:
                pytest.skip("there is no other address than 127.0.0.1")
            own = probe.getsockname()[0]
        if own.startswith("127."):
            pytest.skip("there is no other address than 127.0.0.1")
        with socket.create_connection((own, node.port), timeout=10) as client:
            client.sendall(b"POST /-/yield HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", 202),
        ("127.8.8.8", 202),
        ("::1", 202),
        ("::ffff:127.0.0.1", 202),
        ("10.0.0.7", 403),
        ("::ffff:10.0.0.7", 403),
        ("fe80::1", 403),
        ("0.0.0.0", 403),
        ("", 403),
        ("localhost", 403),
    ],
)
def test_F08_only_the_loopback_address_is_near_enough(peer: str, status: int) -> None:
    class Idle(Yielding):
        def __init__(self) -> None:
            self.seconds = 600.0

        def begin(self, who: str, seconds: float) -> None:
            assert status == 202

    respond = commanded(lambda _: Answer(404), Idle())
    assert respond(Request("POST", "/-/yield", "", {}, peer)).status == status
    assert respond(Request("GET", "/metrics", "", {}, peer)).status == 404


@pytest.fixture
def api() -> Iterator[WebServer]:
    """An API server that knows our node."""
    with Background() as background:
        server = WebServer(background, token="secret")
        server.nodes["node-01"] = {LABEL: "true"}
        server.nodes["node-02"] = {LABEL: PAUSED}
        yield server


def labelled(fake: FakeNvml, api: WebServer, tmp_path: Path, *flags: str) -> Daemon:
    (tmp_path / "token").write_text("secret")
    cluster = ("--kubernetes.api", api.url, "--kubernetes.token-file", str(tmp_path / "token"))
    label = ("--kubernetes.pause-label", LABEL, "--kubernetes.node", "node-01")
    return daemon(fake, *cluster, *label, *flags)


def test_F08_the_label_of_the_node_begins_and_ends_a_rest(
    fake: FakeNvml, api: WebServer, tmp_path: Path
) -> None:
    with labelled(fake, api, tmp_path) as node:
        works(node, fake)
        node.wait_for(lambda s: find(s, "gputally_source_up", source="node") == [1])
        api.label("node-01", client=PAUSED)
        rests(node, fake)
        api.label("node-01", client="true")
        works(node, fake)
        api.label("node-01", other=PAUSED)
        api.label("node-02", client=PAUSED)
        asked = fake.calls(0, "nvmlDeviceGetPowerUsage")
        node.wait_for(lambda s: fake.calls(0, "nvmlDeviceGetPowerUsage") > asked + 2)
        assert works(node, fake)
    nodes = [url for url in api.requests if url.startswith(NODES)]
    assert nodes
    assert all("watch=true" in url and "metadata.name%3Dnode-01" in url for url in nodes)


def test_F08_a_label_that_stays_paused_is_heeded_once_and_from_the_start(
    fake: FakeNvml, api: WebServer, tmp_path: Path
) -> None:
    api.nodes["node-01"] = {LABEL: PAUSED}
    with labelled(fake, api, tmp_path, "--nvml.yield", "3s") as node:
        rests(node, fake)
        works(node, fake)
        api.end_watches()
        node.until(lambda: sum(NODES in url for url in api.requests) > 1)
        asked = fake.calls(0, "nvmlDeviceGetPowerUsage")
        node.wait_for(lambda s: fake.calls(0, "nvmlDeviceGetPowerUsage") > asked + 2)
        assert sum("letting go" in line["msg"] for line in node.log) == 1


@pytest.mark.parametrize("trouble", ["refused", "gone", "garbage", "unknown node"])
def test_F08_who_cannot_see_the_label_goes_on_and_says_so(
    fake: FakeNvml, api: WebServer, tmp_path: Path, trouble: str
) -> None:
    if trouble == "refused":
        api.watch_status = 403
    if trouble == "unknown node":
        del api.nodes["node-01"]
    with labelled(fake, api, tmp_path) as node:
        works(node, fake)
        if trouble == "gone":
            api.stop()
        if trouble == "garbage":
            node.wait_for(lambda s: find(s, "gputally_source_up", source="node") == [1])
            api.nodes.clear()
            api.tell("ERROR", {"kind": "Status", "code": 410, "message": "too old"}, NODES)
        node.wait_for(lambda s: find(s, "gputally_source_up", source="node") == [0] and well(s, fake, 0))


def test_F08_a_label_without_a_cluster_is_refused_at_the_start() -> None:
    words = [*GPUTALLY, "serve", "--machine", "simulated", "--kubernetes.pause-label", LABEL]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 2
    assert "--kubernetes.pause-label needs a cluster" in done.stderr


@pytest.mark.skipif(shutil.which("sh") is None, reason="the fake nvidia-smi is a script")
def test_F08_nvidia_smi_is_not_run_while_gpus_rest(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\necho x >>{ran}\nexit 9\n")
    script.chmod(0o755)
    with Daemon(
        "--smi", "on", *COMMANDS, "--interval", "1s", env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ) as node:
        node.until(ran.exists)
        node.get("/-/yield", method="POST")
        node.wait_for(lambda s: find(s, "gputally_yielded") == [1])
        count = ran.read_text()
        asked = find(node.metrics(), "gputally_snapshot_timestamp_seconds")
        node.wait_for(lambda s: find(s, "gputally_snapshot_timestamp_seconds")[0] > asked[0] + 2)
        assert ran.read_text() == count
        node.get("/-/resume", method="POST")
        node.until(lambda: ran.read_text() != count)
