"""The fake DCGM, asked by the real binding in another process, behaves as a host engine was measured to."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.fakes.asking import Asker
from tests.fakes.dcgm import (
    BLANK,
    BLANK_FLOAT,
    CALLS,
    OFF,
    RUBBISH,
    UNSUPPORTED,
    FakeDcgm,
    build,
    layout_check,
)
from tests.fakes.shared import compiles

UUIDS = [f"GPU-{place:08x}-5eed-4a11-8b0b-{place:012x}" for place in range(2)]
SECOND = 1_000_000

PRELUDE = """
from gputally.machine.dcgm import LocalDcgm
from gputally.model import Unreadable
dcgm = LocalDcgm(sys.argv[1])

def code(call, *args):
    try:
        dcgm(call, *args)
    except Unreadable as error:
        return error.code
    return 0

def connect():
    dcgm("dcgmConnect_v2", "127.0.0.1:5555", 1000)

def watch(keep, every=0.1, gpus=(0,)):
    group = dcgm("dcgmGroupCreate", gpus)
    dcgm("dcgmWatchPidFields", group, round(every * 1e6), keep, 0)
    return group

def energy(group, pid):
    return dcgm("dcgmGetPidInfo", group, pid)[0]["energyConsumed"]
"""
ASKER = Asker(PRELUDE)
start, ask = ASKER.start, ASKER.ask


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dcgm"))


@pytest.fixture
def fake(library: Path, tmp_path: Path) -> FakeDcgm:
    return FakeDcgm(tmp_path, UUIDS, library=library)


def test_every_listed_call_is_exported(fake: FakeDcgm) -> None:
    script = f"library = ctypes.CDLL(sys.argv[1]); answer([n for n in {CALLS} if not hasattr(library, n)])"
    assert ask(fake, script) == []


@pytest.mark.parametrize("major", [3, 4])
def test_both_sonames_are_found_by_the_loader(tmp_path: Path, major: int) -> None:
    fake = FakeDcgm(tmp_path, UUIDS, library=build(tmp_path, major))
    fake.env["LD_LIBRARY_PATH"] = str(tmp_path)
    script = 'dcgm = LocalDcgm(); connect(); answer(dcgm("dcgmVersionInfo"))'
    assert ask(fake, script) == "version:4.6.0;arch:x86_64"


def test_gpus_and_fields(fake: FakeDcgm) -> None:
    fake.gpus[0].tell(1002, 0.5)
    fake.gpus[1].tell(252, 4096)
    script = """
connect()
dcgm("dcgmWatchFields", [1002, 252], 1000000, 60.0)
rows = dcgm("dcgmEntitiesGetLatestValues", [0, 1], [1002, 252, 150])
answer([[dcgm("dcgmGetDeviceAttributes", gpu)["uuid"] for gpu in dcgm("dcgmGetAllSupportedDevices")],
        [[gpu, field, status, number] for gpu, field, status, _, number in rows]])
"""
    uuids, rows = ask(fake, script)
    assert uuids == UUIDS
    assert rows == [
        [0, 1002, 0, 0.5],
        [0, 252, 0, BLANK],
        [0, 150, -16, BLANK],
        [1, 1002, 0, BLANK_FLOAT],
        [1, 252, 0, 4096],
        [1, 150, -16, BLANK],
    ]


def test_a_process_is_told_the_energy_of_the_whole_gpu_and_a_diluted_utilization(fake: FakeDcgm) -> None:
    now = time.time()
    fake.gpus[0].run(11, start=now, sm=30)
    fake.gpus[0].run(12, start=now, sm=20)
    script = """
connect(); group = watch(60); time.sleep(1.05)
raw = ctypes.create_string_buffer((17704 | 2 << 24).to_bytes(4, "little") + (11).to_bytes(4, "little"), 17704)
dcgm._ask("dcgmGetPidInfo", group, raw)
answer([energy(group, 11), energy(group, 12), ctypes.c_double.from_buffer(raw, 552 + 96).value])
"""
    one, other, diluted = ask(fake, script)
    assert one == other == 200_000
    assert diluted == 15.0


def test_energy_is_a_window_of_what_was_kept_since_the_watch(fake: FakeDcgm) -> None:
    now = time.time()
    fake.gpus[0].run(11, start=now - 100)
    fake.gpus[0].run(12, start=now - 100)
    fake.gpus[0].end(12, now - 50)
    script = """
connect(); group = watch(1.9, every=0.1)
first = [energy(group, 11), energy(group, 12)]
time.sleep(1.5)
late = energy(group, 11)
time.sleep(0.5)
answer([first, late, energy(group, 11)])
"""
    first, late, stuck = ask(fake, script)
    assert first == [0, BLANK]
    assert 180_000 <= late <= 200_000
    assert stuck <= 200_000, "kept for a whole second, the fraction is cut"


def test_after_the_end_energy_shrinks_to_blank_and_the_record_goes_with_the_next(fake: FakeDcgm) -> None:
    fake.gpus[0].run(11)
    script = """
connect(); group = watch(1); time.sleep(0.6)
answer(None); input()
numbers = []
for _ in range(4):
    numbers.append(energy(group, 11)); time.sleep(0.4)
answer(numbers); input()
answer(code("dcgmGetPidInfo", group, 11))
"""
    with start(fake, script) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        fake.gpus[0].end(11)
        print(file=child.stdin, flush=True)
        numbers = json.loads(child.stdout.readline())
        fake.gpus[0].run(12)
        print(file=child.stdin, flush=True)
        assert json.loads(child.stdout.readline()) == -14
    assert numbers[0] > numbers[1]
    assert numbers[-1] == BLANK


def test_after_a_disconnect_values_freeze_and_a_new_watch_counts_the_gap(fake: FakeDcgm) -> None:
    fake.gpus[0].run(11)
    script = """
connect(); group = watch(60); time.sleep(0.35); dcgm("dcgmDisconnect"); time.sleep(0.5)
connect(); group = dcgm("dcgmGroupCreate", [0])
frozen = energy(group, 11)
dcgm("dcgmWatchPidFields", group, 100000, 60.0, 0)
answer([frozen, energy(group, 11)])
"""
    frozen, again = ask(fake, script)
    assert frozen < 100_000
    assert again >= 160_000


def test_codes_of_process_records(fake: FakeDcgm) -> None:
    fake.gpus[0].run(11)
    script = """
connect(); group = dcgm("dcgmGroupCreate", [0])
never = code("dcgmGetPidInfo", group, 11)
watch(60)
answer([never, code("dcgmGetPidInfo", group, 11), code("dcgmGetPidInfo", group, 7),
        code("dcgmGetPidInfo", group, 0)])
"""
    assert ask(fake, script) == [-16, 0, -14, -1]


def test_without_accounting_every_pid_has_a_record_of_rubbish(fake: FakeDcgm) -> None:
    fake.gpus[1].accounting = UNSUPPORTED
    script = 'connect(); group = watch(60, gpus=(0, 1)); answer(dcgm("dcgmGetPidInfo", group, 7))'
    (row,) = ask(fake, script)
    assert row["gpuId"] == 1
    assert row["startTime"] == RUBBISH


@pytest.mark.parametrize(("root", "code", "mode"), [(0, -29, OFF), (1, 0, 1)])
def test_a_watch_turns_accounting_on_if_it_may(fake: FakeDcgm, root: int, code: int, mode: int) -> None:
    fake.gpus[0].accounting, fake.control.root = OFF, root
    script = (
        'connect(); group = dcgm("dcgmGroupCreate", [0]); answer(code("dcgmWatchPidFields", group, 1, 60, 0))'
    )
    assert ask(fake, script) == code
    assert fake.gpus[0].accounting == mode


@pytest.mark.parametrize(("shortest_wins", "kept"), [(1, 2 * SECOND), (0, 60 * SECOND)])
def test_another_client_cuts_the_retention_before_4_1_1(
    fake: FakeDcgm, shortest_wins: int, kept: int
) -> None:
    fake.control.shortest_wins, fake.control.other_client_us = shortest_wins, 2 * SECOND
    assert ask(fake, "connect(); watch(60); answer(0)") == 0
    assert fake.gpus[0].retention_us == kept


def test_a_dead_engine_and_a_failed_login(fake: FakeDcgm) -> None:
    script = """
connect(); watch(60); answer(code("dcgmHostengineVersionInfo")); input()
lost = code("dcgmHostengineVersionInfo"), code("dcgmConnect_v2", "127.0.0.1:5555", 1000)
answer(lost); input()
answer([code("dcgmConnect_v2", "127.0.0.1:5555", 1000), code("dcgmHostengineVersionInfo")])
"""
    with start(fake, script) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == 0
        fake.stop()
        print(file=child.stdin, flush=True)
        assert json.loads(child.stdout.readline()) == [-21, -21]
        fake.start()
        fake.control.login_fails = 1
        print(file=child.stdin, flush=True)
        assert json.loads(child.stdout.readline()) == [0, -21]


def test_the_embedded_engine_and_a_second_start(fake: FakeDcgm) -> None:
    fake.stop()
    script = """
codes = [code("dcgmStartEmbedded_v2") for _ in range(2)]
answer([codes, dcgm._handle, dcgm("dcgmGetAllSupportedDevices"), code("dcgmDisconnect"),
        code("dcgmGetAllSupportedDevices")])
"""
    assert ask(fake, script) == [[0, 0], 0x7FFFFFFF, [0, 1], 0, -21]
    assert not fake.control.embedded


def test_a_live_read_of_a_profiling_field_crashes(fake: FakeDcgm) -> None:
    script = """
connect(); entities, ids, room = dcgm._room_for((0,), (1002,))
dcgm._ask("dcgmEntitiesGetLatestValues", entities, 1, ids, 1, 1, room)
"""
    assert ASKER.end(fake, script) == -signal.SIGSEGV


def test_the_layouts_of_c_and_python_cannot_drift(tmp_path: Path) -> None:
    checks = "\n".join(layout_check())
    assert compiles(tmp_path, checks)
    assert not compiles(tmp_path, checks.replace("gpu, watched_us)", "gpu, every_us)"))


def test_a_control_file_of_another_build_is_refused(fake: FakeDcgm) -> None:
    fake.control.size += 8
    assert ASKER.end(fake, "connect()") == -signal.SIGABRT
