"""Sources side by side, and companions, which add to their GPUs and count for nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from gputally.collect import Collector
from gputally.dialects.native import METRICS
from gputally.model import Device, Pace, Reading, State, Unreadable
from tests.owners.stage import Cards, Stage, awaited


class Gone(Cards):
    """A source that is down."""

    async def read(self, pace: object) -> Reading:
        raise Unreadable("gone")


class Silent(Cards):
    """A source that is down, and remembers the GPU."""

    name = "silent"

    async def read(self, pace: object) -> Reading:
        return Reading((replace(self.device, state=State.UNREAD),), down="gone", code=9)


class Teller:
    """A companion that tells one thing of every GPU, and of a strange one."""

    name = "teller"

    @property
    def stuck(self) -> Mapping[str, int]:
        return {"teller": 0}

    async def read(self, pace: Pace, devices: Sequence[Device]) -> Reading | None:
        told = [replace(device, activity_ratio={"sm": 0.9, "dram": 0.4}) for device in devices]
        return Reading((*told, Device("GPU-strange", 7)))

    async def close(self) -> None:
        return


@awaited
async def test_a_companion_adds_what_the_source_did_not_tell() -> None:
    cards = Cards(device=Device(Cards().device.uuid, 0, activity_ratio={"sm": 0.1}))
    snapshot = await Collector(Stage(), (cards,), companions=(Teller(),)).collect(Pace.INTERVAL)
    assert [device.activity_ratio for device in snapshot.devices] == [{"sm": 0.1, "dram": 0.4}]


@awaited
async def test_gputally_is_not_up_by_a_companion_alone() -> None:
    snapshot = await Collector(Stage(), (Gone(),), companions=(Teller(),)).collect(Pace.INTERVAL)
    assert [(health.source, health.up) for health in snapshot.health] == [("cards", False), ("teller", True)]
    assert not any(health.up for health in snapshot.health if health.about == "gpus")


@awaited
async def test_a_gpu_that_another_source_tells_of_is_told_once_and_by_that_one() -> None:
    for sources in ((Cards(), Silent()), (Silent(), Cards()), (Silent(), Silent(), Cards())):
        snapshot = await Collector(Stage(), sources).collect(Pace.INTERVAL)
        assert [device.state for device in snapshot.devices] == [State.OK]
    snapshot = await Collector(Stage(), (Silent(), Silent())).collect(Pace.INTERVAL)
    assert [device.state for device in snapshot.devices] == [State.UNREAD]
    assert [(health.up, health.reason, health.code) for health in snapshot.health] == [(False, "gone", 9)]


@awaited
async def test_of_two_gpus_that_did_not_say_who_they_are_each_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Two(Cards):
        async def read(self, pace: object) -> Reading:
            return Reading(tuple(Device("", index, State.FAILING) for index in range(2)))

    collector = Collector(Stage(), (Two(),))
    for _ in range(3):
        await collector.collect(Pace.INTERVAL)
    assert [record.getMessage() for record in caplog.records] == [
        "GPU 0 (unknown) is failing",
        "GPU 1 (unknown) is failing",
    ]


@awaited
async def test_a_companion_is_not_asked_about_gpus_that_nobody_may_touch() -> None:
    snapshot = await Collector(Stage(), (Silent(),), companions=(Teller(),)).collect(Pace.INTERVAL)
    assert [device.activity_ratio for device in snapshot.devices] == [{}]


def test_every_metric_has_one_row() -> None:
    names = [metric.name for metric in METRICS]
    assert sorted(set(names)) == sorted(names)
