"""Whether we see every process, and what is said if we do not."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from gputally.collect import Collector
from gputally.model import Device, DeviceInfo, Namespaces, Pace
from gputally.owners.host_pid import host_pid
from tests.owners.stage import GPU, HEX, HOST, OTHER, UID, Cards, Stage, awaited

POD = f"/kubelet/kubepods/burstable/pod{UID}/{HEX}"
KIND = Namespaces(4_026_532_999, 77, f"0::{POD}\n", "0::/init.scope\n")
NODE = Device(GPU, 0, info=DeviceInfo(driver_version="580.95.05"))


@pytest.mark.parametrize(
    ("own", "init", "pid", "mode"),
    [
        (POD, "/init.scope", 77, "nested"),
        (POD, "/", 77, "nested"),
        (f"/docker/{OTHER}{POD}", f"/docker/{OTHER}", 77, "nested"),
        ("/", "/../../../../init.scope", 77, "nested"),
        ("/system.slice/gputally.service", "/init.scope", 77, "nested"),
        ("/", "/", 1, "no"),
        ("/", "/", 7, "no"),
        (POD, POD, 7, "no"),
        ("/", f"/../cri-containerd-{OTHER}.scope", 7, "no"),
        (POD, f"/kubelet/kubepods/burstable/pod{UID}/{OTHER}", 7, "no"),
        (POD, None, 7, "no"),
    ],
)
def test_a_node_that_is_a_container_is_told_from_a_container(
    own: str, init: str | None, pid: int, mode: str
) -> None:
    line = None if init is None else f"0::{init}\n"
    assert host_pid(Namespaces(4_026_532_999, pid, f"0::{own}\n", line), "570.86.15", True) == mode


def test_the_hosts_own_namespace_needs_no_more() -> None:
    assert host_pid(replace(HOST, own_pid=1), None, False) == "yes"
    assert host_pid(None, "580.1", True) is None


@pytest.mark.parametrize("driver", ["565.57.01", "535.113.01", "", None, "x", "⁵⁷⁰"])
def test_a_driver_that_mixes_numbers_is_not_believed(driver: str | None) -> None:
    assert host_pid(KIND, driver, True) == "no"


@awaited
async def test_in_the_wrong_namespace_nothing_is_said_of_processes(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(Namespaces(4_026_532_999, 7, "0::/\n", "0::/\n"))
    stage.start(1, f"0::/docker/{HEX}\n")
    collector = Collector(stage, (Cards(1, 2, busy={1: 0.5}),))
    with caplog.at_level(logging.WARNING):
        snapshots = [await collector.collect(Pace.INTERVAL) for _ in range(3)]
    for snapshot in snapshots:
        assert snapshot.host_pid == "no"
        assert snapshot.processes == {}
        assert snapshot.owners == {}
        assert [(d.holders, d.activities) for d in snapshot.devices] == [(None, None)]
        assert snapshot.process_results == {"no_host_pid": 2}
    assert [record.message.count("hostPID: true") for record in caplog.records] == [1]
    assert stage.asked["process"] == 0


@awaited
async def test_a_nested_node_is_believed_while_every_number_is_of_its_own() -> None:
    stage, cards = Stage(KIND), Cards(1, device=NODE)
    stage.start(1, f"0::{POD}\n")
    collector = Collector(stage, (cards,))
    assert (await collector.collect(Pace.INTERVAL)).host_pid == "nested"
    cards.holders = [1, 99]
    first = await collector.collect(Pace.INTERVAL)
    assert first.host_pid == "nested"  # it may just have ended
    second = await collector.collect(Pace.INTERVAL)
    assert second.host_pid == "no"
    assert second.processes == {}
    cards.holders = [1]
    assert (await collector.collect(Pace.INTERVAL)).host_pid == "nested"
