"""The fake NVML, asked by the real binding in another process."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.asking import Asker
from tests.fakes.nvml import CALLS, R535, FakeNvml, Instance, List, build
from tests.fakes.nvml_layout import layout_check
from tests.fakes.shared import compiles

POWER, ENERGY = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"

PRELUDE = """
library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from pynvml import *

def code(call, *args):
    try:
        call(*args)
    except NVMLError as error:
        return error.value
    return 0

def gpu(index=0):
    return nvmlDeviceGetHandleByIndex(index)
"""
ASKER = Asker(PRELUDE)
start, ask = ASKER.start, ASKER.ask


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake(library: Path, tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path, gpus=4, library=library)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_every_listed_call_is_exported(fake: FakeNvml) -> None:
    script = f"answer([name for name in {CALLS[1:]} if not hasattr(library, name)])"
    assert ask(fake, script) == []


def test_gpus_are_found_by_index_uuid_and_bus(fake: FakeNvml) -> None:
    fake.arrange([2, 0])
    script = """
nvmlInit()
uuids = [nvmlDeviceGetUUID(gpu(i)) for i in range(nvmlDeviceGetCount())]
bus = nvmlDeviceGetPciInfo(gpu(1)).busId
answer([uuids, nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(uuids[1])),
        nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId(bus)), bus,
        code(nvmlDeviceGetHandleByIndex, 2), code(nvmlDeviceGetHandleByUUID, "GPU-none")])
"""
    uuids = [fake.gpus[2].uuid, fake.gpus[0].uuid]
    assert ask(fake, script) == [uuids, 1, 1, "00000000:1B:00.0", 2, 6]


def test_a_card_answers_like_a_card(fake: FakeNvml) -> None:
    fake.gpus[0].run(7, memory=3 << 30)
    script = """
nvmlInit()
one, two = nvmlDeviceGetMemoryInfo(gpu()), nvmlDeviceGetMemoryInfo(gpu(), version=nvmlMemory_v2)
fields = nvmlDeviceGetFieldValues(gpu(), [NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_ECC_CURRENT])
answer([nvmlDeviceGetName(gpu()), nvmlDeviceGetCudaComputeCapability(gpu()), nvmlSystemGetDriverVersion(),
        two.used, one.used - two.used - two.reserved, one.total - one.free - one.used,
        [(field.nvmlReturn, field.value.uiVal) for field in fields],
        nvmlDeviceGetClockInfo(gpu(), NVML_CLOCK_MEM), nvmlDeviceGetTemperatureV(gpu(), 0),
        code(nvmlDeviceGetFanSpeed, gpu())])
"""
    fields = [[0, 70_000], [3, 0]]
    assert ask(fake, script) == [
        "NVIDIA H100 80GB HBM3", [9, 0], "570.133.20", 3 << 30, 0, 0, fields, 2619, 31, 3,
    ]  # fmt: skip


def test_init_is_counted_and_handles_end_with_it(fake: FakeNvml) -> None:
    script = """
before = code(nvmlInit) or code(nvmlShutdown) or code(nvmlDeviceGetCount)
nvmlInit(), nvmlInit()
old = gpu()
nvmlShutdown()
still = code(nvmlDeviceGetPowerUsage, old)
nvmlShutdown()
ended = code(nvmlDeviceGetPowerUsage, old)
nvmlInit()
answer([before, still, ended, code(nvmlDeviceGetPowerUsage, old)])
"""
    assert ask(fake, script) == [1, 0, 1, 2]
    assert fake.initialised == 1


LISTS = """
nvmlInit()
rows = lambda list: [(row.pid, row.usedGpuMemory) for row in list]
answer([rows(nvmlDeviceGetComputeRunningProcesses(gpu())), rows(nvmlDeviceGetGraphicsRunningProcesses(gpu())),
        rows(nvmlDeviceGetMPSComputeRunningProcesses(gpu()))])
"""


def test_processes_are_in_their_lists(fake: FakeNvml) -> None:
    fake.gpus[0].run(11, memory=100)
    fake.gpus[0].run(12, memory=None, lists=List.COMPUTE | List.GRAPHICS)
    fake.gpus[0].run(13)
    fake.gpus[0].end(13)
    assert ask(fake, LISTS) == [[[11, 100], [12, None]], [[12, None]], []]


def test_driver_535_54_writes_records_of_32_bytes(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, library=build(tmp_path, without=R535))
    fake.control.process_stride = 32
    fake.gpus[0].run(11, memory=100)
    fake.gpus[0].run(12, memory=200)
    script = """
nvmlInit()
count, records = ctypes.c_uint(8), (ctypes.c_uint64 * 32)()
rc = library.nvmlDeviceGetComputeRunningProcesses_v3(gpu(), ctypes.byref(count), records)
answer([rc, count.value, records[0:2] + records[4:6],
        hasattr(library, "nvmlDeviceGetConfComputeMemSizeInfo"),
        hasattr(library, "nvmlDeviceGetRunningProcessDetailList")])
"""
    assert ask(fake, script) == [0, 2, [11, 100, 12, 200], True, False]
    assert [row[0] for row in ask(fake, LISTS)[0]] != [11, 12]


def test_a_growing_list_is_always_one_too_long(fake: FakeNvml) -> None:
    fake.gpus[0].growing = 1
    script = """
nvmlInit()
count, records, answers = ctypes.c_uint(0), (ctypes.c_char * 24000)(), []
for _ in range(3):
    rc = library.nvmlDeviceGetComputeRunningProcesses_v3(gpu(), ctypes.byref(count), records)
    answers.append([rc, count.value])
answer(answers)
"""
    assert ask(fake, script) == [[7, 1], [7, 2], [7, 3]]


def test_samples_are_answered_once_and_busy_processes_always(fake: FakeNvml) -> None:
    fake.gpus[0].busy({21: 40, 22: 60})
    fake.gpus[1].sample(31, timestamp=1000, sm=4_000_000)
    script = """
nvmlInit()
first = nvmlDeviceGetProcessUtilization(gpu(0), 0)
again = nvmlDeviceGetProcessUtilization(gpu(0), max(row.timeStamp for row in first) - 1)
raw = nvmlDeviceGetProcessUtilization(gpu(1), 999)
seen = code(nvmlDeviceGetProcessUtilization, gpu(1), 1000)
idle = code(nvmlDeviceGetProcessUtilization, gpu(2), 0)
answer([[(row.pid, row.smUtil) for row in rows] for rows in (first, again, raw)] + [seen, idle])
"""
    busy = [[21, 40], [22, 60]]
    assert ask(fake, script) == [busy, busy, [[31, 4_000_000]], 6, 6]


def an_instance(uuid: str, gpu_instance: int) -> Instance:
    part = Instance(gpu_instance=gpu_instance, slices=1, memory_total=10 << 30, memory_used=3 << 30, meter=40)
    part.uuid, part.name = uuid, "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    part.profile_id, part.placement_start = 19, gpu_instance - 7
    return part


def test_instances_are_found_and_their_handles_end_with_the_layout(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    gpu.divide([an_instance("MIG-a", 7), an_instance("MIG-b", 9)])
    gpu.run(11, gpu_instance=7, compute_instance=0)
    gpu.run(12, gpu_instance=9, compute_instance=0)
    script = """
nvmlInit()
parts = [nvmlDeviceGetMigDeviceHandleByIndex(gpu(), place) for place in (0, 1)]
pids = lambda handle: [row.pid for row in nvmlDeviceGetComputeRunningProcesses(handle)]
answer([[nvmlDeviceGetUUID(part) for part in parts], [nvmlDeviceGetGpuInstanceId(part) for part in parts],
        nvmlDeviceGetAttributes(parts[0]).computeInstanceSliceCount, nvmlDeviceGetMemoryInfo(parts[1]).used,
        pids(gpu()), pids(parts[0]), pids(nvmlDeviceGetHandleByUUID("MIG-b")),
        [(info.id, info.profileId, info.placement.start, info.placement.size)
         for info in [nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(gpu(), id)) for id in (7, 9)]],
        code(nvmlDeviceGetGpuInstanceById, gpu(), 8),
        code(nvmlDeviceGetMigDeviceHandleByIndex, gpu(), 2), code(nvmlDeviceGetPowerUsage, parts[0]),
        code(nvmlDeviceGetUtilizationRates, gpu()), code(nvmlDeviceGetMigDeviceHandleByIndex, gpu(1), 0)])
input()
answer([code(nvmlDeviceGetUUID, parts[0]), nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 0))])
"""
    with start(fake, script) as child:
        assert child.stdout is not None
        placed = [[7, 19, 0, 1], [9, 19, 2, 1]]
        answers = [["MIG-a", "MIG-b"], [7, 9], 1, 3 << 30, [11, 12], [11], [12], placed, 6, 6, 3, 3, 3]
        assert json.loads(child.stdout.readline()) == answers
        gpu.divide([an_instance("MIG-c", 7)])
        output, _ = child.communicate("\n", timeout=60)
    assert json.loads(output) == [2, "MIG-c"]


def test_meters_compare_two_samples_that_lie_apart(fake: FakeNvml) -> None:
    fake.gpus[0].meters[2] = 43.5
    fake.gpus[1].divide([an_instance("MIG-a", 7)])
    script = """
import time
nvmlInit()
def metered(take, pause):
    request = c_nvmlGpmMetricsGet_t(version=1, numMetrics=2)
    request.sample1, request.sample2 = nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()
    take(request.sample1), time.sleep(pause), take(request.sample2)
    request.metrics[0].metricId, request.metrics[1].metricId = 2, 99
    rc = code(nvmlGpmMetricsGet, request)
    nvmlGpmSampleFree(request.sample1), nvmlGpmSampleFree(request.sample2)
    return [rc, request.metrics[0].value, request.metrics[1].nvmlReturn]
whole = lambda sample: nvmlGpmSampleGet(gpu(0), sample)
part = lambda sample: nvmlGpmMigSampleGet(gpu(1), 7, sample)
answer([metered(whole, 0.12), metered(part, 0.12), metered(whole, 0)[0],
        nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice])
"""
    assert ask(fake, script) == [[0, 43.5, 3], [0, 40.0, 3], 2, 1]
    assert fake.control.gpm_samples == 0


def test_xids_are_told_to_who_is_registered_from_then_on(fake: FakeNvml) -> None:
    script = """
nvmlInit()
events = nvmlEventSetCreate()
nvmlDeviceRegisterEvents(gpu(0), nvmlEventTypeXidCriticalError, events)
answer(code(nvmlEventSetWait, events, 0))
input()
event = nvmlEventSetWait(events, 1000)
answer([nvmlDeviceGetUUID(event.device), event.eventData, code(nvmlEventSetWait, events, 0)])
input()
answer([code(nvmlEventSetWait, events, 0), code(nvmlEventSetFree, events), code(nvmlEventSetWait, events, 0)])
"""
    fake.xid(0, 13)
    with start(fake, script) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "10\n"
        fake.xid(1, 31)
        fake.xid(0, 79)
        print(file=child.stdin, flush=True)
        assert json.loads(child.stdout.readline()) == [fake.gpus[0].uuid, 79, 10]
        fake.lose(0)
        output, _ = child.communicate("\n", timeout=60)
    assert json.loads(output) == [15, 0, 2]


def test_energy_is_the_integral_of_power(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    gpu.watts = 1000
    gpu.reset()
    started = time.monotonic()
    readings = "nvmlInit(); answer([nvmlDeviceGetTotalEnergyConsumption(gpu()) for _ in range(2000)])"
    counted = ask(fake, readings)
    assert counted == sorted(counted)
    assert 0 < counted[0] <= counted[-1] <= (time.monotonic() - started) * 1e6
    gpu.watts = 0
    stopped = gpu.energy_mj
    assert counted[-1] <= stopped
    gpu.jump(5000)
    assert ask(fake, readings)[-1] == stopped + 5000
    gpu.reset()
    assert ask(fake, readings)[-1] == 0
    gpu.energy_mj = 123
    assert ask(fake, readings)[-1] == 123


def test_energy_moves_in_quanta_and_freezes(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    gpu.watts, gpu.quantum = 100, 3600
    still = gpu.energy_mj
    assert ask(fake, f"nvmlInit(); answer({ENERGY}(gpu()))") == still
    gpu.quantum = 0
    gpu.freeze()
    still = gpu.energy_mj
    script = f"nvmlInit(); answer([{ENERGY}(gpu()), {POWER}(gpu())])"
    assert ask(fake, script) == [still, 100_000]
    gpu.thaw()
    wait_for(lambda: gpu.energy_mj > still)


def test_a_call_answers_what_the_test_wants(fake: FakeNvml) -> None:
    fake.answer(0, POWER, 3)
    fake.answer(1, POWER, 999, after=1, times=2)
    fake.lose(2)
    fake.lose(3, handles=True)
    script = """
nvmlInit()
answer([code(nvmlDeviceGetPowerUsage, gpu(0)), code(nvmlDeviceGetTotalEnergyConsumption, gpu(0)),
        [code(nvmlDeviceGetPowerUsage, gpu(1)) for _ in range(4)],
        code(nvmlDeviceGetPowerUsage, gpu(2)), code(gpu, 3), nvmlDeviceGetCount()])
"""
    assert ask(fake, script) == [3, 0, [0, 999, 999, 0], 15, 15, 4]
    assert fake.calls(1, POWER) == 4
    assert fake.counts()[(None, "nvmlDeviceGetCount_v2")] == 1
    fake.find(2)
    fake.find(3)
    assert ask(fake, "nvmlInit(); answer([code(nvmlDeviceGetPowerUsage, gpu(i)) for i in (2, 3)])") == [0, 0]


@pytest.mark.parametrize("rc", [9, 18])
def test_the_driver_comes_late(fake: FakeNvml, rc: int) -> None:
    fake.answer(None, "nvmlInit_v2", rc, times=2)
    assert ask(fake, "answer([code(nvmlInit) for _ in range(3)])") == [rc, rc, 0]


def test_an_unplugged_gpu_is_lost_and_the_rest_shift(fake: FakeNvml) -> None:
    script = """
nvmlInit()
old = gpu(0)
answer(nvmlDeviceGetUUID(old))
input()
answer([code(nvmlDeviceGetUUID, old), nvmlDeviceGetUUID(gpu(0)), nvmlDeviceGetCount()])
"""
    with start(fake, script) as child:
        assert child.stdout is not None
        child.stdout.readline()
        fake.arrange([1, 2, 3])
        output, _ = child.communicate("\n", timeout=60)
    assert json.loads(output) == [15, fake.gpus[1].uuid, 3]


def test_a_call_hangs_until_released_and_others_go_on(fake: FakeNvml) -> None:
    fake.hang(0, POWER)
    script = """
nvmlInit()
stuck = threading.Thread(target=nvmlDeviceGetPowerUsage, args=[gpu(0)])
stuck.start()
answer(nvmlDeviceGetPowerUsage(gpu(1)))
stuck.join()
answer("released")
"""
    with start(fake, script) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "70000\n"
        wait_for(lambda: fake.gpus[0].in_flight == 1)
        assert child.poll() is None
        fake.release(0)
        assert child.stdout.readline() == '"released"\n'
    assert fake.gpus[0].in_flight == 0
    assert fake.overlaps == 0


def test_two_calls_at_once_on_one_gpu_are_seen(fake: FakeNvml) -> None:
    fake.hang(0, POWER)
    script = """
nvmlInit()
handle = gpu(0)
threads = [threading.Thread(target=nvmlDeviceGetPowerUsage, args=[handle]) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
answer("done")
"""
    with start(fake, script) as child:
        wait_for(lambda: fake.gpus[0].in_flight == 2)
        fake.release(0)
        child.communicate(timeout=60)
    assert fake.overlaps == 1


def test_a_delay_is_felt(fake: FakeNvml) -> None:
    fake.delay(0, POWER, 0.05)
    script = """
import time
nvmlInit()
handle, before = gpu(0), time.monotonic()
nvmlDeviceGetPowerUsage(handle)
answer(time.monotonic() - before)
"""
    assert ask(fake, script) >= 0.05


def test_a_crash_ends_the_caller(fake: FakeNvml) -> None:
    fake.crash(0, POWER)
    assert ASKER.end(fake, "nvmlInit(); nvmlDeviceGetPowerUsage(gpu(0))") == -signal.SIGSEGV


def test_a_missing_symbol_is_function_not_found(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, library=build(tmp_path, without=[ENERGY]))
    assert ask(fake, f"nvmlInit(); answer([code({ENERGY}, gpu()), code({POWER}, gpu())])") == [13, 0]


def test_the_layouts_of_c_and_python_cannot_drift(tmp_path: Path) -> None:
    checks = "\n".join(layout_check())
    assert compiles(tmp_path, checks)
    assert not compiles(tmp_path, checks.replace("gpu, power_mw)", "gpu, temperature)"))


def test_a_control_file_of_another_build_is_refused(fake: FakeNvml) -> None:
    fake.control.size += 8
    assert ASKER.end(fake, "") == -signal.SIGABRT
