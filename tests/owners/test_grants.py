"""Grants: lists that lie for a while, and devices that two pods claim."""

from __future__ import annotations

import asyncio

import pytest

from gputally.machine.clocks import VirtualClock
from gputally.machine.messages import LIST_V1, LIST_V1ALPHA1
from gputally.machine.simulated import SimulatedMachine
from gputally.model import Device, Grant, Owner, Unreadable
from gputally.owners.grants import Grants
from gputally.owners.names import PodNames
from gputally.owners.podresources import EMPTY_FOR, EVERY, LEAST, STALE_AFTER, PodResources
from gputally.owners.pods import Pod, Pods
from tests.fakes.rpc import at, pods_of
from tests.owners.test_names import Party, names

GPU = "GPU-11111111-2222-3333-4444-555555555555"
NODE = (Device(GPU, 0),)
A, B = ("ml", "a", "main", [GPU]), ("ml", "b", "main", [GPU])
OWNER_A, OWNER_B = Owner("pod", "ml", "a", "main"), Owner("pod", "ml", "b", "main")


class Kubelet(SimulatedMachine):
    """Answers List with what a test gives it."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(100.0))
        self.answers: dict[str, bytes | Unreadable] = {}
        self.asked: list[str] = []

    async def rpc(self, socket: str, method: str, request: bytes) -> bytes:
        self.asked.append(method)
        answer = self.answers.get(method, Unreadable("no such method", 12))
        if isinstance(answer, Unreadable):
            raise answer
        return answer


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


def lister(kubelet: Kubelet) -> PodResources:
    return PodResources(kubelet, at("/k.sock"))


def book(kubelet: Kubelet, *pods: Pod) -> PodNames:
    clock = kubelet.clock
    assert isinstance(clock, VirtualClock)
    return names(clock, Party(*pods))


def listed(kubelet: Kubelet, resources: PodResources, answer: bytes | Unreadable) -> None:
    kubelet.answers[LIST_V1] = answer
    asyncio.run(resources.ask())


def read(
    kubelet: Kubelet, answer: bytes, *pods: Pod, users: set[tuple[Owner, str]] | None = None
) -> list[str]:
    resources = lister(kubelet)
    listed(kubelet, resources, answer)
    found = Grants(resources, book(kubelet, *pods)).read(NODE, lambda: users or set())
    assert found is not None
    return [grant.owner.pod for grant in found]


def later(kubelet: Kubelet, seconds: float) -> None:
    assert isinstance(kubelet.clock, VirtualClock)
    kubelet.clock.jump(kubelet.clock.monotonic() + seconds)


def test_an_empty_list_is_not_believed_until_it_is_repeated(kubelet: Kubelet) -> None:
    """F35: a kubelet that just started answers with nothing, successfully, long after the list before."""
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(A))
    for _ in range(2):
        later(kubelet, EVERY)
        listed(kubelet, resources, b"")
        assert resources.allocations, "the first empty list of a row"
        later(kubelet, EMPTY_FOR - 0.1)
        listed(kubelet, resources, b"")
        assert resources.allocations, "not repeated for long enough"
        listed(kubelet, resources, pods_of(A))
    listed(kubelet, resources, b"")
    later(kubelet, EMPTY_FOR)
    listed(kubelet, resources, b"")
    assert resources.allocations == ()


def test_empty_lists_before_and_after_a_refusal_are_two_rows(kubelet: Kubelet) -> None:
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(A))
    listed(kubelet, resources, b"")
    later(kubelet, EVERY)
    with pytest.raises(Unreadable):
        listed(kubelet, resources, Unreadable("connection refused", 14))
    listed(kubelet, resources, b"")
    assert resources.allocations


def test_a_list_in_doubt_is_soon_asked_for_again(kubelet: Kubelet) -> None:
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(A))
    listed(kubelet, resources, b"")
    asyncio.run(asyncio.wait_for(resources.follow(asyncio.Event()), LEAST + 5))


def test_a_refusal_keeps_the_list_for_a_while(kubelet: Kubelet) -> None:
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(A))
    with pytest.raises(Unreadable):
        listed(kubelet, resources, Unreadable("rejected by rate limit", 8))
    assert resources.allocations
    assert isinstance(kubelet.clock, VirtualClock)
    kubelet.clock.jump(101.0 + STALE_AFTER)
    assert resources.allocations is None


def test_v1alpha1_is_asked_where_v1_is_missing(kubelet: Kubelet) -> None:
    resources = lister(kubelet)
    kubelet.answers[LIST_V1ALPHA1] = pods_of(A)
    asyncio.run(resources.ask())
    asyncio.run(resources.ask())
    assert resources.allocations
    assert kubelet.asked == [LIST_V1, LIST_V1ALPHA1, LIST_V1ALPHA1]


def test_a_pod_that_ended_holds_nothing(kubelet: Kubelet) -> None:
    """F38: kubelets before 1.34 list pods that ended."""
    assert read(kubelet, pods_of(A, B), Pod("u", "ml", "a", over=True), Pod("v", "ml", "b")) == ["b"]


def test_of_two_pods_with_one_device_the_one_on_it_is_right(kubelet: Kubelet) -> None:
    assert read(kubelet, pods_of(A, B), Pod("u", "ml", "b"), users={(OWNER_A, GPU)}) == ["a"]
    assert read(kubelet, pods_of(A, B), Pod("u", "ml", "b")) == ["b"]


def test_shares_of_a_device_are_no_conflict(kubelet: Kubelet) -> None:
    shares = pods_of(("ml", "a", "main", [f"{GPU}::1"]), ("ml", "b", "main", [f"{GPU}::2"]))
    assert read(kubelet, shares) == ["a", "b"]


def test_ids_that_nobody_understands_are_counted_once(kubelet: Kubelet) -> None:
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(("ml", "a", "main", ["mlx5_0", GPU, "GPU-99999999" + GPU[12:]])))
    grants = Grants(resources, book(kubelet))
    assert grants.read(NODE, set) == (Grant(OWNER_A, ""), Grant(OWNER_A, GPU))
    grants.read((*NODE, Device("GPU-new", 1)), set)
    assert grants.losses() == {"device_id_form": 1, "device_id_unknown": 1}
    assert grants.losses() == {}


def test_the_same_list_in_another_order_changes_nothing(kubelet: Kubelet) -> None:
    """A kubelet lists pods and devices in another order each time."""
    other = GPU.replace("1111", "9999")
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(("ml", "a", "main", [GPU, other]), ("ml", "c", "main", ["7"])))
    grants = Grants(resources, book(kubelet))
    before, granted = resources.allocations, grants.read(NODE, set)
    listed(kubelet, resources, pods_of(("ml", "c", "main", ["7"]), ("ml", "a", "main", [other, GPU])))
    assert resources.allocations is before
    assert grants.read(NODE, set) is granted
    listed(kubelet, resources, pods_of(("ml", "a", "main", [GPU, other])))
    assert grants.read(NODE, set) == (Grant(OWNER_A, GPU), Grant(OWNER_A, ""))


def test_grants_follow_gpus_names_and_rivals(kubelet: Kubelet) -> None:
    """What is kept from one reading to the next is kept no longer than what it follows from."""
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(A, B))
    party = Party()
    assert isinstance(kubelet.clock, VirtualClock)
    grants = Grants(resources, names(kubelet.clock, party))
    on_it: set[tuple[Owner, str]] = {(OWNER_A, GPU)}
    assert grants.read(NODE, lambda: on_it) == (Grant(OWNER_A, GPU),)
    on_it = {(OWNER_B, GPU)}
    assert grants.read(NODE, lambda: on_it) == (Grant(OWNER_B, GPU),)
    party.pods = Pods.of([Pod("u", "ml", "b", over=True)])
    assert grants.read(NODE, set) == (Grant(OWNER_A, GPU),)
    assert grants.read((), set) == (Grant(OWNER_A, ""),)


def test_devices_that_are_no_gpus_are_nobodys_business(kubelet: Kubelet) -> None:
    resources = lister(kubelet)
    listed(kubelet, resources, pods_of(("ml", "a", "main", ["0", "mlx5_0", GPU]), resource="rdma/hca"))
    grants = Grants(resources, book(kubelet))
    assert grants.read(NODE, set) == (Grant(OWNER_A, GPU),)
    assert grants.losses() == {}
