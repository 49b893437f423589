"""A fake nvidia-smi: a script that writes what a test put down, and notes that it was started."""

from __future__ import annotations

import os
from pathlib import Path

SCRIPT = """#!/bin/sh
here={here}
echo "$$ $*" >> "$here/started"
case "$1" in --query-gpu*) kind=gpus ;; *) kind=apps ;; esac
[ -e "$here/$kind.sh" ] && . "$here/$kind.sh"
cat "$here/$kind.csv"
"""
UUIDS = tuple(f"GPU-{number}{number}{number}{number}0000-0000-0000-0000-000000000000" for number in range(4))
GPUS = f"""\
index, uuid, name, pci.bus_id, driver_version, utilization.gpu [%], memory.total [MiB], memory.used [MiB], \
power.draw [W], enforced.power.limit [W], temperature.gpu, clocks.current.sm [MHz], pstate, fan.speed [%]
0, {UUIDS[0]}, NVIDIA A100, 00000000:01:00.0, 550.54.15, 87, 40960, 1024, 62.31, 400.00, 31, 1410, P0, 30
1, {UUIDS[1]}, Tesla T4, 00000000:02:00.0, 550.54.15, 0, 15360, 0, 9.50, 70.00, 28, 300, P8, [N/A]
"""
APPS = "gpu_uuid, pid, used_gpu_memory [MiB]\n"


class FakeSmi:
    """The command in a folder of its own; `gpus` and `apps` are what it writes from now on."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.gpus = GPUS
        self.apps = APPS
        command = folder / "nvidia-smi"
        command.write_text(SCRIPT.format(here=folder))
        command.chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """What makes a program find it."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    @property
    def gpus(self) -> str:
        return (self.folder / "gpus.csv").read_text()

    @gpus.setter
    def gpus(self, text: str) -> None:
        _put(self.folder / "gpus.csv", text)

    @property
    def apps(self) -> str:
        return (self.folder / "apps.csv").read_text()

    @apps.setter
    def apps(self, text: str) -> None:
        _put(self.folder / "apps.csv", text)

    def first(self, script: str, kind: str = "gpus") -> None:
        """Shell lines that it runs before it writes; empty to take them away."""
        _put(self.folder / f"{kind}.sh", script)

    @property
    def started(self) -> list[int]:
        """Its pids, oldest first."""
        path = self.folder / "started"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def _put(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    beside.rename(path)
