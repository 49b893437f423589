"""Recorded machines and what each dialect makes of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from gputally import publishing, service
from gputally.config import SETTINGS, configure
from gputally.dialects import DIALECTS

HERE = Path(__file__).parent
MACHINES = HERE / "machines"


def cases() -> list[tuple[str, str]]:
    """Every machine with every dialect."""
    machines = sorted(path.parent.name for path in MACHINES.glob("*/machine.toml"))
    return [(machine, dialect) for machine in machines for dialect in DIALECTS]


def expected_path(machine: str, dialect: str) -> Path:
    """The committed file."""
    return HERE / "golden" / f"{machine}.{dialect}.prom"


def render(machine: str, dialect: str) -> bytes:
    """What `gputally show` prints of it; every setting at its default, process series included."""
    command = [sys.executable, "-m", "gputally", "show", "--machine", f"recorded:{MACHINES / machine}"]
    flags = ["--dialect", dialect, "--process-metrics", "on", "--log.level", "error"]
    return subprocess.run([*command, *flags], stdout=subprocess.PIPE, check=False, timeout=60).stdout


def collisions(machine: str, dialect: str) -> int:
    """How many of the series that it publishes have another's name and labels; the text has them added up."""
    given = {"machine": f"recorded:{MACHINES / machine}", "dialect": dialect, "process-metrics": "on"}
    config = configure({setting.flag: given.get(setting.flag) for setting in SETTINGS}, {})

    async def publish() -> int:
        outside = service.open_machine(config, live=False)
        tally, _ = await service.collect_twice(config, outside)
        return publishing.site(config, outside).publish(tally)

    return asyncio.run(publish())
