"""Answers that are missing, no text, lie differently or cannot be true (F10, F12 to F16, F18, F20, F31).

Those of nvidia-smi (F11) are in tests/sources/test_smi.py.
"""

from pathlib import Path

import pytest

from tests.daemon import find
from tests.fakes.asking import Asker
from tests.fakes.nvml import CALLS, R535, FakeNvml, List, build
from tests.faults.nodes import US, daemon, of, well

POWER, ENERGY = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"
BOTH = """
import pynvml
from gputally.machine.nvml import LocalNvml
nvml = LocalNvml(sys.argv[1])
nvml(None, "nvmlInit")
uuid = nvml(0, "nvmlDeviceGetUUID")

def of_binding():
    try:
        pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception as error:
        return type(error).__name__

def ours():
    try:
        nvml(uuid, "nvmlDeviceGetComputeRunningProcesses")
    except Exception as error:
        return type(error).__name__, error.code
"""
"""How a call fails in the binding, and through us."""
COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"


def test_F10_what_a_gpu_cannot_is_absent_and_asked_once(fake: FakeNvml) -> None:
    for call in (POWER, ENERGY, "nvmlDeviceGetTemperature", "nvmlDeviceGetProcessUtilization"):
        fake.answer(0, call, 3)
    fake.gpus[0].field(197, rc=3)
    fake.gpus[0].run(US)
    with daemon(fake) as node:
        asked = "nvmlDeviceGetUtilizationRates"
        samples = node.wait_for(lambda s: fake.calls(0, asked) > 3 and well(s, fake, 1))
        assert of(samples, fake, 0, "up") == 1
        absent = ("power_watts", "energy_joules_total", "pcie_transmit_bytes_total")
        assert [of(samples, fake, 0, name) for name in absent] == [None, None, None]
        assert of(samples, fake, 0, "temperature_celsius", sensor="gpu") is None
        assert of(samples, fake, 0, "temperature_celsius", sensor="memory") == 40
        assert of(samples, fake, 0, "pcie_receive_bytes_total") == 0
        assert find(samples, "gputally_workload_sm_utilization_ratio", uuid=fake.gpus[0].uuid) == []
        assert fake.calls(0, POWER) == fake.calls(0, ENERGY) == 1
        assert find(samples, "gputally_nvml_errors_total") == []


def test_F10_a_gpu_that_can_nothing_is_unsupported_and_not_zero(fake: FakeNvml) -> None:
    for call in CALLS[1:]:
        if call.startswith(("nvmlDeviceGet", "nvmlGpm")) and not call.endswith(("UUID", "Name", "_v2")):
            fake.answer(0, call, 3)
    for call in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetAttributes_v2"):
        fake.answer(0, call, 3)
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: of(s, fake, 0, "state", state="unsupported"))
        assert of(samples, fake, 0, "up") == 0
        assert find(samples, "gputally_gpu_info", uuid=fake.gpus[0].uuid, model="NVIDIA H100 80GB HBM3") == [
            1
        ]
        assert of(samples, fake, 0, "memory_used_bytes") is None
        node.wait_for(lambda s: well(s, fake, 1))


def test_F12_marks_for_not_available_are_no_numbers(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    gpu.run(US, memory=None)
    gpu.power_mw = 2**32 - 1
    gpu.field(197, 2**64 - 1)
    gpu.field(82, 2**32 - 1, type=1)
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: of(s, fake, 0, "processes") == 1)
        assert of(samples, fake, 0, "power_watts") is None
        assert of(samples, fake, 0, "pcie_transmit_bytes_total") is None
        assert of(samples, fake, 0, "temperature_celsius", sensor="memory") is None
        assert find(samples, "gputally_workload_memory_used_bytes", uuid=gpu.uuid) == []
        assert find(samples, "gputally_workload_processes", uuid=gpu.uuid) == [1]


def test_F12_a_fan_may_run_faster_than_is_quiet_and_nothing_else_beyond_its_whole(fake: FakeNvml) -> None:
    for gpu, speed in zip(fake.gpus, (0, 100, 135, 2**32 - 1), strict=True):
        gpu.fans, gpu.fan_speed = 1, speed
        gpu.utilization_gpu = speed
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: well(s, fake, 0, 1, 2, 3))
        assert [of(samples, fake, place, "fan_speed_ratio") for place in range(4)] == [0, 1, 1.35, None]
        assert [of(samples, fake, place, "utilization_ratio") for place in range(4)] == [0, 1, None, None]


def test_F13_the_width_of_a_record_is_seen_and_not_believed(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, gpus=1, library=build(tmp_path, without=R535))
    fake.control.process_stride = 32
    fake.gpus[0].run(US, memory=3 << 30)
    fake.gpus[0].run(1, memory=1 << 30)
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: of(s, fake, 0, "processes") == 2)
        assert sum(find(samples, "gputally_workload_memory_used_bytes")) == 4 << 30
        assert find(samples, "gputally_samples_dropped_total") == []


def test_F13_records_of_no_known_layout_are_left_out_and_counted(fake: FakeNvml) -> None:
    fake.control.process_stride = 40
    fake.gpus[0].run(US, memory=3 << 30)
    fake.gpus[0].run(1, memory=1 << 30)
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: find(s, "gputally_nvml_errors_total", code="none"))
        assert find(samples, "gputally_workload_memory_used_bytes") == []
        assert of(samples, fake, 0, "processes") is None
        assert of(samples, fake, 1, "processes") == 0
        assert of(samples, fake, 0, "power_watts") is not None


def test_F13_a_list_that_cannot_be_true_is_left_out_and_counted(fake: FakeNvml) -> None:
    fake.gpus[0].run(US, memory=1 << 50)
    fake.gpus[1].run(2**31, memory=1 << 30)
    with daemon(fake) as node:
        samples = node.wait_for(
            lambda s: find(s, "gputally_samples_dropped_total", reason="implausible_process_list")
        )
        assert find(samples, "gputally_workload_memory_used_bytes") == []
        assert [of(samples, fake, place, "processes") for place in range(3)] == [None, None, 0]


def test_F14_an_old_driver_lacks_functions_and_the_rest_is_served(tmp_path: Path) -> None:
    missing = (
        ENERGY,
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetMigMode",
        "nvmlGpmQueryDeviceSupport",
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        COMPUTE,
    )
    fake = FakeNvml(tmp_path, gpus=1, library=build(tmp_path, without=missing))
    fake.gpus[0].run(US, memory=3 << 30)
    fake.gpus[0].pcie_replays = 7
    fake.gpus[0].violation_ns[0] = 2_500_000_000
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: of(s, fake, 0, "processes") == 1)
        assert of(samples, fake, 0, "up") == 1
        assert of(samples, fake, 0, "energy_joules_total") is None
        assert of(samples, fake, 0, "memory_reserved_bytes") is None
        assert (of(samples, fake, 0, "memory_used_bytes") or 0) > 3 << 30
        assert of(samples, fake, 0, "pcie_replays_total") == 7
        assert of(samples, fake, 0, "throttle_seconds_total", reason="sw_power_cap") == 2.5
        assert of(samples, fake, 0, "throttle_active", reason="idle") == 1
        assert find(samples, "gputally_nvml_errors_total") == []


def test_F14_a_call_that_the_binding_finds_in_no_version_is_not_there(tmp_path: Path) -> None:
    versions = [f"nvmlDeviceGetComputeRunningProcesses{suffix}" for suffix in ("", "_v2", "_v3")]
    fake = FakeNvml(tmp_path, gpus=1, library=build(tmp_path, without=versions))
    fake.gpus[0].run(US, lists=List.GRAPHICS)
    told = Asker(BOTH).ask(fake, "answer([of_binding(), ours()])")
    assert told == ["NVMLLibraryMismatchError", ["Unreadable", 13]]
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: of(s, fake, 0, "processes") == 1)
        assert find(samples, "gputally_nvml_errors_total") == []


def test_F15_a_list_longer_than_its_buffer_and_growing_is_read_whole(fake: FakeNvml) -> None:
    for pid in range(1, 401):
        fake.gpus[0].run(pid, memory=1 << 20)
    fake.gpus[0].growing = 1
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: (of(s, fake, 0, "processes") or 0) > 400)
        assert find(samples, "gputally_nvml_errors_total") == []


@pytest.mark.parametrize("code", [7, 4, 999])
def test_F15_a_list_that_never_fits_is_given_up_and_counted_and_nobody_looks_gone(
    fake: FakeNvml, code: int
) -> None:
    fake.gpus[0].run(US)
    with daemon(fake) as node:
        node.wait_for(lambda s: find(s, "gputally_workload_active", uuid=fake.gpus[0].uuid) == [1])
        fake.answer(0, COMPUTE, code)
        untold = node.wait_for(lambda s: find(s, "gputally_nvml_errors_total", code=str(code)))
        assert well(untold, fake, 0, 1)
        assert of(untold, fake, 0, "processes") is None
        assert of(untold, fake, 1, "processes") == 0
        assert find(untold, "gputally_workload_active") == []
        assert len(find(untold, "gputally_workload_energy_joules_total")) == 1
        fake.answer(0, COMPUTE, 0)
        node.wait_for(lambda s: find(s, "gputally_workload_active", uuid=fake.gpus[0].uuid) == [1])


def test_F15_a_list_that_was_never_there_is_not_missed_and_one_that_was_is(fake: FakeNvml) -> None:
    graphics = "nvmlDeviceGetGraphicsRunningProcesses_v3"
    fake.gpus[0].run(US)
    fake.answer(0, graphics, 4)
    with daemon(fake) as node:
        node.wait_for(lambda s: of(s, fake, 0, "processes") == 1 and of(s, fake, 1, "processes") == 0)
        fake.answer(1, graphics, 999)
        untold = node.wait_for(lambda s: of(s, fake, 1, "processes") is None)
        assert of(untold, fake, 0, "processes") == 1


def test_F16_garbage_samples_are_dropped_and_silence_is_zero(fake: FakeNvml) -> None:
    gpu = fake.gpus[0]
    gpu.run(US)
    with daemon(fake) as node:
        idle = node.wait_for(lambda s: find(s, "gputally_workload_sm_utilization_ratio", uuid=gpu.uuid))
        assert find(idle, "gputally_workload_sm_utilization_ratio", uuid=gpu.uuid) == [0]
        gpu.sample(US, timestamp=2_000_000_000_000_000, sm=4_000_000)
        gpu.sample(0, timestamp=2_000_000_000_000_001, sm=50)
        after = node.wait_for(
            lambda s: find(s, "gputally_samples_dropped_total", reason="utilization_out_of_range") == [2]
        )
        assert find(after, "gputally_workload_sm_busy_seconds_total", uuid=gpu.uuid) == [0]
        asked = fake.calls(0, "nvmlDeviceGetProcessUtilization")
        later = node.wait_for(lambda s: fake.calls(0, "nvmlDeviceGetProcessUtilization") > asked + 20)
        assert find(later, "gputally_samples_dropped_total", reason="utilization_out_of_range") == [2]


def test_F18_nothing_is_set_and_accounting_is_only_looked_at(fake: FakeNvml) -> None:
    fake.answer(1, "nvmlDeviceGetAccountingMode", 3)
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: well(s, fake, 0, 1))
        assert of(samples, fake, 0, "mode_enabled", mode="accounting") == 0
        assert of(samples, fake, 1, "mode_enabled", mode="accounting") is None
        assert of(samples, fake, 1, "mode_enabled", mode="persistence") == 1
    made = {call for _, call in fake.counts()}
    assert {call for call in made if "Accounting" in call} == {"nvmlDeviceGetAccountingMode"}
    assert {call for call in made if "Set" in call} <= {
        "nvmlEventSetCreate",
        "nvmlEventSetWait_v2",
        "nvmlEventSetFree",
    }


def test_F20_the_counter_of_a_module_says_so(fake: FakeNvml) -> None:
    fake.gpus[0].name = "NVIDIA GH200 480GB"
    with daemon(fake) as node:
        samples = node.wait_for(lambda s: well(s, fake, 0, 1))
        assert find(samples, "gputally_gpu_info", uuid=fake.gpus[0].uuid, energy_scope="module") == [1]
        assert find(samples, "gputally_gpu_info", uuid=fake.gpus[1].uuid, energy_scope="gpu") == [1]


@pytest.mark.parametrize("isolation", ["off", "process"])
def test_F31_bytes_that_are_no_text_cost_no_gpu_its_reading(fake: FakeNvml, isolation: str) -> None:
    fake.control.driver_version = "570.133\udcff"
    fake.gpus[0].name = "NVIDIA \udcff100"
    fake.gpus[0].serial = fake.gpus[0].vbios = "\udcff"
    fake.gpus[1].uuid = "GPU-\udcff"
    with daemon(fake, "--nvml.isolation", isolation) as node:
        samples = node.wait_for(lambda s: well(s, fake, 0, 2, 3))
        assert find(samples, "gputally_gpu_power_watts", uuid="GPU-\ufffd") == [200]
        told = {"model": "NVIDIA \ufffd100", "driver_version": "570.133\ufffd", "serial": "\ufffd"}
        assert find(samples, "gputally_gpu_info", uuid=fake.gpus[0].uuid, **told) == [1]
        assert find(samples, "gputally_gpu_up") == [1, 1, 1, 1]
        assert find(samples, "gputally_faults_total") == [0]
        assert find(samples, "gputally_nvml_errors_total") == []
