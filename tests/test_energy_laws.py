"""Laws 1 and 2 in any order of events: every joule has an owner, and no total ever goes back."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gputally import model
from gputally.attribute import Rules
from gputally.ledger import Ledger
from gputally.process_book import ProcessRules
from gputally.tally import Tally
from gputally.weights import MPS_SERVER

INSTANCES = (model.Instance("MIG-a", 1, 0, "3g.40gb", 3), model.Instance("MIG-b", 2, 0, "4g.40gb", 4))
PIDS = st.integers(1, 6)
GPUS = st.sampled_from([0, 1])


@dataclass
class Card:
    """What the hardware would say."""

    uuid: str
    energy_uj: int = 10**9
    epoch: int = 0
    answers: bool = True
    frozen: bool = False
    counter: bool = True
    partitioned: bool = False
    readings: int = 0


class Node(RuleBasedStateMachine):
    """A node to which anything happens in any order."""

    @initialize(
        policy=st.sampled_from(["none", "equal", "allocation"]),
        idle_watts=st.sampled_from([None, 0.0, 60.0]),
        learned=st.booleans(),
        scraped=st.booleans(),
        retention=st.sampled_from([0.0, 20.0]),
    )
    def begin(
        self, policy: str, idle_watts: float | None, learned: bool, scraped: bool, retention: float
    ) -> None:
        rules = Rules(policy, idle_watts, learned)
        self.ledger = Ledger(
            "test", retention=retention, rules=rules, processes=ProcessRules(0.0, 2), scraped=scraped
        )
        self.cards = [Card("GPU-0"), Card("GPU-1")]
        self.now = 100.0
        self.generation = 0
        self.holders: dict[tuple[int, int], str] = {}
        self.keys: dict[int, model.ProcessKey] = {}
        self.owners: dict[model.ProcessKey, model.Owner] = {}
        self.busy: dict[tuple[int, int], float] = {}
        self.host_pid = "yes"
        self.told: tuple[dict[int, model.Process], dict[model.ProcessKey, model.Owner]] = ({}, {})
        self.tally: Tally | None = None
        self.highest: dict[tuple[object, ...], int] = {}

    @rule(
        pid=PIDS,
        gpu=GPUS,
        named=st.sampled_from(["now", "late", "never"]),
        mig=st.sampled_from(["MIG-a", "MIG-b"]),
    )
    def start_process(self, pid: int, gpu: int, named: str, mig: str) -> None:
        if pid not in self.keys:
            self.generation += 1
            key = self.keys[pid] = model.ProcessKey(pid, self.generation)
            owner = model.Owner("pod", f"ns{pid % 2}", f"pod{pid % 3}", "main")
            self.owners[key] = {"now": owner, "late": model.PENDING, "never": model.UNNAMED}[named]
        self.holders[gpu, pid] = mig

    @rule(pid=PIDS)
    def end_process(self, pid: int) -> None:
        self.keys.pop(pid, None)
        for place in [place for place in self.holders if place[1] == pid]:
            del self.holders[place]
            self.busy.pop(place, None)

    @rule(pid=PIDS)
    def learn_name(self, pid: int) -> None:
        key = self.keys.get(pid)
        if key is not None and self.owners[key] is model.PENDING:
            self.owners[key] = model.Owner("pod", "late", f"pod{pid}")

    @rule(pid=PIDS, gpu=GPUS, ratio=st.floats(0, 1))
    def be_busy(self, pid: int, gpu: int, ratio: float) -> None:
        self.busy[gpu, pid] = ratio  # also of a pid that nobody knows

    @rule(gpu=GPUS)
    def reset_counter(self, gpu: int) -> None:
        self.cards[gpu].energy_uj = 0
        self.cards[gpu].epoch += 1

    @rule(gpu=GPUS, joules=st.integers(0, 10**7))
    def jump(self, gpu: int, joules: int) -> None:
        self.cards[gpu].energy_uj += joules * 10**6

    @rule(gpu=GPUS, frozen=st.booleans(), counter=st.booleans(), answers=st.booleans())
    def disturb(self, gpu: int, frozen: bool, counter: bool, answers: bool) -> None:
        card = self.cards[gpu]
        card.frozen, card.counter, card.answers = frozen, counter, answers

    @rule(gpu=GPUS)
    def repartition(self, gpu: int) -> None:
        card = self.cards[gpu]
        card.partitioned = not card.partitioned
        card.epoch += 1

    @rule(mode=st.sampled_from(["yes", "no"]))
    def change_namespace(self, mode: str) -> None:
        self.host_pid = mode

    @rule()
    def scrape(self) -> None:
        if self.tally is not None:
            self.ledger.was_scraped(self.now)

    @rule(
        seconds=st.sampled_from([0.1, 1.0, 1.0, 1.0, 5.0, 40.0]),
        watts=st.tuples(st.floats(0, 700), st.floats(0, 700)),
        publish=st.booleans(),
    )
    def tick(self, seconds: float, watts: tuple[float, float], publish: bool) -> None:
        self.now += seconds
        for card, power in zip(self.cards, watts, strict=True):
            if not card.frozen:
                card.energy_uj += round(power * seconds * 1e6)
        devices = tuple(self._device(gpu, seconds, watts[gpu]) for gpu in (0, 1))
        # By three and six the server of MPS can be known, unless both are there.
        names = {3: MPS_SERVER, 6: MPS_SERVER}
        processes = {pid: model.Process(key, names.get(pid, f"p{pid}"), "") for pid, key in self.keys.items()}
        if (processes, self.owners) != self.told:  # as long as nobody is another one, mappings are the same
            self.told = (processes, dict(self.owners))
        owner = model.Owner("pod", "ns0", "pod0", "main")
        snapshot = model.Snapshot(
            self.now,
            self.now,
            devices,
            *self.told,
            grants=(model.Grant(owner, "GPU-0"), model.Grant(owner, "GPU-1", "MIG-a")),
            host_pid=self.host_pid,
        )
        self.ledger.post(snapshot)
        if publish:
            self.tally = self.ledger.tally(snapshot)

    def _device(self, gpu: int, seconds: float, watts: float) -> model.Device:
        card = self.cards[gpu]
        if not card.answers:
            return model.Device(card.uuid, gpu, model.State.HUNG)
        mig = card.partitioned
        holders = tuple(
            model.Holder(pid, 2**30, instance if mig else "", mps=pid in (1, 4))
            for (g, pid), instance in self.holders.items()
            if g == gpu
        )
        active = tuple(model.Activity(pid, 0, ratio) for (g, pid), ratio in self.busy.items() if g == gpu)
        return model.Device(
            card.uuid,
            gpu,
            read_at=self.now,
            gauges_at=self.now,
            power_watts=watts,
            power_limit_watts=700.0,
            energy_uj=card.energy_uj if card.counter else None,
            instances=INSTANCES if mig else None,
            slices=7 if mig else None,
            epoch=card.epoch,
            holders=holders,
            activities=None if mig else active,
            activity_seconds=None if mig else seconds,
        )

    @invariant()
    def every_joule_has_an_owner(self) -> None:
        if getattr(self, "tally", None) is None:
            return
        assert self.tally is not None
        for gpu in self.tally.gpus:
            uuid = gpu.device.uuid
            charged = sum(n.energy_uj + n.idle_uj for n in self.tally.namespaces if n.uuid == uuid)
            rest = gpu.idle_uj + sum(gpu.unattributed_uj.values()) + gpu.pending_uj
            assert (gpu.energy_uj or 0) == charged + rest

    @invariant()
    def no_total_goes_back(self) -> None:
        if getattr(self, "tally", None) is None:
            return
        assert self.tally is not None
        for key, total in _totals(self.tally).items():
            assert total >= self.highest.get(key, 0), key
            self.highest[key] = total


def _totals(tally: Tally) -> dict[tuple[object, ...], int]:
    """Every counter that may never fall; those of a workload go when it is retired, so they are not here."""
    totals: dict[tuple[object, ...], int] = {}
    for gpu in tally.gpus:
        uuid = gpu.device.uuid
        totals[uuid, "energy"] = gpu.energy_uj or 0
        totals[uuid, "idle"] = gpu.idle_uj
        totals[uuid, "discarded"] = gpu.discarded_uj
        totals |= {(uuid, reason): amount for reason, amount in gpu.unattributed_uj.items()}
    for use in tally.namespaces:
        key = (use.kind, use.namespace, use.uuid)
        totals[(*key, "energy")] = use.energy_uj
        totals[(*key, "idle")] = use.idle_uj
        totals[(*key, "busy")] = use.sm_busy_us or 0
    for row in tally.processes:
        if row.pid == "":
            totals[row.uuid, "other processes"] = row.energy_uj or 0
    return totals


Node.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestEveryOrderOfEvents = Node.TestCase
