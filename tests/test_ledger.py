"""Cases of the ledger: late names, series born at zero, ended workloads, counters that lie, idle power."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputally.attribute import Rules
from gputally.ledger import Ledger
from gputally.model import (
    PENDING,
    UNNAMED,
    Activity,
    Device,
    Grant,
    Holder,
    Instance,
    Owner,
    Process,
    ProcessKey,
    Snapshot,
    State,
)
from gputally.tally import Gpu, Tally, Workload

TRAIN, SERVE = Owner("pod", "ml", "train-0", "main"), Owner("pod", "search", "serve-0", "main")
KEYS = {1: ProcessKey(1, 11), 2: ProcessKey(2, 22)}
PROCESSES = {pid: Process(key, f"p{pid}", "") for pid, key in KEYS.items()}


class Node:
    """One GPU of 200 W with two processes; the test says what happens in each second."""

    def __init__(self, late: bool = False, **settings: object) -> None:
        self.ledger = Ledger("test", **settings)  # type: ignore[arg-type]
        self.now = 100.0
        self.energy_uj = 10**9
        self.owners = {KEYS[1]: TRAIN, KEYS[2]: PENDING if late else SERVE}
        self.told: dict[ProcessKey, Owner] = {}
        self.busy: dict[int, float] = {1: 0.6, 2: 0.4}
        self.device = Device("GPU-1", 0, power_watts=200.0, power_limit_watts=700.0)
        self.grants: tuple[Grant, ...] | None = None
        self.tick(joules=0)

    def tick(
        self, joules: float = 200.0, seconds: float = 1.0, counter: bool = True, listed: bool = True
    ) -> Tally:
        self.now += seconds
        self.energy_uj += round(joules * 1e6)
        device = self.device
        if device.state is State.OK:
            device = replace(
                device,
                read_at=self.now,
                gauges_at=self.now,
                energy_uj=self.energy_uj if counter else None,
                holders=tuple(Holder(pid, 2**30) for pid in self.busy)
                if device.holders is None
                else device.holders,
                activities=None
                if device.instances is not None
                else tuple(Activity(pid, 0, ratio) for pid, ratio in self.busy.items() if ratio),
                activity_seconds=seconds,
            )
        if not listed:
            device = replace(device, holders=None)
        if self.owners != self.told:  # as long as nobody is another one, the mapping is the same
            self.told = dict(self.owners)
        snapshot = Snapshot(self.now, self.now, (device,), PROCESSES, self.told, grants=self.grants)
        self.ledger.post(snapshot)
        return self.ledger.tally(snapshot)


def gpu(tally: Tally) -> Gpu:
    return tally.gpus[0]


def workload(tally: Tally, owner: Owner, mig: str = "") -> Workload:
    return next(use for use in tally.workloads if use.owner == owner and use.mig == mig)


def test_two_pods_on_one_gpu_share_what_it_used_and_no_more() -> None:
    tally = Node().tick(joules=200)
    assert workload(tally, TRAIN).energy_uj == 120_000_000
    assert workload(tally, SERVE).energy_uj == 80_000_000
    assert workload(tally, TRAIN).estimated_uj == 120_000_000
    assert workload(tally, TRAIN).sm_utilization_ratio == pytest.approx(0.6)


def test_alone_it_is_measured_and_not_estimated() -> None:
    node = Node()
    node.busy = {1: 0.3}
    tally = node.tick(joules=200)
    assert workload(tally, TRAIN).energy_uj == 200_000_000
    assert workload(tally, TRAIN).estimated_uj == 0


def test_who_neither_works_nor_holds_a_context_is_charged_nothing() -> None:
    node = Node()
    node.busy = {1: 0.6}
    assert workload(node.tick(), SERVE).energy_uj == 0


def test_if_nobody_was_busy_the_holders_share() -> None:
    node = Node()
    node.busy = {1: 0.0, 2: 0.0}
    tally = node.tick(joules=100)
    assert workload(tally, TRAIN).energy_uj == workload(tally, SERVE).energy_uj == 50_000_000


def test_without_any_process_it_is_nobodys() -> None:
    node = Node()
    node.busy = {}
    assert gpu(node.tick(joules=60)).unattributed_uj["no_process"] == 60_000_000


def test_a_process_that_cannot_be_read_weighs_and_is_unknown() -> None:
    node = Node()
    node.busy = {1: 0.6, 99: 0.4}
    tally = node.tick(joules=200)
    assert workload(tally, TRAIN).energy_uj == 120_000_000
    assert gpu(tally).unattributed_uj["unknown_process"] == 80_000_000


def test_a_name_that_comes_late_gets_what_waited_for_it() -> None:
    node = Node(late=True)
    tally = node.tick()
    assert gpu(tally).pending_uj == 80_000_000
    assert all(use.owner != SERVE for use in tally.workloads)
    node.owners[KEYS[2]] = SERVE
    tally = node.tick()
    assert gpu(tally).pending_uj == 0
    assert workload(tally, SERVE).energy_uj == 160_000_000


def test_a_name_that_does_not_come_is_unnamed_after_a_while() -> None:
    node = Node()
    node.owners[KEYS[2]] = PENDING
    for _ in range(32):
        tally = node.tick()
    assert gpu(tally).unattributed_uj["unnamed"] >= 31 * 80_000_000
    node.owners[KEYS[2]] = UNNAMED
    assert gpu(node.tick()).pending_uj == 0


def test_a_new_series_waits_at_zero_until_it_was_scraped() -> None:
    node = Node(scraped=True)
    tally = node.tick()
    assert workload(tally, TRAIN).energy_uj == 0
    assert gpu(tally).pending_uj == 200_000_000
    assert {n.energy_uj for n in tally.namespaces} == {0}
    node.ledger.was_scraped(node.now)
    tally = node.tick()
    assert workload(tally, TRAIN).energy_uj == 240_000_000
    assert gpu(tally).pending_uj == 0


def test_without_a_scraper_it_waits_no_longer_than_for_a_name() -> None:
    node = Node(scraped=True)
    for _ in range(32):
        tally = node.tick()
    assert gpu(tally).pending_uj == 0


def test_a_workload_that_ended_keeps_its_totals_for_the_retention_time() -> None:
    node = Node(retention=10.0)
    node.tick()
    node.busy = {2: 0.4}
    tally = node.tick()
    assert workload(tally, TRAIN).active is False
    assert workload(tally, TRAIN).energy_uj == 120_000_000
    assert workload(tally, TRAIN).memory_used_bytes is None
    for _ in range(12):
        tally = node.tick()
    assert all(use.owner != TRAIN for use in tally.workloads)
    (ml,) = [n for n in tally.namespaces if n.namespace == "ml"]
    assert ml.energy_uj == 120_000_000


def test_while_a_gpu_hangs_nobody_is_said_to_have_left_it() -> None:
    node = Node(retention=5.0)
    node.tick()
    node.device = replace(node.device, state=State.HUNG)
    for _ in range(10):
        tally = node.tick()
    assert workload(tally, TRAIN).active is None
    assert workload(tally, TRAIN).energy_uj == 120_000_000
    assert not gpu(tally).fresh


def test_idle_power_is_configured_and_stays_with_the_gpu() -> None:
    tally = Node(rules=Rules(idle_watts=50.0)).tick(joules=200)
    assert gpu(tally).idle_uj == 50_000_000
    assert workload(tally, TRAIN).energy_uj == 90_000_000
    assert workload(tally, TRAIN).idle_uj is None
    assert (gpu(tally).idle_watts, gpu(tally).idle_source) == (50.0, "configured")


def test_idle_power_is_learned_while_nobody_holds_a_context() -> None:
    node = Node()
    node.busy = {}
    for _ in range(45):
        tally = node.tick(joules=60)
    assert gpu(tally).idle_watts == pytest.approx(60.0)
    assert gpu(tally).idle_source == "learned"
    assert gpu(node.tick(joules=60)).idle_uj > 0


def test_equal_idle_policy_charges_holders_alike() -> None:
    tally = Node(rules=Rules("equal", 50.0)).tick(joules=200)
    assert workload(tally, TRAIN).idle_uj == workload(tally, SERVE).idle_uj == 25_000_000
    assert gpu(tally).idle_uj == 0


def test_allocation_idle_policy_charges_grants_also_unused_ones() -> None:
    node = Node(rules=Rules("allocation", 50.0))
    node.busy = {}
    node.grants = (Grant(SERVE, "GPU-1"),)
    tally = node.tick(joules=60)
    assert workload(tally, SERVE).idle_uj == 50_000_000
    assert gpu(tally).idle_uj == 0


def test_allocation_leaves_slices_that_nobody_was_granted_with_the_gpu() -> None:
    node = Node(rules=Rules("allocation", 70.0))
    node.device = replace(
        node.device,
        instances=(Instance("MIG-a", 1, 0, "3g.40gb", 3),),
        slices=7,
        holders=(Holder(1, 5, "MIG-a"),),
    )
    node.grants = (Grant(TRAIN, "GPU-1", "MIG-a"),)
    node.tick(joules=0)
    tally = node.tick(joules=100)
    assert workload(tally, TRAIN, "MIG-a").idle_uj == 30_000_000
    assert gpu(tally).idle_uj == 40_000_000


def test_mig_instances_weigh_their_slices_and_their_activity() -> None:
    node = Node()
    instances = (Instance("MIG-a", 1, 0, "3g.40gb", 3), Instance("MIG-b", 2, 0, "4g.40gb", 4))
    held = (Holder(1, 5, "MIG-a"), Holder(2, 5, "MIG-b"))
    node.device = replace(node.device, instances=instances, slices=7, holders=held)
    node.tick(joules=0)
    tally = node.tick(joules=70)
    assert workload(tally, TRAIN, "MIG-a").energy_uj == 30_000_000
    assert workload(tally, TRAIN, "MIG-a").estimated_uj == 30_000_000
    active = (replace(instances[0], utilization_ratio=1.0), replace(instances[1], utilization_ratio=0.25))
    node.device = replace(node.device, instances=active)
    tally = node.tick(joules=80)
    assert workload(tally, TRAIN, "MIG-a").energy_uj == 90_000_000
    assert workload(tally, SERVE, "MIG-b").energy_uj == 60_000_000


def test_a_new_mig_layout_makes_that_tick_nobodys() -> None:
    node = Node()
    node.device = replace(node.device, instances=(), slices=7, epoch=1, holders=())
    assert gpu(node.tick(joules=70)).unattributed_uj["mig_change"] == 70_000_000


def test_a_gap_is_charged_only_as_far_as_samples_reach() -> None:
    tally = Node().tick(joules=24_000, seconds=120.0)
    assert gpu(tally).unattributed_uj["gap"] == 21_600_000_000
    assert workload(tally, TRAIN).energy_uj == 1_440_000_000


def test_a_counter_that_goes_back_is_a_reset_and_no_energy() -> None:
    node = Node()
    node.tick()
    node.energy_uj = 5
    tally = node.tick(joules=0)
    assert gpu(tally).resets == 1
    assert gpu(tally).energy_uj == 200_000_000


def test_more_than_the_power_limit_allows_is_set_aside() -> None:
    tally = Node().tick(joules=10_000)
    assert gpu(tally).discarded_uj == 10_000_000_000
    assert gpu(tally).energy_uj == 0


def test_a_frozen_counter_is_replaced_by_power_and_says_so() -> None:
    node = Node()
    for _ in range(8):
        tally = node.tick(joules=0)
    assert gpu(tally).integrated
    before = gpu(tally).energy_uj or 0
    assert before > 0
    assert before % 200_000_000 == 0
    tally = node.tick(joules=150)
    assert not gpu(tally).integrated
    assert gpu(tally).energy_uj == before
    assert gpu(node.tick(joules=150)).energy_uj == before + 150_000_000


def test_without_a_counter_power_is_integrated_from_the_start() -> None:
    node = Node()
    node.ledger = Ledger("test")
    node.tick(counter=False)
    tally = node.tick(counter=False)
    assert gpu(tally).integrated
    assert gpu(tally).energy_uj == 200_000_000


def test_a_counter_that_is_silent_for_a_tick_loses_nothing() -> None:
    node = Node()
    node.tick(counter=False)
    assert gpu(node.tick()).energy_uj == 400_000_000


def test_a_tick_in_which_the_clock_was_set_is_nobodys() -> None:
    node = Node()
    node.device = replace(node.device, clock_jumped=True)
    assert gpu(node.tick(joules=50)).unattributed_uj["clock"] == 50_000_000


def test_who_is_not_listed_because_the_list_fails_is_not_gone() -> None:
    node = Node(retention=5.0)
    node.tick(joules=200)
    node.busy = {}
    for _ in range(10):
        tally = node.tick(joules=0, listed=False)
    assert workload(tally, TRAIN).energy_uj == 120_000_000
    for _ in range(10):
        tally = node.tick(joules=0)
    assert not tally.workloads


@pytest.mark.parametrize("shown", [False, True], ids=["at once", "after it was gone from the text"])
def test_who_comes_back_after_his_account_was_closed_gets_another(shown: bool) -> None:
    node = Node(retention=5.0)
    node.tick(joules=200)
    here, node.busy = node.busy, {}
    node.tick(seconds=10.0)
    if shown:
        assert not node.tick().workloads
    node.busy = here
    back = node.tick(joules=100)
    assert workload(back, TRAIN).energy_uj == 60_000_000
    assert workload(back, SERVE).energy_uj == 40_000_000
    assert sum(use.energy_uj for use in back.namespaces) == 300_000_000


def test_strangers_alone_are_charged_to_nobody_also_after_something_was_learned_of_others() -> None:
    node = Node()
    for n in range(90):
        node.busy = {1: 0.2 + 0.1 * (n % 5), 2: 0.7 - 0.1 * (n % 3)}
        tally = node.tick(joules=100 * node.busy[1] + 300 * node.busy[2])
    assert (gpu(tally).trust or 0.0) > 0.5
    before = gpu(tally).unattributed_uj["unknown_process"]
    node.busy = {99: 0.4}
    assert gpu(node.tick(joules=50)).unattributed_uj["unknown_process"] - before == 50_000_000
    node.busy = {1: 0.3, 99: 0.3}
    assert gpu(node.tick(joules=50)).unattributed_uj["unknown_process"] - before > 50_000_000
