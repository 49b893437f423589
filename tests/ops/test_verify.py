"""`gputally verify` against a real Prometheus that scrapes real daemons, and against what else may answer."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.daemon import GPUTALLY, environment
from tests.ops.scene import Prometheus, Scene, Target, serving

PATIENCE = 60
NODES = ("gpu-1", "gpu-2", "gpu-3")
SICK = b"""\
gputally_up 1
gputally_snapshot_timestamp_seconds 1000
gputally_gpu_up{gpu="0",uuid="GPU-0"} 0
gputally_gpu_attribution_coverage_ratio{gpu="0",uuid="GPU-0"} 0.4
gputally_host_pid{mode="no"} 1
gputally_gpu_energy_joules_total{gpu="0",uuid="GPU-0"} 100
gputally_gpu_idle_energy_joules_total{gpu="0",uuid="GPU-0"} 50
gputally_workload_active{exported_pod="train-0"} 1
"""
RESTING = """\
gputally_up 0
gputally_yielded 1
gputally_snapshot_timestamp_seconds {now}
gputally_gpu_up{{gpu="0",uuid="GPU-1"}} 0
gputally_gpu_energy_joules_total{{gpu="0",uuid="GPU-1"}} 100
gputally_gpu_idle_energy_joules_total{{gpu="0",uuid="GPU-1"}} 100
"""


class Answer(NamedTuple):
    """What the command said."""

    code: int
    out: str
    errors: str

    def row(self, subject: str) -> list[str]:
        """Result and words of one line of the table."""
        [line] = [line for line in self.out.splitlines() if line.startswith(subject + "  ")]
        return line.removeprefix(subject).split(maxsplit=1)


@pytest.fixture(scope="module")
def sick(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, int]]:
    """A Prometheus to which a node tells wrong things, twice, one that it rests, and one nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    with serving(SICK) as port, serving(RESTING.format(now=time.time()).encode()) as resting:
        targets = [
            Target("gputally", resting, {"node": "resting"}),
            Target("gputally", port, {}),
            Target("gputally-too", port, {}),
            Target("gputally", dead, {"node": "doomed"}),
        ]
        with Prometheus(prometheus, tmp_path_factory.mktemp("sick"), targets) as server:
            server.wait_for("count(gputally_up) == 3")
            server.wait_for('up{node="doomed"} == 0')
            yield server, port


def test_all_is_well(scene: Scene, tmp_path: Path) -> None:
    answer = well(scene, tmp_path)
    assert answer.code == 0, answer
    assert answer.row("targets") == ["good", "3 of 3 are up"]
    for node in NODES:
        verdict, words = answer.row(f"node {node}")
        assert verdict == "good"
        assert words.startswith("8 GPUs, ")
        assert words.endswith("the joules add up")
    assert answer.row("cluster") == ["note", "not asked: kubectl is not on the PATH"]
    assert answer.out.endswith("all good\n")


def test_the_cluster_is_compared_with_prometheus(scene: Scene, tmp_path: Path) -> None:
    fake_kubectl(tmp_path, {"nodes": [gpu_node("gpu-1"), gpu_node("gpu-2"), plain_node("web-1")]})
    answer = well(scene, tmp_path)
    assert answer.code == 0, answer
    assert answer.row("GPU nodes") == ["good", "2 in the cluster"]
    assert answer.row("DaemonSet monitoring/gputally") == ["good", "2 of 2 pods ready, for 2 GPU nodes"]
    assert answer.row("monitors") == ["good", "PodMonitor monitoring/gputally"]
    assert answer.row("nodes covered") == ["good", "Prometheus has metrics of all 2 GPU nodes"]
    assert answer.row("application argocd/gputally") == ["good", "Synced, Healthy"]


def test_a_gpu_node_without_metrics_is_named(scene: Scene, tmp_path: Path) -> None:
    fake_kubectl(tmp_path, {"nodes": [gpu_node("gpu-1"), gpu_node("gpu-2"), gpu_node("gpu-9")]})
    answer = verify(tmp_path, "--prometheus.url", scene.server.url("/"))
    assert answer.code == 1
    assert answer.row("nodes covered") == ["problem", "no metrics of gpu-9"]
    assert "for 3 GPU nodes: see its node selector" in answer.row("DaemonSet monitoring/gputally")[1]


@pytest.mark.parametrize(
    ("change", "subject", "words"),
    [
        ({"daemonsets.apps": []}, "DaemonSet", "none with app.kubernetes.io/name=gputally"),
        ({"daemonsets.apps": [("daemonset", 2, 1)]}, "DaemonSet monitoring/gputally", "1 of 2 pods ready"),
        ({"servicemonitors.monitoring.coreos.com": [("monitor",)]}, "monitors", "scraped twice"),
        ({"applications.argoproj.io": [("app", "OutOfSync")]}, "application argocd/gputally", "OutOfSync"),
        ({"nodes": []}, "GPU nodes", "0 in the cluster"),
    ],
    ids=["none", "unready", "two-monitors", "argo", "no-gpus"],
)
def test_troubles_of_the_cluster(tmp_path: Path, change: dict[str, Any], subject: str, words: str) -> None:
    fake_kubectl(tmp_path, change)
    answer = verify(tmp_path)
    assert answer.code == 1, answer
    verdict, found = answer.row(subject)
    assert verdict == "problem"
    assert words in found


def test_the_cluster_alone_can_be_verified(tmp_path: Path) -> None:
    fake_kubectl(tmp_path, {"podmonitors.monitoring.coreos.com": None})
    answer = verify(tmp_path)
    assert answer.code == 0, answer
    assert answer.row("prometheus") == ["note", "no --prometheus.url was given"]
    assert answer.row("monitors")[0] == "note"


def test_a_kubectl_that_fails_was_not_a_check(tmp_path: Path) -> None:
    fake_kubectl(tmp_path, {}, "echo 'Unable to connect: connection refused' >&2; exit 1")
    answer = verify(tmp_path)
    assert answer.code == 2, answer
    assert answer.row("cluster")[1] == "kubectl get nodes: Unable to connect: connection refused"


def test_a_kubectl_that_hangs_ends_at_the_deadline(tmp_path: Path) -> None:
    fake_kubectl(tmp_path, {}, "sleep 600")
    answer = verify(tmp_path, "--deadline", "1s")
    assert answer.code == 2
    assert "no answer in time" in answer.row("cluster")[1]


def test_a_kubectl_that_writes_nonsense(tmp_path: Path) -> None:
    fake_kubectl(tmp_path, {}, "echo hello")
    answer = verify(tmp_path)
    assert answer.code == 2
    assert "not a list of objects" in answer.row("cluster")[1]


def test_nothing_to_check(tmp_path: Path) -> None:
    answer = verify(tmp_path)
    assert answer.code == 2
    assert answer.row("prometheus") == ["unchecked", "no --prometheus.url was given"]
    assert verify(tmp_path, "--kubectl", "on").row("cluster")[0] == "unchecked"


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answer = verify(tmp_path, "--prometheus.url", f"http://127.0.0.1:{port}")
    assert answer.code == 2
    assert "Connection refused" in answer.row("prometheus")[1]


def test_a_web_page_answers(tmp_path: Path) -> None:
    with serving(b"<!doctype html><title>Sign in</title>", "text/html") as port:
        answer = verify(tmp_path, "--prometheus.url", f"http://127.0.0.1:{port}")
    assert answer.code == 2
    assert "answers a web page" in answer.row("prometheus")[1]


@pytest.mark.parametrize("body", [b"{}", b"[]", b"3", b'{"status":"success","data":{"result":[1]}}', b"\xff"])
def test_json_that_is_not_of_prometheus(tmp_path: Path, body: bytes) -> None:
    with serving(body, "application/json") as port:
        answer = verify(tmp_path, "--prometheus.url", f"http://127.0.0.1:{port}")
    assert answer.code == 2, answer
    assert answer.row("prometheus")[0] == "unchecked"


def test_a_daemon_in_place_of_prometheus(scene: Scene, tmp_path: Path) -> None:
    answer = verify(tmp_path, "--prometheus.url", scene.daemons[0].url("/"))
    assert answer.code == 2
    assert "answers 404: is it the address of Prometheus?" in answer.row("prometheus")[1]


def test_a_prometheus_that_hangs_ends_at_the_deadline(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        answer = verify(tmp_path, "--prometheus.url", url, "--deadline", "1s")
    assert answer.code == 2
    assert answer.row("prometheus") == ["unchecked", f"{url} did not answer in time"]


def test_an_answer_that_comes_drop_by_drop_ends_at_the_deadline(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        answer = verify(
            tmp_path, "--prometheus.url", f"http://127.0.0.1:{listener.getsockname()[1]}", "--deadline", "1s"
        )
        thread.join()
    assert answer.code == 2
    assert "did not answer in time" in answer.row("prometheus")[1]


def test_a_token_goes_to_the_named_host_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    with hearing(b"HTTP/1.1 200 OK\r\n\r\n") as (other, stolen):
        away = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n"
        with hearing(away.encode()) as (port, heard):
            url = f"http://127.0.0.1:{port}"
            answer = verify(
                tmp_path, "--prometheus.url", url, "--prometheus.token-file", str(tmp_path / "token")
            )
    assert answer.code == 2
    assert f"redirects to http://127.0.0.1:{other}/" in answer.row("prometheus")[1]
    assert b"Authorization: Bearer s3cret" in heard[0]
    assert not stolen


def test_a_prometheus_that_wants_a_token(tmp_path: Path) -> None:
    with hearing(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n") as (port, _):
        answer = verify(tmp_path, "--prometheus.url", f"http://127.0.0.1:{port}")
    assert answer.code == 2
    assert "--prometheus.token-file" in answer.row("prometheus")[1]


@contextmanager
def hearing(reply: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port that answers every request with these bytes, and what it was asked."""
    heard: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    heard.append(client.recv(65_536))
                    client.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def drip(listener: socket.socket) -> None:
    """One header without end, a letter at a time, as long as somebody listens."""
    client, _ = listener.accept()
    with client, suppress(OSError):
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            client.sendall(b"a")
            time.sleep(0.1)


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "file:///etc/passwd", "http://", "http://a:b@c/", "http://c/?q"]
)
def test_an_address_that_cannot_be_one(tmp_path: Path, url: str) -> None:
    answer = verify(tmp_path, "--prometheus.url", url)
    assert answer.code == 2
    assert "--prometheus.url" in answer.errors


def test_a_prometheus_that_scrapes_nothing(tmp_path: Path) -> None:
    empty = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
    with serving(empty, "application/json") as port:
        answer = verify(tmp_path, "--prometheus.url", f"http://127.0.0.1:{port}")
    assert answer.code == 1
    assert "no target of gputally" in answer.row("targets")[1]


def test_everything_wrong_is_named(sick: tuple[Prometheus, int], tmp_path: Path) -> None:
    server, port = sick
    answer = verify(tmp_path, "--prometheus.url", server.url("/"))
    assert answer.code == 1
    assert answer.row("targets") == ["problem", "3 of 4 are up"]
    words = re.findall(rf"^node 127.0.0.1:{port} +problem +(.+)$", answer.out, re.M)
    assert len(words) == 2
    for trouble in ("s old", "1 GPUs do not answer", "hostPID", "only 40%", "50 J are off"):
        assert trouble in words[0]
    assert "connection refused" in answer.row("node doomed")[1]
    assert answer.row("node resting")[1].startswith("it was told to let go of its GPUs")
    assert "answer" not in answer.row("node resting")[1]
    assert "honor_labels" in answer.row("labels")[1]
    assert answer.row("scraped once")[0] == "problem"


def verify(path: Path, *flags: str) -> Answer:
    """Run it with only this folder's kubectl on the PATH."""
    env = {
        **environment({"PATH": str(path), "HOME": str(path), "no_proxy": "127.0.0.1"}),
        "KUBECONFIG": "/nowhere" if (path / "kubectl").exists() else "",
    }
    done = subprocess.run(
        [*GPUTALLY, "verify", *flags], env=env, capture_output=True, text=True, timeout=PATIENCE
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def well(scene: Scene, path: Path) -> Answer:
    """The first answer without a problem: on a busy machine a scrape may come too late now and then."""

    def look() -> Answer | None:
        answer = verify(path, "--prometheus.url", scene.server.url("/"))
        return answer if answer.code == 0 else None

    return scene.server.until(look)


def fake_kubectl(folder: Path, change: dict[str, Any], script: str | None = None) -> None:
    """A kubectl that answers `get KIND` from files; a kind that is None is not known to the cluster."""
    answers: dict[str, Any] = {
        "nodes": [gpu_node("gpu-1"), gpu_node("gpu-2")],
        "daemonsets.apps": [("daemonset", 2, 2)],
        "podmonitors.monitoring.coreos.com": [("monitor",)],
        "servicemonitors.monitoring.coreos.com": None,
        "scrapeconfigs.monitoring.coreos.com": [],
        "applications.argoproj.io": [("app", "Synced")],
        **change,
    }
    for kind, items in answers.items():
        if items is not None:
            made = [made_of(kind, item) if isinstance(item, tuple) else item for item in items]
            (folder / f"{kind}.json").write_text(json.dumps({"kind": "List", "items": made}))
    cat = shutil.which("cat")
    script = script or (
        f'if [ -f "{folder}/$2.json" ]; then {cat} "{folder}/$2.json"; else '
        'echo "error: the server doesn\'t have a resource type" >&2; exit 1; fi'
    )
    sleep = shutil.which("sleep")
    (folder / "kubectl").write_text(f"#!/bin/sh\n{script.replace('sleep', str(sleep))}\n")
    os.chmod(folder / "kubectl", 0o755)


def made_of(kind: str, item: tuple[Any, ...]) -> dict[str, Any]:
    """An object of the cluster from the few words that matter."""
    named = {"metadata": {"namespace": "monitoring", "name": "gputally"}}
    match item:
        case ("daemonset", wanted, ready):
            return {**named, "status": {"desiredNumberScheduled": wanted, "numberReady": ready}}
        case ("app", sync):
            status = {"sync": {"status": sync}, "health": {"status": "Healthy"}}
            return {"metadata": {"namespace": "argocd", "name": "gputally"}, "status": status}
        case _:
            word = {"podmonitors": "PodMonitor", "servicemonitors": "ServiceMonitor"}[kind.split(".")[0]]
            return {**named, "kind": word}


def gpu_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {}}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}


def plain_node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {}}, "status": {"allocatable": {"cpu": "8"}}}
