"""Finding the kubelet's folder and the runtime's socket, in every form of command line and file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gputally.machine.clocks import VirtualClock
from gputally.machine.local import LocalMachine
from gputally.machine.messages import LIST_CONTAINERS, LIST_SANDBOXES
from gputally.model import Unreadable
from gputally.owners.discovery import Places, discover
from gputally.owners.runtime_socket import SOCKETS, Endpoint
from gputally.owners.whereabouts import FIRST_PAUSE, Kubelet
from tests.fakes.background import Background
from tests.fakes.rpc import RpcServer
from tests.owners.stage import HEX, UID, Stage

DATA = Path(__file__).parent.parent / "data" / "kubelet" / "v2-systemd"
LINE = "the kubelet's command line"


@pytest.fixture
def background() -> Iterator[Background]:
    with Background() as running:
        yield running


class Node:
    """A /proc, and files of its programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "proc").mkdir()

    def run(
        self, pid: int, comm: str, *words: str, cgroup: str = "0::/system.slice/kubelet.service\n"
    ) -> None:
        """A program, with {} in its words for the node's folder."""
        process = self.folder / "proc" / str(pid)
        process.mkdir()
        (process / "comm").write_text(f"{comm}\n")
        (process / "cgroup").write_text(cgroup)
        (process / "cmdline").write_text("\0".join(word.format(self.folder) for word in (comm, *words)))

    def write(self, name: str, text: str | bytes) -> None:
        """A file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.format(self.folder).encode())

    @property
    def kubelet(self) -> Kubelet:
        """As it is looked for here."""
        machine = LocalMachine("/nowhere", proc_root=str(self.folder / "proc"))
        return Kubelet(machine, find_runtime=True)

    def endpoint(self) -> str:
        """The socket that is found, and by whose word; without the node's folder."""
        return str(asyncio.run(self.kubelet.runtime())).replace(str(self.folder), "")

    def root(self) -> str:
        """The kubelet's folder that is found."""
        return asyncio.run(self.kubelet.root()).replace(str(self.folder), "")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("comm", "words", "socket"),
    [
        ("kubelet", ["--container-runtime-endpoint=unix:///run/containerd/containerd.sock"], SOCKETS[0]),
        (
            "kubelet",
            ["--container-runtime-endpoint", "unix:///var/run/crio/crio.sock"],
            "/var/run/crio/crio.sock",
        ),
        ("kubelet", ["-v=2", "--container-runtime-endpoint=/run/cri-dockerd.sock"], "/run/cri-dockerd.sock"),
        ("kubelet", ["--container-runtime-endpoint=unix:/run/a.sock"], "/run/a.sock"),
        ("k3s-server", ["server", "--container-runtime-endpoint", "/run/a.sock"], "/run/a.sock"),
        (
            "k3s-agent",
            ["agent", "--kubelet-arg=container-runtime-endpoint=unix:///run/a.sock"],
            "/run/a.sock",
        ),
        ("k3s-agent", ["--kubelet-arg", "container-runtime-endpoint=unix:///run/a.sock"], "/run/a.sock"),
        ("rke2", ["server", "--kubelet-arg=--container-runtime-endpoint=/run/a.sock"], "/run/a.sock"),
        ("k0s", ["worker", "--container-runtime-endpoint=unix:///run/k0s/containerd.sock"], SOCKETS[3]),
    ],
)
def test_the_runtime_by_the_kubelets_command_line(
    node: Node, comm: str, words: list[str], socket: str
) -> None:
    node.run(100, comm, *words)
    assert node.endpoint() == f"{socket}, by {LINE}"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\ncontainerRuntimeEndpoint: unix:///run/a.sock\nkind: KubeletConfiguration\n",
        'containerRuntimeEndpoint: "unix:///run/a.sock"   # where it is\n',
        "containerRuntimeEndpoint: '/run/a.sock'\r\nother: 1\r\n",
        '{{"kind": "KubeletConfiguration", "containerRuntimeEndpoint": "unix:///run/a.sock"}}',
        '\n {{\n  "containerRuntimeEndpoint": "/run/a.sock"\n}}\n',
    ],
)
def test_the_runtime_by_the_kubelets_configuration(node: Node, text: str) -> None:
    node.run(100, "kubelet", "--config={}/config.yaml", "--containerd=/run/old.sock")
    node.write("config.yaml", text)
    assert node.endpoint() == "/run/a.sock, by /config.yaml"


def test_flags_are_stronger_than_drop_ins_and_those_than_the_configuration(node: Node) -> None:
    words = ["--config", "{}/config.yaml", "--config-dir", "{}/conf.d"]
    node.write("config.yaml", "containerRuntimeEndpoint: /run/c.sock\n")
    node.run(300, "kubelet", *words)
    assert node.endpoint() == "/run/c.sock, by /config.yaml"
    node.write("conf.d/00-defaults.conf", "containerRuntimeEndpoint: /run/0.sock\n")
    node.write("conf.d/10-mine.conf", "containerRuntimeEndpoint: /run/1.sock\n")
    node.write("conf.d/99-not-read.yaml", "containerRuntimeEndpoint: /run/9.sock\n")
    node.write("conf.d/20-other.conf", "maxPods: 250\n")
    assert node.endpoint() == "/run/1.sock, by /conf.d/10-mine.conf"
    node.run(200, "kubelet", *words, "--container-runtime-endpoint=/run/f.sock")
    assert node.endpoint() == f"/run/f.sock, by {LINE}"


def test_k3s_and_rke2_write_what_they_tell_their_kubelet_below_their_data_folder(node: Node) -> None:
    node.run(100, "k3s-server", "server", "--data-dir", "{}/data", "--config={}/k3s.yaml")
    node.write(
        "data/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", '{{"containerRuntimeEndpoint": "/run/a.sock"}}'
    )
    node.write("k3s.yaml", "token: secret\ncontainer-runtime-endpoint: /run/b.sock\n")
    assert node.endpoint() == "/run/a.sock, by /data/agent/etc/kubelet.conf.d/00-k3s-defaults.conf"
    (node.folder / "data/agent/etc/kubelet.conf.d/00-k3s-defaults.conf").unlink()
    assert node.endpoint() == "/run/b.sock, by /k3s.yaml"


def test_an_old_kubelet_tells_its_runtime_by_another_flag(node: Node) -> None:
    node.run(100, "kubelet", "--containerd=/run/containerd/containerd.sock")
    assert node.endpoint() == "/run/containerd/containerd.sock, by the kubelet's --containerd"


def test_microk8s_keeps_the_flags_in_a_file(node: Node) -> None:
    node.run(
        100,
        "kubelite",
        "--kubelet-args-file={}/snap/microk8s/9072/args/kubelet",
        "--start-control-plane=true",
    )
    node.write(
        "snap/microk8s/9072/args/kubelet",
        '--root-dir=${{SNAP_COMMON}}/var/lib/kubelet\n--eviction-hard="memory.available<100Mi"\n'
        "--container-runtime-endpoint=${{SNAP_COMMON}}/run/containerd.sock\n",
    )
    assert node.endpoint() == f"/snap/microk8s/common/run/containerd.sock, by {LINE}"
    assert node.root() == "/snap/microk8s/common/var/lib/kubelet"


def test_a_kubelet_of_that_name_is_asked_before_who_started_it(node: Node) -> None:
    node.run(100, "rke2", "server")
    node.run(101, "k0s", "worker", "--root-dir=/x")
    node.run(
        200, "kubelet", "--root-dir=/y/", "--container-runtime-endpoint=/run/k3s/containerd/containerd.sock"
    )
    assert node.endpoint() == f"/run/k3s/containerd/containerd.sock, by {LINE}"
    assert node.root() == "/y"


def test_a_container_that_calls_itself_kubelet_is_not_believed(node: Node) -> None:
    """Its folder and its socket would be its own, and the names in it lies."""
    words = ["--root-dir=/evil", "--container-runtime-endpoint=/evil.sock"]
    pod = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{HEX}.scope\n"
    node.run(50, "kubelet", *words, cgroup=pod)
    node.run(51, "kubelet", *words, cgroup=f"0::/../../../burstable/pod{UID}/{HEX}\n")
    node.run(52, "kubelet", *words, cgroup=f"0::/../{HEX}\n")
    node.run(90, "kubelet", "--root-dir=/good", "--container-runtime-endpoint=/good.sock")
    assert node.endpoint() == f"/good.sock, by {LINE}"
    assert node.root() == "/good"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_users_process_that_calls_itself_kubelet_is_not_believed(node: Node) -> None:
    """Outside of every container, too, anybody can take a name and a command line."""
    node.run(50, "kubelet", "--root-dir=/evil", cgroup="0::/user.slice/user-1000.slice/session-1.scope\n")
    os.chown(node.folder / "proc/50", 1000, 1000)
    node.run(90, "kubelet", "--root-dir=/good")
    assert node.root() == "/good"


def test_the_kubelet_of_a_node_that_is_a_container_is_believed(node: Node) -> None:
    """As in kind: everybody is in the node's container."""
    node.run(1, "systemd", cgroup=f"0::/docker/{HEX}/init.scope\n")
    node.run(90, "kubelet", "--root-dir=/good", cgroup=f"0::/docker/{HEX}/kubelet.slice/kubelet.service\n")
    assert node.root() == "/good"


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:1234", "npipe:////./pipe/x", "run/a.sock", "unix://"])
def test_an_endpoint_that_is_no_unix_socket_is_said_to_be_none(node: Node, text: str) -> None:
    node.run(100, "kubelet", f"--container-runtime-endpoint={text}")
    with pytest.raises(Unreadable, match="which is no unix socket"):
        node.endpoint()


GARBAGE: Mapping[str, bytes] = {
    "empty": b"",
    "bytes": bytes(range(256)) * 10,
    "brace": b"{" * 100_000,
    "list": b"[1]",
    "number": b'{"containerRuntimeEndpoint": 3}',
    "nested": b"a:\n  containerRuntimeEndpoint: /run/a.sock\n",
    "nothing": b"containerRuntimeEndpoint:\n",
    "huge": b"containerRuntimeEndpoint: /run/a.sock\n" + b"#" * (1 << 20),
}


@pytest.mark.parametrize("name", [*GARBAGE, "missing", "folder", "pipe"])
def test_a_configuration_that_cannot_be_read_is_passed_over_and_not_waited_for(node: Node, name: str) -> None:
    node.run(100, "kubelet", "--config={}/config", "--containerd=/run/b.sock")
    if name in GARBAGE:
        node.write("config", GARBAGE[name])
    elif name == "folder":
        (node.folder / "config").mkdir()
    elif name == "pipe":
        os.mkfifo(node.folder / "config")
    assert node.endpoint() == "/run/b.sock, by the kubelet's --containerd"


class Usual(Stage):
    """A node without a kubelet's command line, where sockets are at their places."""

    def __init__(self, *sockets: str) -> None:
        super().__init__()
        self.sockets = set(sockets)
        self.looks = 0

    def folder(self, path: str) -> Mapping[str, str]:
        self.looks += path == "/var/lib/kubelet/pod-resources"
        if names := {
            socket.rpartition("/")[2]: "" for socket in self.sockets if socket.rpartition("/")[0] == path
        }:
            return names
        raise Unreadable(f"{path}: not there")


@pytest.mark.parametrize("socket", SOCKETS)
def test_without_a_word_from_the_kubelet_sockets_are_where_they_usually_are(socket: str) -> None:
    kubelet = Kubelet(Usual(socket), find_runtime=True)
    assert asyncio.run(kubelet.runtime()) == Endpoint(socket, "its usual place")


def test_what_is_not_there_is_looked_for_again_but_not_often() -> None:
    async def scene() -> None:
        node = Usual()
        assert isinstance(node.clock, VirtualClock)
        kubelet = Kubelet(node, find_runtime=True)
        for _ in range(5):
            with pytest.raises(Unreadable, match="no socket of a container runtime"):
                await kubelet.runtime()
            assert await kubelet.root() == "/var/lib/kubelet"
        assert (node.looks, kubelet.is_there) == (1, False)
        node.sockets = {SOCKETS[0], "/var/lib/kubelet/pod-resources/kubelet.sock"}
        node.clock.jump(1000.0 + FIRST_PAUSE)
        assert (await kubelet.runtime()).socket == SOCKETS[0]
        assert kubelet.is_there
        node.clock.jump(100_000.0)
        await kubelet.runtime()
        assert node.looks == 2
        node.sockets = {SOCKETS[1]}
        assert (await kubelet.runtime(again=True)).socket == SOCKETS[1]

    asyncio.run(scene())


def test_a_folder_that_was_guessed_is_given_up_for_what_a_kubelet_tells() -> None:
    """As where gputally starts before the kubelet does, on a node that has another one's folder."""

    class Late(Usual):
        told: Mapping[str, str] | None = None

        def flags(self, commands: Sequence[str], wanted: Collection[str]) -> Mapping[str, str]:
            self.asked["flags"] += 1
            if self.told is None:
                raise Unreadable("no process runs kubelet")
            return self.told

    async def scene() -> None:
        node = Late("/var/lib/kubelet/pod-resources/kubelet.sock")
        assert isinstance(node.clock, VirtualClock)
        kubelet = Kubelet(node)
        assert await kubelet.root() == "/var/lib/kubelet"
        node.told = {"root-dir": "/data/kubelet"}
        assert await kubelet.root() == "/var/lib/kubelet", "not so soon"
        node.clock.jump(1000.0 + FIRST_PAUSE)
        assert await kubelet.root() == "/data/kubelet"
        node.clock.jump(100_000.0)
        assert await kubelet.root() == "/data/kubelet"
        assert node.asked["flags"] == 2

    asyncio.run(scene())


def test_a_runtime_that_was_found_names_pods_and_says_where_it_is(
    background: Background, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {
        LIST_CONTAINERS: (DATA / "cri_ListContainers.bin").read_bytes(),
        LIST_SANDBOXES: (DATA / "cri_ListPodSandbox.bin").read_bytes(),
    }
    server = RpcServer(background, node.folder / "c.sock", answers)
    node.run(100, "kubelet", "--root-dir={}/kubelet", "--container-runtime-endpoint=unix://{}/c.sock")
    machine = LocalMachine("/nowhere", proc_root=str(node.folder / "proc"))
    caplog.set_level("INFO")

    async def scene() -> None:
        outside = discover(machine, Places(cri_socket="auto", logs=str(node.folder), api="off"))
        await outside.refresh()
        health = {h.source: h for h in outside.health()}
        assert health["cri"].up
        assert health["cri"].place == f"{server.path}, by {LINE}"
        assert f"the container runtime is at {server.path}, by {LINE}" in caplog.text
        await asyncio.to_thread(server.stop, unlink=True)
        await outside.refresh()
        down = next(h for h in outside.health() if h.source == "cri")
        assert (down.up, down.reason) == (False, f"{server.path}: not there, or not for us to see")

    asyncio.run(scene())


def test_nobody_looks_for_a_runtime_that_is_not_wanted(node: Node) -> None:
    node.run(100, "kubelet", "--container-runtime-endpoint=/run/a.sock")
    machine = LocalMachine("/nowhere", proc_root=str(node.folder / "proc"))
    outside = discover(machine, Places(logs=str(node.folder), api="off"))
    asyncio.run(outside.refresh())
    assert "cri" not in {health.source for health in outside.health()}
