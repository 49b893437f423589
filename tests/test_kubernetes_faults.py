"""The real command on a node whose kubelet, runtime and API server misbehave (F35 to F44)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputally.machine.messages import (
    CRI_CONTAINERS,
    CRI_SANDBOXES,
    LIST_CONTAINERS,
    LIST_SANDBOXES,
    LIST_V1,
)
from gputally.machine.wire import as_pairs, encode
from tests.daemon import Daemon, Samples, find
from tests.fakes.background import Background
from tests.fakes.nvml import FakeNvml, build
from tests.fakes.rpc import LIMITED, RpcServer, pods_of
from tests.fakes.web import WebServer, pod_object

PACE = ("--interval", "1s", "--tick", "500ms")
PROCESSES = "gputally_workload_processes"
GRANTED = "gputally_workload_granted"
UP = "gputally_source_up"


def uid(number: int) -> str:
    return f"{number:08d}-2222-4333-8444-555555555555"


def container(number: int) -> str:
    return f"{number:064x}"


class Node:
    """A node: GPUs, /proc, logs, a kubelet and an API server, all of them fakes."""

    def __init__(self, folder: Path, library: Path, background: Background) -> None:
        self.folder = folder
        self.nvml = FakeNvml(folder, gpus=2, library=library)
        self.gpu = self.nvml.gpus[0].uuid
        self.kubelet = RpcServer(background, folder / "kubelet/pod-resources/kubelet.sock", {LIST_V1: b""})
        self.api = WebServer(background, token="secret")
        (folder / "token").write_text("secret")
        (folder / "proc").mkdir()
        for name in ("log/pods", "log/containers"):
            (folder / name).mkdir(parents=True)

    def daemon(self, *flags: str, api: bool = False) -> Daemon:
        """The command on this node."""
        own = ["--nvml.library", str(self.nvml.library), "--proc.root", str(self.folder / "proc")]
        own += ["--kubelet.root", str(self.folder / "kubelet"), "--kubernetes.logs", str(self.folder / "log")]
        own += ["--kubernetes.node", "node-01", "--kubernetes.token-file", str(self.folder / "token")]
        own += ["--kubernetes.api", self.api.url if api else "off"]
        return Daemon(*PACE, *own, *flags, env=self.nvml.env)

    def process(self, pid: int, number: int, *, gpu: int = 0, around: str = "") -> None:
        """A process of a container, or of who forges its path inside another, on a GPU."""
        folder = self.folder / "proc" / str(pid)
        folder.mkdir()
        numbers = " ".join(["0"] * 18)
        (folder / "stat").write_text(f"{pid} (python3) S {numbers} {1000 + pid} 0 0\n")
        path = f"kubepods.slice/kubepods-pod{uid(number).replace('-', '_')}.slice"
        (folder / "cgroup").write_text(f"0::{around}/{path}/cri-containerd-{container(number)}.scope\n")
        self.nvml.gpus[gpu].run(pid)

    def log(self, number: int, pod: str, namespace: str = "ml") -> None:
        """The log folder of a container."""
        folder = self.folder / "log/pods" / f"{namespace}_{pod}_{uid(number)}" / "main"
        folder.mkdir(parents=True)
        link = self.folder / "log/containers" / f"{pod}_{namespace}_main-{container(number)}.log"
        link.symlink_to(folder / "0.log")

    def grant(self, *pods: str) -> None:
        """Let the kubelet say that these have the first GPU."""
        self.kubelet.answers[LIST_V1] = pods_of(*(("ml", pod, "main", [self.gpu]) for pod in pods))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def background() -> Iterator[Background]:
    with Background() as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, library: Path, background: Background) -> Node:
    return Node(tmp_path, library, background)


def has(name: str, value: float = 1.0, **labels: str) -> Callable[[Samples], bool]:
    return lambda samples: value in find(samples, name, **labels)


def test_a_kubelet_restart_takes_nobodys_grant_away(node: Node) -> None:
    """F35: down with its socket file left, then back on a new inode with an empty list, then as before."""
    node.process(11, 1)
    node.log(1, "train-0")
    node.grant("train-0")
    with node.daemon() as daemon:
        daemon.wait_for(has(GRANTED, pod="train-0", uuid=node.gpu))
        node.kubelet.stop()
        daemon.wait_for(has(UP, 0.0, source="pod_resources"))
        assert has(GRANTED, pod="train-0")(daemon.metrics())
        node.kubelet.answers[LIST_V1] = b""
        node.kubelet.restart()
        calls = len(node.kubelet.calls)
        daemon.wait_for(has(UP, source="pod_resources"))
        daemon.until(lambda: len(node.kubelet.calls) > calls)
        time.sleep(1.5)
        assert find(daemon.metrics(), GRANTED, pod="train-0") == [1.0]
        node.grant("train-0")
        assert len([line for line in daemon.log if "pod_resources is down" in line["msg"]]) == 1


def test_a_kubelet_that_hangs_delays_no_name_no_scrape_and_not_the_end(node: Node) -> None:
    """F36."""
    node.kubelet.answers[LIST_V1] = None
    node.process(11, 1)
    node.log(1, "train-0")
    with node.daemon() as daemon:
        daemon.wait_for(has(PROCESSES, pod="train-0", container="main"))
        daemon.wait_for(has(UP, 0.0, source="pod_resources"))
        asked = len(node.kubelet.calls)
        for _ in range(20):
            assert find(daemon.metrics(), GRANTED) == []
        assert len(node.kubelet.calls) - asked < 10, "a scrape waited for the kubelet"
        node.process(12, 2)
        node.log(2, "late")
        daemon.wait_for(has(PROCESSES, pod="late"))
        assert daemon.terminate() == 0


def test_a_rate_limit_keeps_the_grants_and_is_not_hammered(node: Node) -> None:
    """F37."""
    node.process(11, 1)
    node.log(1, "train-0")
    node.grant("train-0")
    with node.daemon() as daemon:
        daemon.wait_for(has(GRANTED, pod="train-0"))
        node.kubelet.answers[LIST_V1] = LIMITED
        daemon.wait_for(has(UP, 0.0, source="pod_resources"))
        before = len(node.kubelet.calls)
        time.sleep(5)
        assert len(node.kubelet.calls) - before <= 6
        assert has(GRANTED, pod="train-0")(daemon.metrics())


def test_an_answer_of_any_size_costs_no_memory(node: Node) -> None:
    """F40."""
    node.kubelet.answers[LIST_V1] = bytes(200 << 20)
    node.process(11, 1)
    node.log(1, "train-0")
    with node.daemon() as daemon:
        daemon.wait_for(has(PROCESSES, pod="train-0"))
        samples = daemon.wait_for(has(UP, 0.0, source="pod_resources"))
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        assert peak < 90 << 10
        assert find(samples, "gputally_up") == [1.0]


@pytest.mark.parametrize("status", [0, 401, 403, 429])
def test_without_the_api_server_logs_give_the_names(node: Node, status: int) -> None:
    """F42: 0 is one that hangs."""
    node.api.status = status
    node.process(11, 1)
    node.log(1, "train-0")
    with node.daemon(api=True) as daemon:
        samples = daemon.wait_for(has(PROCESSES, pod="train-0"))
        assert find(samples, UP, source="pod_logs") == [1.0]
        daemon.wait_for(has(UP, 0.0, source="apiserver"))


def test_an_api_server_that_fails_at_the_start_takes_no_workload_away(node: Node) -> None:
    node.api.status = 500
    node.process(11, 1)
    node.log(1, "db-0")
    with node.daemon(api=True) as daemon:
        daemon.wait_for(has(UP, 0.0, source="apiserver"))
        node.api.pods = [
            pod_object("ml", "db-0", uid(1), {"main": container(1)}, owner=("StatefulSet", "db"))
        ]
        node.api.status = 200
        samples = daemon.wait_for(has(PROCESSES, pod="db-0"))
        assert find(samples, PROCESSES, workload="StatefulSet/db") == [1.0]


def test_a_container_that_forges_a_pods_path_is_not_that_pod(node: Node) -> None:
    """F28: whoever owns a subtree of cgroups can name its folders like another's pod and container."""
    node.api.pods = [
        pod_object("ml", "victim", uid(1), {"main": container(1)}, owner=("StatefulSet", "victim"))
    ]
    node.process(11, 1)
    node.process(12, 1, around=f"/system.slice/docker-{container(9)}.scope")
    node.log(1, "victim")
    with node.daemon(api=True) as daemon:
        samples = daemon.wait_for(has(PROCESSES, pod="victim"))
        assert find(samples, PROCESSES, workload=f"docker/{container(9)[:12]}", namespace="") == [1.0]
        assert find(samples, PROCESSES, namespace="ml", pod="victim", container="main") == [1.0]
        assert find(samples, "gputally_workload_info", uid=uid(1)) == [1.0]
        assert find(samples, "gputally_workload_info", container_id=container(1)) == [1.0]


def test_the_api_server_names_workloads_and_a_watch_brings_new_pods(node: Node) -> None:
    node.api.pods = [
        pod_object(
            "ml",
            "llm-abc-x",
            uid(1),
            {"main": container(1)},
            owner=("ReplicaSet", "llm-abc"),
            labels={"pod-template-hash": "abc", "team": "red"},
        ),
    ]
    node.process(11, 1)
    with node.daemon("--kubernetes.pod-labels", "team,te.am", api=True) as daemon:
        samples = daemon.wait_for(has(PROCESSES, workload="Deployment/llm"))
        assert find(samples, "gputally_workload_info", label_team="red", label_te_am="", uid=uid(1)) == [1.0]
        node.process(12, 2)
        daemon.until(lambda: node.api.watches)
        node.api.tell(
            "ADDED", pod_object("ml", "db-0", uid(2), {"main": container(2)}, owner=("StatefulSet", "db"))
        )
        daemon.wait_for(has(PROCESSES, workload="StatefulSet/db"))


def test_a_name_that_comes_late_is_waited_for_and_no_other_series_is_born(node: Node) -> None:
    node.process(11, 1)
    node.log(9, "somebody-else")
    with node.daemon() as daemon:
        daemon.wait_for(has(UP, source="pod_logs"))
        time.sleep(2)
        assert find(daemon.metrics(), PROCESSES) == []
        node.log(1, "train-0")
        samples = daemon.wait_for(has(PROCESSES, pod="train-0"))
        assert len(find(samples, PROCESSES)) == 1


def test_without_anybody_the_uid_is_the_pod(node: Node) -> None:
    (node.folder / "log/pods").rmdir()
    node.process(11, 1)
    with node.daemon() as daemon:
        daemon.wait_for(has(PROCESSES, kind="pod", pod=uid(1)))


def test_the_runtime_is_found_by_the_kubelets_command_line_and_names_pods(
    node: Node, background: Background
) -> None:
    """Nobody else knows the pod; a runtime that goes away takes no name with it."""
    labels = {"io.kubernetes.pod.uid": uid(1), "io.kubernetes.container.name": "main"}
    meta = {"uid": uid(1), "name": "train-0", "namespace": "ml"}
    answers = {
        LIST_CONTAINERS: encode(
            {"containers": [{"id": container(1), "labels": as_pairs(labels)}]}, CRI_CONTAINERS
        ),
        LIST_SANDBOXES: encode({"items": [{"id": container(9), "metadata": meta}]}, CRI_SANDBOXES),
    }
    runtime = RpcServer(background, node.folder / "run/c.sock", answers)
    kubelet = node.folder / "proc/99"
    kubelet.mkdir()
    (kubelet / "comm").write_text("kubelet\n")
    (kubelet / "cmdline").write_text(f"kubelet\0--container-runtime-endpoint=unix://{runtime.path}\0")
    node.process(11, 1)
    with node.daemon("--cri.socket", "auto") as daemon:
        samples = daemon.wait_for(has(PROCESSES, pod="train-0", container="main", namespace="ml"))
        assert find(samples, UP, source="cri") == [1.0]
        found = f"the container runtime is at {runtime.path}, by the kubelet's command line"
        assert [line["msg"] for line in daemon.log if "container runtime" in line["msg"]] == [found]
        runtime.stop(unlink=True)
        samples = daemon.wait_for(has(UP, 0.0, source="cri"))
        assert find(samples, PROCESSES, pod="train-0") == [1.0]


def test_two_processes_of_a_container_are_one_series_and_pods_without_a_grant_are_seen(node: Node) -> None:
    """F43."""
    node.process(11, 1)
    node.process(12, 1)
    node.process(13, 2)
    node.log(1, "train-0")
    node.log(2, "thief")
    node.grant("train-0")
    with node.daemon() as daemon:
        samples = daemon.wait_for(has(PROCESSES, 2.0, pod="train-0"))
        samples = daemon.wait_for(has(GRANTED, 0.0, pod="thief"))
        assert find(samples, GRANTED, pod="train-0") == [1.0]


def test_hostile_labels_change_nobody_elses_series(node: Node) -> None:
    """F28, F30: whatever a tenant writes on a pod of its own stays on that pod."""
    evil = 'x"} 1\ngputally_workload_processes{pod="victim"'
    forged = {"kubernetes.io/config.mirror": uid(1), "kubernetes.io/config.hash": uid(1)}
    labels = {"team": evil, "pod": "victim", "workflows.argoproj.io/workflow": evil}
    node.api.pods = [
        pod_object(
            "ml",
            "victim",
            uid(1),
            {"main": container(1)},
            owner=("StatefulSet", "victim"),
            labels={"team": "red"},
        ),
        pod_object("evil", "forger", uid(2), {"main": container(2)}, labels=labels, annotations=forged),
    ]
    node.process(11, 1)
    node.process(12, 2)
    with node.daemon("--kubernetes.pod-labels", "team,pod", api=True) as daemon:
        samples = daemon.wait_for(has(PROCESSES, pod="forger"))
        assert find(samples, PROCESSES, namespace="ml", pod="victim", workload="StatefulSet/victim") == [1.0]
        assert find(samples, "gputally_workload_info", pod="victim", label_team="red", uid=uid(1)) == [1.0]
        assert find(samples, "gputally_workload_info", pod="forger", label_pod="victim", label_team=evil) == [
            1.0
        ]
        assert len(find(samples, PROCESSES)) == 2
        assert b"canary" not in daemon.get("/metrics").body
