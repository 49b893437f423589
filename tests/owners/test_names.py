"""Names at birth: what is waited for, what is fixed, and what nobody may forge."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from gputally.machine.clocks import VirtualClock
from gputally.model import PENDING, UNKNOWN, UNNAMED, Detail, Owner, Process, ProcessKey, Unreadable
from gputally.owners.cgroup import parse
from gputally.owners.host import owner_of
from gputally.owners.identity import Identity
from gputally.owners.inquiry import Inquiry
from gputally.owners.logs import read
from gputally.owners.names import NAMED_WITHIN, WHOLE_WITHIN, PodNames, Source
from gputally.owners.outside import Outside, Shown
from gputally.owners.pods import Pod, Pods, Reference, from_object
from tests.fakes.web import pod_object

UID, OTHER_UID = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
CID, OTHER_CID = "a1" * 32, "b2" * 32
WHO = Identity("pod", UID, CID)
POD = Pod(UID, "ml", "train-0", {CID: "main"}, Reference("StatefulSet", "train"))
PLAIN = Pod(UID, "ml", "train-0", {CID: "main"})
NAMED = Owner("pod", "ml", "train-0", "main", "StatefulSet/train")
PATHS = (
    f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CID}.scope",
    f"/kubepods/burstable/pod{UID}/{CID}",
    f"/kubepods/burstable/pod{UID}",
)
AROUND = (
    (f"/system.slice/docker-{OTHER_CID}.scope", f"docker/{OTHER_CID[:12]}"),
    ("/lxc.payload.guest", "lxc/guest"),
    ("/machine.slice/machine-x.scope", "nspawn/x"),
)


class Party:
    """Somebody who knows what a test tells it."""

    def __init__(self, *pods: Pod, tells_workload: bool = True, up: bool = True) -> None:
        self.name = "party"
        self.tells_workload = tells_workload
        self.pods = Pods.of(pods)
        self.up = up

    async def ask(self) -> None:
        if not self.up:
            raise Unreadable("down")

    async def follow(self, hurry: asyncio.Event) -> None:
        await hurry.wait()


def names(clock: VirtualClock, *parties: Party) -> PodNames:
    return PodNames(clock, asked(clock, *parties))


def asked(clock: VirtualClock, *parties: Party) -> list[Source]:
    sources = [Source(party, Inquiry(clock, party)) for party in parties]
    ask(*sources)
    return sources


def ask(*sources: Source) -> None:
    for source in sources:
        asyncio.run(source.inquiry.once())


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


def test_a_whole_name_is_given_at_once(clock: VirtualClock) -> None:
    assert names(clock, Party(POD)).name(WHO) == NAMED


def test_a_name_without_workload_waits_for_who_may_tell_it(clock: VirtualClock) -> None:
    rich, logs = Party(), Party(PLAIN, tells_workload=False)
    book = names(clock, rich, logs)
    assert book.name(WHO) is PENDING
    rich.pods = Pods.of([POD])
    assert book.name(WHO) == NAMED


def test_a_workload_is_waited_for_though_who_tells_it_failed_once(clock: VirtualClock) -> None:
    rich, logs = Party(up=False), Party(PLAIN, tells_workload=False)
    sources = asked(clock, rich, logs)
    book = PodNames(clock, sources)
    assert book.name(WHO) is PENDING
    rich.up, rich.pods = True, Pods.of([POD])
    ask(*sources)
    assert book.name(WHO) == NAMED


def test_a_name_without_workload_is_taken_at_once_where_nobody_else_ever_answers(clock: VirtualClock) -> None:
    """As on a node that cannot reach the API server: only who is there at the start waits for it."""
    other = Pod(OTHER_UID, "ml", "train-1", {OTHER_CID: "main"})
    sources = asked(clock, Party(up=False), Party(PLAIN, other, tells_workload=False))
    book = PodNames(clock, sources)
    assert book.name(WHO) is PENDING
    clock.jump(100.0 + WHOLE_WITHIN)
    ask(*sources)
    assert book.name(WHO) == Owner("pod", "ml", "train-0", "main")
    assert book.name(Identity("pod", OTHER_UID, OTHER_CID)) == Owner("pod", "ml", "train-1", "main")


def test_a_workload_is_waited_for_where_who_tells_it_answered_long_ago(clock: VirtualClock) -> None:
    rich, logs = Party(), Party(PLAIN, tells_workload=False)
    sources = asked(clock, rich, logs)
    book = PodNames(clock, sources)
    rich.up = False
    ask(*sources)
    clock.jump(5_000.0)
    ask(*sources)
    assert book.name(WHO) is PENDING
    clock.jump(5_000.0 + WHOLE_WITHIN)
    assert book.name(WHO) == Owner("pod", "ml", "train-0", "main")


def test_who_need_not_be_there_and_never_was_is_not_waited_for(clock: VirtualClock) -> None:
    rich, logs = Party(up=False), Party(PLAIN, tells_workload=False)
    absent = Source(rich, Inquiry(clock, rich, expected=lambda: False))
    ask(absent)
    assert PodNames(clock, [absent, *asked(clock, logs)]).name(WHO) == Owner("pod", "ml", "train-0", "main")
    assert PodNames(clock, [absent]).name(WHO) == Owner("pod", pod=UID)


def test_who_is_asked_only_once_is_not_waited_for(clock: VirtualClock) -> None:
    rich, logs = Party(up=False), Party(PLAIN, tells_workload=False)
    sources = [Source(party, Inquiry(clock, party)) for party in (rich, logs)]
    outside = Outside(inquiries=[source.inquiry for source in sources], pods=PodNames(clock, sources))
    asyncio.run(outside.refresh())
    process = Process(ProcessKey(1, 1), "train", f"0::{PATHS[0]}\n")
    assert outside.refine(process, Owner("pod", pod=UID)) == Owner("pod", "ml", "train-0", "main")


def test_what_was_said_once_stays_said(clock: VirtualClock) -> None:
    rich, logs = Party(up=False), Party(PLAIN, tells_workload=False)
    book = names(clock, rich, logs)
    clock.jump(100.0 + WHOLE_WITHIN)
    first = book.name(WHO)
    assert first == Owner("pod", "ml", "train-0", "main")
    rich.pods = Pods.of([POD])
    assert book.name(WHO) == first


def test_a_name_that_does_not_come_is_unnamed_after_thirty_seconds_and_may_still_come(
    clock: VirtualClock,
) -> None:
    party = Party()
    book = names(clock, party)
    assert book.name(WHO) is PENDING
    clock.jump(129.9)
    assert book.name(WHO) is PENDING
    clock.jump(130.1)
    assert book.name(WHO) is UNNAMED
    party.pods = Pods.of([POD])
    assert book.name(WHO) == NAMED


def test_without_anybody_the_uid_is_the_name_for_life(clock: VirtualClock) -> None:
    """Whoever does not answer at the start is waited for; whoever never did is not waited for by the next."""
    party = Party(up=False)
    book = names(clock, party)
    assert book.name(WHO) is PENDING
    clock.jump(100.0 + NAMED_WITHIN)
    assert book.name(WHO) == Owner("pod", pod=UID)
    assert book.name(Identity("pod", OTHER_UID, OTHER_CID)) == Owner("pod", pod=OTHER_UID)
    party.pods = Pods.of([POD])
    assert book.name(WHO) == Owner("pod", pod=UID)


def test_a_pod_that_starts_while_the_only_source_fails_is_named_when_that_answers_again(
    clock: VirtualClock,
) -> None:
    party = Party()
    sources = asked(clock, party)
    book = PodNames(clock, sources)
    clock.jump(5_000.0)
    party.up = False
    ask(*sources)
    assert book.name(WHO) is PENDING
    clock.jump(5_000.0 + NAMED_WITHIN - 0.1)
    assert book.name(WHO) is PENDING
    party.up, party.pods = True, Pods.of([POD])
    ask(*sources)
    assert book.name(WHO) == NAMED


def test_who_has_not_yet_been_asked_is_waited_for(clock: VirtualClock) -> None:
    party = Party()
    assert PodNames(clock, [Source(party, Inquiry(clock, party))]).name(WHO) is PENDING


def test_a_pause_process_is_its_pods_without_a_container(clock: VirtualClock) -> None:
    book = names(clock, Party(POD))
    sandbox = Identity("pod", UID, OTHER_CID)
    assert book.name(sandbox) is PENDING
    clock.jump(111.0)
    assert book.name(sandbox) == Owner("pod", "ml", "train-0", "", "StatefulSet/train")


def test_a_pod_made_again_under_its_name_is_the_same_owner_with_new_details(clock: VirtualClock) -> None:
    """F39: pod-resources and series go by name, the uid tells the two apart."""
    again = Pod(OTHER_UID, "ml", "train-0", {OTHER_CID: "main"}, Reference("StatefulSet", "train"))
    party = Party(POD)
    book = names(clock, party)
    assert book.name(WHO) == NAMED
    party.pods = Pods.of([again])
    other = Identity("pod", OTHER_UID, OTHER_CID)
    assert book.name(other) == NAMED
    found = book.find(other)
    assert found is not None
    assert found.uid == OTHER_UID


def test_a_container_that_the_kernel_has_in_another_pod_is_nobodys(clock: VirtualClock) -> None:
    book = names(clock, Party(Pod(OTHER_UID, "ml", "victim", {CID: "main"})))
    assert book.name(WHO) is UNKNOWN


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("around", "workload"), AROUND)
@pytest.mark.parametrize("up", [True, False])
def test_a_pod_that_a_container_makes_below_itself_is_not_the_pod_of_these_ids(
    clock: VirtualClock, around: str, workload: str, path: str, up: bool
) -> None:
    """Whoever owns a subtree can give its folders the names of another's pod and container."""
    forged, real = parse(f"0::{around}{path}\n"), parse(f"0::{path}\n")
    own = Owner("pod", pod=f"{workload}/{UID}", workload=workload)
    book = names(clock, Party(POD, up=up), Party(PLAIN, tells_workload=False, up=up))
    assert book.name(forged) == own == owner_of(forged, "train")
    clock.jump(115.0)
    assert book.name(real)[:3] == ("pod", "ml", "train-0")
    assert book.name(forged) == own
    assert book.find(forged) is None
    assert book.find(real) is not None


def test_a_pod_inside_a_container_shares_no_series_with_a_pod_that_nobody_names(clock: VirtualClock) -> None:
    """Some dialects have no workload, and tell owners apart by namespace and pod alone."""
    book = names(clock, Party(up=False))
    clock.jump(100.0 + NAMED_WITHIN)
    inside, own = (book.name(parse(f"0::{around}{PATHS[0]}\n")) for around in (AROUND[0][0], ""))
    assert own == Owner("pod", pod=UID)
    assert inside[:3] != own[:3]


def test_the_info_of_a_pod_inside_a_container_joins_no_pod_of_ours(clock: VirtualClock) -> None:
    around, workload = AROUND[0]
    pod = Pod(UID, "ml", "train-0", {CID: "main"}, labels={"team": "red"})
    outside = Outside(pods=names(clock, Party(pod)), shown=Shown(("team",), node="node-01"))
    forged = Process(ProcessKey(1, 1), "train", f"0::{around}{PATHS[0]}\n")
    real = Process(ProcessKey(2, 1), "train", f"0::{PATHS[0]}\n")
    owners = {process.key: outside.refine(process, Owner("pod", pod=UID)) for process in (forged, real)}
    outside.look((), {1: forged, 2: real}, owners)
    assert outside.details == {
        Owner("pod", pod=f"{workload}/{UID}", workload=workload): Detail(),
        owners[real.key]: Detail(UID, CID, {"team": "red"}, node="node-01"),
    }


def test_a_monitor_that_a_container_makes_below_itself_is_not_the_hosts() -> None:
    around, workload = AROUND[0]
    forged = parse(f"0::{around}/kubepods/pod{UID}/crio-conmon-{CID}\n")
    assert owner_of(forged, "Xorg") == Owner("pod", pod=f"{workload}/{UID}", workload=workload)


def mirror(containers: Mapping[str, str], hash_: str, **more: str) -> Pod:
    notes = {"kubernetes.io/config.mirror": hash_, "kubernetes.io/config.hash": hash_, **more}
    return from_object(
        pod_object(
            "kube-system", "static-node-01", OTHER_UID, containers, owner=("Node", "n"), annotations=notes
        )
    )


def test_a_static_pod_is_joined_by_its_hash_and_shown_with_the_api_servers_uid(clock: VirtualClock) -> None:
    static = Identity("pod", "70e7fa5dfc33037d06dd13e781670299", CID)
    book = names(clock, Party(mirror({"main": CID}, "70e7fa5dfc33037d06dd13e781670299")))
    assert book.name(static) == Owner("pod", "kube-system", "static-node-01", "main", "Pod/static-node-01")
    found = book.find(static)
    assert found is not None
    assert found.uid == OTHER_UID


def test_a_forged_mirror_annotation_does_not_take_over_another_pods_processes(clock: VirtualClock) -> None:
    """F30: anybody may write annotations on a pod of their own; only the kubelet writes statuses."""
    forged = from_object(
        pod_object(
            "evil",
            "forger",
            OTHER_UID,
            {"main": OTHER_CID},
            annotations={"kubernetes.io/config.mirror": UID, "kubernetes.io/config.hash": UID},
        )
    )
    book = names(clock, Party(forged))
    assert book.name(WHO) is PENDING
    clock.jump(115.0)
    assert book.name(WHO) is PENDING
    assert names(clock, Party(forged, POD)).name(WHO) == NAMED
    assert names(clock, Party(POD, forged)).name(WHO) == NAMED


def test_of_two_pods_with_one_name_the_living_one_is_found(clock: VirtualClock) -> None:
    ended = Pod(OTHER_UID, "ml", "train-0", {OTHER_CID: "main"}, over=True)
    for pods in ((POD, ended), (ended, POD)):
        assert names(clock, Party(*pods)).pod("ml", "train-0") == POD


def test_a_link_that_was_cut_names_the_container_whose_id_begins_so(clock: VirtualClock) -> None:
    """The kubelet cuts names to 255 bytes, and the id is their end."""
    pod, namespace, container = "p" * 150, "n" * 40, "trainer"
    folder = f"{namespace}_{pod}_{UID}"

    def book(*containers: tuple[str, str]) -> PodNames:
        links = {
            f"{pod}_{namespace}_{name}-{number}"[:251] + ".log": f"/var/log/pods/{folder}/{name}/0.log"
            for name, number in containers
        }
        assert {len(link) for link in links} == {255}
        return names(clock, Party(*read({folder: ""}, links), tells_workload=False))

    alone = book((container, CID), ("sidecar", OTHER_CID))
    assert alone.name(WHO) == Owner("pod", namespace, pod, container)
    assert alone.name(Identity("pod", UID, OTHER_CID)) == Owner("pod", namespace, pod, "sidecar")
    assert alone.name(Identity("pod", UID, "c3" * 32)) is PENDING
    twins = book((container, CID), ("sidecar", CID[:63] + "0"))
    assert twins.name(WHO) is PENDING
    too_long = book(("t" * 56, CID))
    assert too_long.name(WHO) is PENDING


def test_log_folders_name_pods_and_links_name_containers() -> None:
    folders = {f"ml_train-0_{UID}": "", "lost+found": "", "a_b": "", f"x_y_z_{UID}": ""}
    target = f"/var/log/pods/ml_train-0_{UID}/main-x/0.log"
    links = {
        f"train-0_ml_main-x-{CID}.log": target,
        f"train-0_ml_cut-{CID[:40]}.log": target,
        f"train-0_ml_main-x-{OTHER_CID[:40]}.log": target,
        f"train-0_ml_main-{OTHER_CID}.log": "/elsewhere",
        "notes.txt": "",
    }
    assert read(folders, links) == [Pod(UID, "ml", "train-0", {CID: "main-x"})]
