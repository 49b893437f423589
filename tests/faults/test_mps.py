"""The MPS server works for its clients and is no consumer (F34), and nobody can pass for it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.daemon import Samples, find
from tests.fakes.nvml import FakeNvml, List
from tests.faults.nodes import daemon, of, renamed

SERVER, CLIENT = "nvidia-cuda-mps", List.MPS | List.COMPUTE
NOBODY = 2**22 - 1
"""A process that cannot be read."""


class Crowd:
    """Processes on the first GPU, by the names they gave themselves."""

    def __init__(self, fake: FakeNvml, stack: ExitStack) -> None:
        self.gpu = fake.gpus[0]
        self._stack = stack

    def start(self, name: str, lists: List = List.COMPUTE) -> int:
        """A process that holds a context."""
        pid = self._stack.enter_context(renamed(repr(name.encode()))).pid
        self.gpu.run(pid, memory=1 << 30, lists=lists)
        return pid


@pytest.fixture
def crowd(fake: FakeNvml) -> Iterator[Crowd]:
    with ExitStack() as stack:
        yield Crowd(fake, stack)


def joules(samples: Samples, name: str) -> float:
    return sum(find(samples, "gputally_workload_energy_joules_total", workload=name))


def seconds(samples: Samples, name: str) -> float:
    return sum(find(samples, "gputally_workload_sm_busy_seconds_total", workload=name))


def adds_up(samples: Samples, fake: FakeNvml) -> bool:
    """Whether every joule of the GPU is somebody's."""
    uuid = fake.gpus[0].uuid
    told = ("namespace_energy", "namespace_idle_energy", "gpu_idle_energy", "gpu_unattributed_energy")
    parts = [find(samples, f"gputally_{name}_joules_total", uuid=uuid) for name in told]
    pending = of(samples, fake, 0, "pending_energy_joules") or 0.0
    return round(sum(map(sum, parts)) + pending, 6) == of(samples, fake, 0, "energy_joules_total")


def test_F34_what_the_server_did_was_for_its_clients(fake: FakeNvml, crowd: Crowd) -> None:
    server = crowd.start(SERVER)
    crowd.start("one", CLIENT)
    crowd.start("two", CLIENT)
    other = crowd.start("three")
    crowd.gpu.busy({server: 60, other: 20})
    idle = ("--energy.idle-policy", "equal", "--energy.idle-watts", "20")
    with daemon(fake, "--energy.intensity", "off", *idle) as node:
        samples = node.wait_for(lambda s: joules(s, "one") > 20)
        assert joules(samples, SERVER) == 0
        assert seconds(samples, SERVER) == 0
        assert find(samples, "gputally_workload_idle_energy_joules_total", workload=SERVER) == [0]
        assert find(samples, "gputally_workload_memory_used_bytes", workload=SERVER) == [1 << 30]
        assert joules(samples, "one") == pytest.approx(joules(samples, "two"), rel=0.01)
        assert joules(samples, "three") == pytest.approx(2 / 3 * joules(samples, "one"), rel=0.05)
        assert adds_up(samples, fake)


def test_F34_a_client_beside_its_server_is_alone(fake: FakeNvml, crowd: Crowd) -> None:
    crowd.start(SERVER)
    crowd.start("one", CLIENT)
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: joules(s, "one") > 20)
        assert joules(samples, SERVER) == 0
        assert find(samples, "gputally_workload_estimated_energy_joules_total", workload="one") == [0]
        assert adds_up(samples, fake)


@pytest.mark.parametrize("lists", [List.COMPUTE, CLIENT], ids=["no clients", "a client"])
def test_F34_a_name_alone_is_no_excuse(fake: FakeNvml, crowd: Crowd, lists: List) -> None:
    pretender = crowd.start(SERVER, lists)
    crowd.start("one", lists)
    crowd.gpu.busy({pretender: 60})
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: joules(s, SERVER) > 20)
        assert joules(samples, "one") < joules(samples, SERVER) / 10


@pytest.mark.parametrize("readable", [True, False])
def test_F34_of_two_that_may_be_the_server_neither_is_excused(
    fake: FakeNvml, crowd: Crowd, readable: bool
) -> None:
    if readable:
        crowd.start(SERVER)
    else:
        crowd.gpu.run(NOBODY)
    crowd.start("one", CLIENT)
    pretender = crowd.start(SERVER)
    crowd.gpu.busy({pretender: 60})
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: joules(s, SERVER) > 20)
        assert joules(samples, "one") < joules(samples, SERVER) / 10
