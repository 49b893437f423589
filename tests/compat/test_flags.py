"""How old flags are read, and rows that no simulated machine has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gputally.compat import cmpp, dcgm_exporter, my_gpu_exporter, pod_gpu_metrics_exporter, vgpu_monitor
from gputally.compat.flags import BadFlag, Flag, System, go_duration, read, to, usage
from gputally.config import SETTINGS
from gputally.dialects import dcgm
from gputally.dialects.dcgm.values import profiled
from gputally.dialects.options import Options
from gputally.dialects.parties import Row
from gputally.model import Device, Owner
from gputally.tally import Gpu

SYSTEMS = [m.SYSTEM for m in (cmpp, dcgm_exporter, my_gpu_exporter, pod_gpu_metrics_exporter, vgpu_monitor)]
LATER = {"dcgm"}
"""Settings of ours that a launcher uses where they are there."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", "1s"), ("1m30s", "90s"), ("1.5s", "1.5s"), ("500ms", "0.5s"), ("2h", "7200s"), ("0", "0s")],
)
def test_durations_as_go_writes_them(text: str, seconds: str) -> None:
    assert go_duration(0, 86_400)(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1d", "s", "-1s", "1s ", "1 s"])
def test_what_go_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        go_duration(0, 86_400)(text)


@pytest.mark.parametrize("words", [["-a=1"], ["--a=1"], ["-a", "1"], ["--a", "1"], ["-a", "0", "--a", "1"]])
def test_one_dash_or_two_and_the_last_one_holds(words: list[str]) -> None:
    system = System("x", "x", (Flag(("a",), "N", "5", "", to("interval")),))
    assert read(system, words, {}).chosen == {"interval": "1"}
    assert read(system, [], {}).assumed == {"interval": "5"}


@pytest.mark.parametrize("words", [["a"], ["--"], ["-"], ["---a=1"], ["--b"], ["-a"]])
def test_what_is_no_flag_is_named(words: list[str]) -> None:
    system = System("x", "x", (Flag(("a",), "N", "5", "", to("interval")),))
    with pytest.raises(BadFlag):
        read(system, words, {})


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: cast(System, system).command)
def test_flags_are_told_apart_and_meet_settings_that_are_there(system: System) -> None:
    names = [name for flag in system.flags for name in flag.names]
    assert len(names) == len(set(names))
    assert all(f"--{flag.names[0]}" in usage(system) or len(flag.names[0]) == 1 for flag in system.flags)
    assert system.settings.keys() - LATER <= {setting.flag for setting in SETTINGS}


def test_a_batch_job_has_its_label() -> None:
    row = Row(Gpu(Device("GPU-1", 0), fresh=True), None, Owner("job", workload="4711"), "", 1, 1.0)
    scope = dcgm.metrics(Options(jobs=True))[0].scope
    assert dict(zip(scope.labels, scope.identity(row), strict=True))["hpc_job"] == "4711"


def test_a_profiling_field_is_dcgms_own_number() -> None:
    row: Any = SimpleNamespace(is_rest=False, device=SimpleNamespace(dcgm_fields={1004: 0.25}))
    assert profiled(1004)(row) == 0.25
    assert profiled(1005)(row) is None
