"""gputally accounting: the one command that changes a node."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon import environment
from tests.fakes.nvml import FakeNvml

SETTER = r"nvml(?!EventSet)\w*Set[A-Z]"
GET, SET = "nvmlDeviceGetAccountingMode", "nvmlDeviceSetAccountingMode"
SRC = Path(__file__).parent.parent / "src" / "gputally"


@pytest.fixture
def fake(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path, gpus=3, library=nvml_library)


def accounting(fake: FakeNvml, *words: str) -> tuple[int, list[str], str]:
    command = [sys.executable, "-m", "gputally", "accounting", *words, "--nvml.library", str(fake.library)]
    result = subprocess.run(command, env=environment(fake.env), capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout.splitlines(), result.stderr


def test_status_says_how_each_gpu_is_and_changes_nothing(fake: FakeNvml) -> None:
    fake.gpus[1].accounting_mode = 1
    code, lines, _ = accounting(fake, "status")
    states = ("off", "on", "off")
    assert lines == [
        f"GPU {i} ({fake.gpus[i].uuid}): accounting is {state}" for i, state in enumerate(states)
    ]
    assert code == 1
    assert [fake.calls(i, SET) for i in range(3)] == [0, 0, 0]
    for gpu in fake.gpus:
        gpu.accounting_mode = 1
    assert accounting(fake, "status")[0] == 0


def test_enable_turns_it_on_where_it_is_off(fake: FakeNvml) -> None:
    fake.gpus[1].accounting_mode = 1
    code, lines, _ = accounting(fake, "enable")
    assert code == 0
    assert [gpu.accounting_mode for gpu in fake.gpus] == [1, 1, 1]
    assert [fake.calls(i, SET) for i in range(3)] == [1, 0, 1]
    assert [line.split("): ")[1] for line in lines] == [
        "accounting is on now, until the driver is unloaded",
        "accounting is on",
        "accounting is on now, until the driver is unloaded",
    ]


def test_only_the_chosen_gpus_are_touched(fake: FakeNvml) -> None:
    code, lines, _ = accounting(fake, "enable", "--gpus", "2")
    assert (code, len(lines)) == (0, 1)
    assert [gpu.accounting_mode for gpu in fake.gpus] == [0, 0, 1]
    code, lines, _ = accounting(fake, "status", "--gpus", "7")
    assert code == 1
    assert lines == ["no GPU is chosen: there are 3, and --gpus is 7"]


@pytest.mark.parametrize("action", ["status", "enable"])
def test_where_it_is_unsupported_the_reason_is_told(fake: FakeNvml, action: str) -> None:
    for place in range(3):
        fake.answer(place, GET, 3)
    fake.gpus[0].mig_mode = 1
    fake.gpus[1].virtualization_mode = 2
    code, lines, _ = accounting(fake, action)
    assert code == 1
    assert [re.sub(r".*\): ", "", line) for line in lines] == [
        "accounting is not supported while MIG mode is on",
        "accounting is not supported in a virtual GPU; the host of the virtual machine can have it",
        "accounting is not supported by this GPU or its driver",
    ]


def test_under_mig_the_driver_refuses_to_turn_it_on(fake: FakeNvml) -> None:
    fake.gpus[0].mig_mode = 1
    code, lines, _ = accounting(fake, "enable")
    assert code == 1
    assert lines[0].endswith("accounting is not supported while MIG mode is on")
    assert [gpu.accounting_mode for gpu in fake.gpus] == [0, 1, 1], "the others are turned on"


def test_without_permission_it_says_who_may(fake: FakeNvml) -> None:
    fake.answer(0, SET, 4)
    code, lines, _ = accounting(fake, "enable")
    assert code == 1
    assert "only root may turn it on" in lines[0]


def test_a_hung_gpu_does_not_hold_the_others(fake: FakeNvml) -> None:
    fake.hang(1)
    code, lines, _ = accounting(fake, "enable", "--nvml.deadline", "500ms")
    fake.release(1)
    assert code == 1
    assert lines[1] == "GPU 1: not known: gpu1: no answer within 0.5 s"
    assert fake.gpus[0].accounting_mode == fake.gpus[2].accounting_mode == 1


def test_without_a_driver_it_fails_and_says_what_would_mend_it(fake: FakeNvml) -> None:
    fake.answer(None, "nvmlInit_v2", 9)
    code, lines, error = accounting(fake, "status")
    assert (code, lines) == (1, [])
    assert "is the NVIDIA driver loaded" in error


@pytest.mark.parametrize("words", [(), ("disable",), ("status", "now")])
def test_usage(fake: FakeNvml, words: tuple[str, ...]) -> None:
    code, lines, error = accounting(fake, *words)
    assert (code, lines) == (2, [])
    assert "gputally accounting --help" in error


def test_no_other_module_can_change_a_node() -> None:
    setters = {path.name for path in SRC.rglob("*.py") if re.search(SETTER, path.read_text())}
    users = {path.name for path in SRC.rglob("*.py") if "gputally.accounting" in path.read_text()}
    assert setters == {"accounting.py"}
    assert users == {"cli.py"}
