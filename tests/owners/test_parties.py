"""Every party over its real protocol: what they tell, and every way in which they fail."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import trustme

from gputally.machine import Access
from gputally.machine.local import LocalMachine
from gputally.machine.messages import (
    LIST_CONTAINERS,
    LIST_PODS,
    LIST_SANDBOXES,
    LIST_V1,
    LIST_V1ALPHA1,
    POD,
    POD_EVENT,
    WATCH_PODS,
)
from gputally.machine.wire import as_pairs, encode
from gputally.model import Owner, Unreadable
from gputally.owners.apiserver import ApiServer
from gputally.owners.cri import Cri, named
from gputally.owners.docker import ContainerNames
from gputally.owners.identity import Identity
from gputally.owners.inquiry import SHORTEST_WATCH, Inquiry, Party
from gputally.owners.kubelet import KubeletPods
from gputally.owners.pod_json import UNREAD, parse
from gputally.owners.podresources import PodResources
from gputally.owners.pods_api import PodsApi
from tests.fakes.background import Background
from tests.fakes.rpc import LIMITED, Answer, DeafServer, RpcServer, at, pods_of
from tests.fakes.web import WebServer, pod_object

DATA = Path(__file__).parent.parent / "data" / "kubelet"
UID = "11111111-2222-3333-4444-555555555555"
CID = "a1" * 32
ALLOCATED = pods_of(("ml", "a", "main", ["GPU-11111111-2222-3333-4444-555555555555"]))


@pytest.fixture
def background() -> Iterator[Background]:
    with Background() as running:
        yield running


@pytest.fixture
def machine() -> LocalMachine:
    return LocalMachine("/nowhere")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def until(look: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def followed(machine: LocalMachine, party: Party, seconds: float) -> None:
    async def follow() -> None:
        inquiry = Inquiry(machine.clock, party)
        inquiry.start()
        await asyncio.sleep(seconds)
        await inquiry.stop()

    run(follow())


def pod_message(uid: str, name: str) -> bytes:
    metadata = {"uid": uid, "name": name, "namespace": "ml", "labels": as_pairs({"app": "x"})}
    status = {"containerStatuses": [{"name": "main", "containerID": f"cri-o://{CID}"}]}
    return encode({"metadata": metadata, "status": status}, POD)


def field(place: int, body: bytes) -> bytes:
    assert len(body) < 2**14
    return bytes([place << 3 | 2, len(body) & 0x7F | 0x80, len(body) >> 7]) + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (LIMITED, "RESOURCE_EXHAUSTED"),
        (None, "no answer in 2 s"),
        (bytes(17 << 20), "more than the 16777216 allowed"),
        (b"\xff\xff\xff\xff", "not protobuf"),
    ],
    ids=["limited", "hangs", "oversized", "garbage"],
)
def test_what_a_kubelet_does_wrong_is_unreadable_and_forgotten_at_the_next_call(
    background: Background, machine: LocalMachine, tmp_path: Path, answer: Answer, said: str
) -> None:
    """F36, F37, F40: each with the list before kept."""
    server = RpcServer(background, tmp_path / "k.sock", {LIST_V1: ALLOCATED})
    resources = PodResources(machine, at(server.path))
    run(resources.ask())
    server.answers[LIST_V1] = answer
    with pytest.raises(Unreadable, match=said):
        run(resources.ask())
    assert resources.allocations
    server.answers[LIST_V1] = ALLOCATED
    run(resources.ask())
    server.stop()


@pytest.mark.parametrize("garbage", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 500, b"\xff" * 500])
def test_a_server_that_speaks_no_grpc_is_unreadable(
    background: Background, machine: LocalMachine, tmp_path: Path, garbage: bytes
) -> None:
    DeafServer(background, tmp_path / "g.sock", garbage)
    with pytest.raises(Unreadable):
        run(PodResources(machine, at(tmp_path / "g.sock")).ask())


def test_a_kubelet_that_restarts_is_found_again_at_its_new_socket(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    """F35: the socket file stays while nobody listens, then it is another inode."""
    server = RpcServer(background, tmp_path / "k.sock", {LIST_V1: ALLOCATED})
    resources = PodResources(machine, at(server.path))
    run(resources.ask())
    server.stop()
    with pytest.raises(Unreadable, match="refused"):
        run(resources.ask())
    server.start()
    server.answers[LIST_V1] = b""
    run(resources.ask())
    assert resources.allocations, "an empty list right after the restart does not count"
    server.restart()
    server.answers[LIST_V1] = pods_of(("ml", "b", "main", ["GPU-11111111-2222-3333-4444-555555555555"]))
    run(resources.ask())
    assert [allocation.pod for allocation in resources.allocations or ()] == ["b"]
    server.stop()


def test_a_call_that_breaks_off_is_made_once_more(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    """F35: as where the kubelet restarts in the middle of it."""
    server = RpcServer(background, tmp_path / "k.sock", {LIST_V1: ALLOCATED})
    resources = PodResources(machine, at(server.path))
    server.breaks_off = 1
    run(resources.ask())
    assert resources.allocations
    assert server.calls == [LIST_V1] * 2
    server.breaks_off = 5
    with pytest.raises(Unreadable):
        run(resources.ask())
    assert server.calls == [LIST_V1] * 4
    server.stop()


def test_an_old_kubelet_is_asked_in_v1alpha1(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    server = RpcServer(background, tmp_path / "k.sock", {LIST_V1ALPHA1: ALLOCATED})
    resources = PodResources(machine, at(server.path))
    run(resources.ask())
    assert resources.allocations
    server.stop()


def test_the_pods_api_lists_and_watches(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    server = RpcServer(background, tmp_path / "p.sock", {LIST_PODS: field(1, pod_message(UID, "a"))})
    party = PodsApi(machine, at(server.path))

    async def watch() -> None:
        await party.ask()
        assert party.pods.by_container[CID].name == "a"
        assert party.pods.by_uid[UID].labels == {"app": "x"}
        following = asyncio.ensure_future(party.follow(asyncio.Event()))
        server.tell(WATCH_PODS, field(2, pod_message("other", "b")))
        await until(lambda: "other" in party.pods.by_uid)
        server.tell(WATCH_PODS, bytes([1 << 3, 2]) + field(2, pod_message(UID, "a")))
        await until(lambda: UID not in party.pods.by_uid)
        await asyncio.to_thread(server.stop)
        with pytest.raises(Unreadable):
            await following

    run(watch())
    assert encode({"type": 2}, POD_EVENT) == bytes([1 << 3, 2])


def test_a_watch_of_the_pods_api_that_ends_at_once_is_not_asked_for_again_and_again(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    """The kubelet's limit is shared by all who ask."""
    server = RpcServer(background, tmp_path / "p.sock", {LIST_PODS: field(1, pod_message(UID, "a"))})
    for _ in range(1000):
        server.tell(WATCH_PODS, None)
    party = PodsApi(machine, at(server.path))
    followed(machine, party, 3)
    assert 2 <= server.calls.count(WATCH_PODS) <= 5
    assert party.pods.by_uid


def test_a_runtime_names_containers_pauses_and_pod_labels(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    """F41: recorded from containerd; what was learnt outlives a restart of the runtime."""
    node = DATA / "v2-systemd"
    answers = {
        LIST_CONTAINERS: (node / "cri_ListContainers.bin").read_bytes(),
        LIST_SANDBOXES: (node / "cri_ListPodSandbox.bin").read_bytes(),
    }
    server = RpcServer(background, tmp_path / "c.sock", answers)
    party = Cri(machine, named(str(server.path)))
    run(party.ask())
    infer = party.pods.by_name["ml", "infer-node-01"]
    assert sorted(infer.containers.values()) == ["", "server"]
    assert infer.labels == {"app": "infer"}
    server.stop()
    with pytest.raises(Unreadable):
        run(party.ask())
    assert party.pods.by_name["ml", "infer-node-01"] == infer


def test_docker_and_podman_are_asked_over_their_sockets(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    server = WebServer(background, socket=str(tmp_path / "d.sock"))
    server.page = json.dumps([{"Id": CID, "Names": ['/up"scaler']}]).encode()
    party = ContainerNames(machine, "docker", str(tmp_path / "d.sock"))
    run(party.ask())
    named = party.named(Identity("docker", container_id=CID), Owner("docker"))
    assert named == Owner("docker", container='up"scaler', workload='up"scaler')
    assert party.named(Identity("podman", container_id=CID), Owner("podman")) is None
    for page in (b"{", b"[3]", b"{}", b'[{"Names": []}]', b"null"):
        server.page = page
        with pytest.raises(Unreadable):
            run(party.ask())
    assert party.names


@pytest.mark.parametrize(
    ("socket", "user"),
    [
        ("/var/run/docker.sock", None),
        ("/run/user/1000/docker.sock", 1000),
        ("/var/run/user/1000/docker.sock", 1000),
    ],
)
def test_an_engine_names_only_containers_of_its_own_user(
    machine: LocalMachine, socket: str, user: int | None
) -> None:
    """Whoever claims the id of another's container gets neither its name nor its series."""
    party = ContainerNames(machine, "docker", socket)
    party.names = {CID: "web"}
    for uid in (None, 1000, 2000):
        claim = Identity("docker", container_id=CID, uid=uid, rootless=None if uid is None else True)
        found = party.named(claim, Owner("docker", container=CID[:12]))
        workload = "web" if uid is None else f"uid-{uid}/web"
        assert found == (Owner("docker", container="web", workload=workload) if uid == user else None)


@pytest.fixture
def api(background: Background, tmp_path: Path) -> WebServer:
    (tmp_path / "token").write_text("secret\n")
    server = WebServer(background, token="secret")
    server.pods = [pod_object("ml", "a", UID, {"main": CID}, owner=("StatefulSet", "a"))]
    return server


def client(machine: LocalMachine, api: WebServer, tmp_path: Path) -> ApiServer:
    return ApiServer(machine, api.url, "node-01", Access(token_file=str(tmp_path / "token")))


def test_the_api_server_is_asked_only_for_this_node(
    machine: LocalMachine, api: WebServer, tmp_path: Path
) -> None:
    party = client(machine, api, tmp_path)
    run(party.ask())
    assert party.pods.by_container[CID].name == "a"
    assert api.requests == ["/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-01&resourceVersion=0"]


def test_labels_and_annotations_may_have_the_names_of_what_is_not_read(
    machine: LocalMachine, api: WebServer, tmp_path: Path
) -> None:
    texts = dict.fromkeys(UNREAD, "x")
    api.pods = [pod_object("ml", "a", UID, {"main": CID}, labels=texts, annotations=texts)]
    party = client(machine, api, tmp_path)
    run(party.ask())
    pod = party.pods.by_uid[UID]
    assert pod.labels == pod.annotations == texts
    item = {"spec": {"containers": []}, "status": {"state": {}, "conditions": [], "phase": "Running"}}
    assert parse(json.dumps(item).encode()) == {"status": {"phase": "Running"}}


def test_a_watch_brings_changes_bookmarks_and_its_end(
    machine: LocalMachine, api: WebServer, tmp_path: Path
) -> None:
    party = client(machine, api, tmp_path)

    async def watch() -> None:
        await party.ask()
        following = asyncio.ensure_future(party.follow(asyncio.Event()))
        await until(lambda: api.watches)
        await asyncio.to_thread(api.tell, "ADDED", pod_object("ml", "b", "other", {"main": "b2" * 32}))
        await until(lambda: "other" in party.pods.by_uid)
        await asyncio.to_thread(api.tell, "BOOKMARK", {"metadata": {"resourceVersion": "9"}})
        await asyncio.to_thread(api.tell, "DELETED", pod_object("ml", "a", UID, {}))
        await until(lambda: UID not in party.pods.by_uid)
        await asyncio.to_thread(api.tell, "ERROR", {"code": 410, "message": "too old resource version"})
        with pytest.raises(Unreadable, match="too old"):
            await following

    run(watch())
    assert "allowWatchBookmarks=true" in api.requests[1]
    assert "resourceVersion=7" in api.requests[1]


def test_a_watch_that_ended_well_goes_on_where_it_was(
    machine: LocalMachine, api: WebServer, tmp_path: Path
) -> None:
    """Bookmarks keep the version young where no pod changes; only an error costs another list."""
    party = client(machine, api, tmp_path)
    changed = pod_object("ml", "b", "other", {"main": "b2" * 32})
    changed["metadata"]["resourceVersion"] = "12"

    async def watch() -> None:
        inquiry = Inquiry(machine.clock, party)
        inquiry.start()
        await until(lambda: api.watches)
        await asyncio.to_thread(api.tell, "BOOKMARK", {"metadata": {"resourceVersion": "9"}})
        await asyncio.sleep(SHORTEST_WATCH)
        await asyncio.to_thread(api.end_watches)
        await until(lambda: len(api.requests) > 2 and api.watches)
        await asyncio.to_thread(api.tell, "ADDED", changed)
        await asyncio.sleep(SHORTEST_WATCH)
        await asyncio.to_thread(api.end_watches)
        await until(lambda: len(api.requests) > 3 and api.watches)
        assert party.pods.by_uid.keys() == {UID, "other"}
        await asyncio.to_thread(api.tell, "ERROR", {"code": 410, "message": "gone"})
        await until(lambda: len(api.requests) > 4)
        await inquiry.stop()

    run(watch())
    asked = [dict(parse_qsl(page.partition("?")[2])) for page in api.requests[:5]]
    assert [(page.get("watch"), page["resourceVersion"]) for page in asked] == [
        (None, "0"),
        ("true", "7"),
        ("true", "9"),
        ("true", "12"),
        (None, "0"),
    ]


def test_after_410_the_list_is_asked_for_again(machine: LocalMachine, api: WebServer, tmp_path: Path) -> None:
    """F42."""
    party = client(machine, api, tmp_path)

    async def watch() -> None:
        inquiry = Inquiry(machine.clock, party)
        inquiry.start()
        await until(lambda: api.watches)
        api.pods = [pod_object("ml", "c", "new", {"main": CID})]
        await asyncio.to_thread(api.tell, "ERROR", {"code": 410, "message": "gone"})
        await until(lambda: "new" in party.pods.by_uid)
        assert inquiry.is_up
        await inquiry.stop()

    run(watch())


def test_a_watch_that_is_refused_is_not_asked_for_again_and_again(
    machine: LocalMachine, api: WebServer, tmp_path: Path
) -> None:
    party = client(machine, api, tmp_path)
    api.watch_status = 403
    followed(machine, party, 5)
    assert len(api.requests) <= 10
    assert party.pods.by_uid


def test_a_watch_that_ends_at_once_is_not_asked_for_again_and_again(
    machine: LocalMachine, api: WebServer, tmp_path: Path
) -> None:
    party = client(machine, api, tmp_path)
    api.watches_end = True
    followed(machine, party, 3)
    assert 4 <= len(api.requests) <= 10
    assert party.pods.by_uid


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_refusal_of_the_api_server_keeps_what_is_known(
    machine: LocalMachine, api: WebServer, tmp_path: Path, status: int
) -> None:
    party = client(machine, api, tmp_path)
    run(party.ask())
    api.status = status
    with pytest.raises(Unreadable, match=f"HTTP {status} .*refused") as refused:
        run(party.ask())
    assert refused.value.code == status
    assert party.pods.by_uid


def test_a_token_that_was_renewed_is_read_anew(machine: LocalMachine, api: WebServer, tmp_path: Path) -> None:
    party = client(machine, api, tmp_path)
    run(party.ask())
    api.token = "renewed"
    with pytest.raises(Unreadable, match="401"):
        run(party.ask())
    (tmp_path / "token").write_text("renewed")
    run(party.ask())
    (tmp_path / "token").unlink()
    with pytest.raises(Unreadable, match="token"):
        run(party.ask())


@pytest.mark.parametrize(
    "page", [b"", b"[]", b"{", b'{"items": 3}', b'{"items": [3]}', b"[" * 100_000, b"\xff"]
)
def test_a_page_that_is_no_list_is_unreadable(
    machine: LocalMachine, api: WebServer, tmp_path: Path, page: bytes
) -> None:
    api.page = page
    with pytest.raises(Unreadable):
        run(client(machine, api, tmp_path).ask())


def test_a_kubelet_is_asked_over_tls_and_must_prove_who_it_is(
    background: Background, machine: LocalMachine, tmp_path: Path
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.crt"))
    server = WebServer(background, tls=context)
    server.page = (DATA / "v2-systemd" / "kubelet_pods_https.json").read_bytes()
    party = KubeletPods(machine, server.url, Access(ca_file=str(tmp_path / "ca.crt")))
    run(party.ask())
    assert party.pods.by_name["ml", "infer-node-01"].labels == {"app": "infer"}
    with pytest.raises(Unreadable, match="certificate"):
        run(KubeletPods(machine, server.url, Access(ca_file=str(tmp_path / "other.crt"))).ask())
    run(KubeletPods(machine, server.url, Access(verify=False)).ask())
    server.page = b'{"kind":"PodList","items":null}'
    with pytest.raises(Unreadable, match="restart"):
        run(party.ask())
    assert party.pods.by_uid
