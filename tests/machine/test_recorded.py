"""Recording and replaying."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputally.config import SETTINGS, configure
from gputally.machine import BadRecording
from gputally.machine.recorded import RecordedMachine
from gputally.model import ProcessKey, State, Unreadable
from gputally.service import collect_twice
from tests.daemon import GPUTALLY, environment
from tests.fakes.nvml import FakeNvml

MACHINES = Path(__file__).parents[1] / "machines"
GPU = "GPU-11111111-2222-3333-4444-555555555555"


def gputally(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUTALLY_")}
    command = [sys.executable, "-m", "gputally", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)


def tick(folder: Path, number: int, **frame: object) -> None:
    (folder / "machine.toml").write_text("format = 1\n")
    (folder / f"tick-{number:03d}.json").write_text(json.dumps(frame))


def test_a_recording_shows_the_bytes_of_the_machine_it_was_made_of(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    flags = ("--machine", "simulated", "--simulated.seed", "7")
    assert gputally("record", str(folder), *flags).returncode == 0
    live = gputally("show", *flags).stdout.replace('machine="simulated"', 'machine="recorded"')
    again = gputally("show", "--machine", f"recorded:{folder}").stdout
    # A serial number is not saved.
    masked = [line for line in live.splitlines() if "gpu_info" not in line]
    assert [line for line in again.splitlines() if "gpu_info" not in line] == masked
    assert 'serial="masked"' in again


def test_record_does_not_touch_a_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    result = gputally("record", str(tmp_path), "--machine", "simulated")
    assert result.returncode == 73
    assert str(tmp_path) in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_ticks_are_laid_over_each_other_and_time_goes_on_after_the_last(tmp_path: Path) -> None:
    process = {"start": 5, "comm": "train", "cgroup": "0::/\n"}
    power, temperature = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature(0)"
    tick(tmp_path, 0, monotonic=1, time=10, nvml={GPU: {power: 7, temperature: 40}}, processes={"9": process})
    tick(tmp_path, 1, monotonic=2, time=11, nvml={GPU: {power: {"error": 15}}}, processes={})
    machine = RecordedMachine(str(tmp_path))
    assert machine.nvml(GPU, "nvmlDeviceGetPowerUsage") == 7
    assert machine.nvml(GPU, "nvmlDeviceGetTemperature", 0) == 40
    read = machine.process(9)
    assert read is not None
    assert read.key == ProcessKey(9, 5)
    assert machine.ended() == []
    asyncio.run(machine.clock.until(2.0))
    assert machine.clock.monotonic() == 2
    assert machine.ended() == [ProcessKey(9, 5)]
    with pytest.raises(Unreadable) as lost:
        machine.nvml(GPU, "nvmlDeviceGetPowerUsage")
    assert lost.value.code == 15
    assert machine.nvml(GPU, "nvmlDeviceGetTemperature", 0) == 40
    with pytest.raises(Unreadable) as absent:
        machine.nvml(GPU, "nvmlDeviceGetFanSpeed")
    assert absent.value.code == 3
    asyncio.run(machine.clock.until(7.5))
    assert (machine.clock.monotonic(), machine.clock.time()) == (7.5, 16.5)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "machine.toml: not there"),
        ({"machine.toml": "format = 2"}, "format 2 is not known"),
        ({"machine.toml": "= ="}, "machine.toml"),
        ({"machine.toml": "format = 1"}, "no tick-"),
        ({"machine.toml": "format = 1", "tick-000.json": "{"}, "tick-000.json: not a tick"),
        ({"machine.toml": "format = 1", "tick-000.json": "[]"}, "tick-000.json: not a tick"),
        ({"machine.toml": "format = 1", "tick-000.json": '{"time": 1}'}, "tick-000.json: not a tick"),
        ({"machine.toml": "format = 1", "tick-000.json": '{"time":1,"monotonic":1,"nvml":3}'}, "not a tick"),
    ],
)
def test_a_folder_that_is_no_recording_is_refused_by_name(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadRecording, match=said):
        RecordedMachine(str(tmp_path))
    result = gputally("show", "--machine", f"recorded:{tmp_path}")
    assert result.returncode == 2
    assert str(tmp_path) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_gpu_that_hangs_is_shown_as_hanging(nvml_library: Path, tmp_path: Path) -> None:
    nvml, folder = FakeNvml(tmp_path, 2, library=nvml_library), tmp_path / "saved"
    nvml.hang(1, "nvmlDeviceGetPowerUsage")
    command = [*GPUTALLY, "record", str(folder), "--nvml.library", str(nvml.library), "--nvml.deadline", "1s"]
    subprocess.run(command, env=environment(nvml.env), check=True, timeout=60)
    nvml.release(1)
    shown = gputally("show", "--machine", f"recorded:{folder}").stdout
    states = re.findall(r'^gputally_gpu_state\{gpu="(\d)".*state="(\w+)"\} 1$', shown, re.M)
    assert states == [("0", "ok"), ("1", "hung")]


@pytest.mark.parametrize("machine", ["two-gpus", "a100-mig"])
def test_no_answer_is_so_odd_that_another_is_lost(tmp_path: Path, machine: str) -> None:
    """Every answer of a recording in turn is everything that it cannot be."""
    odd: tuple[object, ...] = ("warm", [], {}, None, 1.5, -5, 2**70, [["x"]], math.nan)
    whole = _states(MACHINES / machine)
    shutil.copytree(MACHINES / machine, tmp_path, dirs_exist_ok=True)
    ticks = {path: json.loads(path.read_text()) for path in tmp_path.glob("tick-*.json")}
    questions = dict.fromkeys(
        (who, asked) for tick in ticks.values() for who, answers in tick["nvml"].items() for asked in answers
    )
    for (who, asked), answer in itertools.product(questions, odd):
        for path, tick in ticks.items():
            answers = {**tick["nvml"].get(who, {}), asked: answer}
            path.write_text(json.dumps({**tick, "nvml": {**tick["nvml"], who: answers}}))
        states = _states(tmp_path)
        if who.startswith("GPU-"):
            assert {**states, who: whole[who]} == whole, (asked, answer)


def _states(recording: Path) -> dict[str, State]:
    config = configure({setting.flag: None for setting in SETTINGS}, {})
    tally, site = asyncio.run(collect_twice(config, RecordedMachine(str(recording))))
    assert b"\ngputally_faults_total 0\n" in site.body()
    return {gpu.device.uuid: gpu.device.state for gpu in tally.gpus}
