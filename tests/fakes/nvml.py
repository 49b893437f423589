"""Builds the fake libnvidia-ml.so.1 and steers it while another process uses it."""

import ctypes
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.fakes.nvml_layout import (
    ABSENT,
    AUTO,
    CALLS,
    Call,
    Control,
    Event,
    Gpu,
    Instance,
    List,
    layout_check,
)
from tests.fakes.shared import COMPILER, HERE, create

__all__ = ["CALLS", "H100", "R535", "FakeNvml", "Gpu", "Instance", "List", "build"]

LOOKUPS = tuple(call for call in CALLS if call.startswith("nvmlDeviceGetHandleBy"))
FOREVER = 2**64 - 1
CRASH = -1
LOST = 15

R535 = ("nvmlDeviceGetRunningProcessDetailList",)
"""What drivers 535.54 to 535.98, with process records of 32 bytes, do not export."""

H100: Mapping[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "part_number": "692-2G520-0200-000",
    "vbios": "96.00.74.00.01",
    "brand": 14,
    "architecture": 9,
    "capability_major": 9,
    "pci_device_id": 0x233010DE,
    "pci_subsystem_id": 0x16C110DE,
    "memory_total": 81559 << 20,
    "memory_reserved": 551 << 20,
    "memory_used": AUTO,
    "bar1_total": 131072 << 20,
    "bar1_used": 1 << 20,
    "power_mw": 70_000,
    "power_limit_mw": 700_000,
    "power_limit_enforced_mw": 700_000,
    "power_limit_default_mw": 700_000,
    "power_limit_min_mw": 200_000,
    "power_limit_max_mw": 700_000,
    "temperature": 31,
    "temperature_memory": 40,
    "thresholds": (92, 89, 95, 87, 0, 0, 0, 0),
    "clocks": (345, 345, 2619, 765),
    "clocks_max": (1980, 1980, 2619, 1545),
    "clock_reasons": 1,
    "persistence_mode": 1,
    "ecc_mode": 1,
    "ecc_mode_pending": 1,
    "mig_devices_max": 7,
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_generation_max": 5,
    "pcie_width_max": 16,
    "gpm_supported": 1,
    "energy_uj": 10**12,
    "energy_rate_mw": 70_000,
}
"""An idle card; any field of Gpu may be given."""


class FakeNvml:
    """A machine's NVML: `library` and `env` are for the process under test, the rest steers it."""

    def __init__(
        self, folder: Path, gpus: int = 8, *, library: Path | None = None, card: Mapping[str, Any] = H100
    ) -> None:
        self.library = library or build(folder)
        self.env = {"FAKE_NVML_CONTROL": str(folder / "nvml.control")}
        self.control = create(folder / "nvml.control", Control)
        self.control.driver_version, self.control.nvml_version = "570.133.20", "12.570.133.20"
        self.control.cuda_version = 12080
        self.control.process_stride = 24
        self.gpus = [self.control.gpus[place] for place in range(gpus)]
        for place, gpu in enumerate(self.gpus):
            _furnish(gpu, place, card)
            self.delay(place, "nvmlDeviceGetPcieThroughput", 0.02)
        self.arrange(range(gpus))

    def arrange(self, order: Iterable[int]) -> None:
        """Plugs in these GPUs (places in `gpus`), indexed in this order; the others are unplugged."""
        places = list(order)
        for place, gpu in enumerate(self.gpus):
            gpu.index = places.index(place) if place in places else ABSENT
        for index, place in enumerate(places):
            self.control.order[index] = place
        self.control.count = len(places)

    def answer(
        self, gpu: int | None, call: str, rc: int, *, after: int = 0, times: int | None = None
    ) -> None:
        """Makes a call return this code, after so many good answers and so many times; 0 ends it."""
        entry = self._entry(gpu, call)
        entry.rc = 0
        entry.first = entry.count + after
        entry.last = FOREVER if times is None else entry.first + times
        entry.rc = rc

    def crash(self, gpu: int | None, call: str) -> None:
        """Makes a call end its process with SIGSEGV."""
        self.answer(gpu, call, CRASH)

    def delay(self, gpu: int | None, call: str, seconds: float) -> None:
        """Makes a call take this long."""
        self._entry(gpu, call).delay_us = round(seconds * 1e6)

    def hang(self, gpu: int | None, call: str = "*") -> None:
        """Makes a call hang until `release`."""
        self._entry(gpu, call).hang = 1

    def release(self, gpu: int | None) -> None:
        """Lets every hanging call of the GPU go on."""
        for entry in self._row(gpu):
            entry.hang = 0

    def lose(self, gpu: int, *, handles: bool = False) -> None:
        """Makes every call on the GPU say GPU_IS_LOST; with `handles` also the lookups that find it."""
        for call in ("*", *LOOKUPS) if handles else ("*",):
            self.answer(gpu, call, LOST)

    def find(self, gpu: int) -> None:
        """Ends what `lose` began."""
        for call in ("*", *LOOKUPS):
            self.answer(gpu, call, 0)

    def xid(self, gpu: int, xid: int) -> None:
        """Makes a GPU report an Xid to who is registered."""
        count = self.control.event_count
        self.control.events[count % len(self.control.events)] = Event(gpu, xid)
        self.control.event_count = count + 1

    def calls(self, gpu: int | None, call: str) -> int:
        """How often a call was made; "*" counts all but the lookups."""
        return self._entry(gpu, call).count

    def counts(self) -> dict[tuple[int | None, str], int]:
        """Every call that was made at least once, and how often."""
        places = (None, *range(len(self.gpus)))
        made = {(place, call): self.calls(place, call) for place in places for call in CALLS[1:]}
        return {key: count for key, count in made.items() if count}

    @property
    def overlaps(self) -> int:
        """How often a call began on a GPU on which its process had another one under way."""
        return sum(gpu.overlaps for gpu in self.gpus)

    @property
    def initialised(self) -> int:
        """Open references of the process that last called nvmlInit or nvmlShutdown."""
        return self.control.initialised

    def _entry(self, gpu: int | None, call: str) -> Call:
        return self._row(gpu)[CALLS.index(call)]

    def _row(self, gpu: int | None) -> ctypes.Array[Call]:
        return self.control.calls if gpu is None else self.gpus[gpu].calls


def _furnish(gpu: Gpu, place: int, card: Mapping[str, Any]) -> None:
    gpu.uuid = f"GPU-{place:08x}-5eed-4a11-8b0b-{place:012x}"
    gpu.serial = f"16500230{place:05}"
    gpu.minor = place
    gpu.pci_bus = 0x1B + 8 * place
    for name, value in card.items():
        setattr(gpu, name, value)
    gpu.energy_since_ns = time.monotonic_ns()


def build(folder: Path, *, without: Iterable[str] = ()) -> Path:
    """Compiles the library into the folder, leaving out the calls a driver does not know."""
    hidden = set(without)
    if not hidden <= set(CALLS):
        raise ValueError(f"not in nvml.h: {hidden - set(CALLS)}")
    library, exports, check = (folder / name for name in ("libnvidia-ml.so.1", "exports.map", "layout.c"))
    exports.write_text("\n".join(["{ global: nvml*; local: *;", *(f"{name};" for name in hidden), "};"]))
    check.write_text("\n".join(layout_check()))
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{HERE}"]
    linking = [f"-Wl,-soname,{library.name}", f"-Wl,--version-script={exports}", "-o", str(library)]
    subprocess.run([*COMPILER, *options, *linking, *sorted(HERE.glob("nvml*.c")), check], check=True)
    return library
