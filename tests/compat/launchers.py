"""The commands of the old systems, started as their users would, on the simulated machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gputally.compat.flags import System, read
from gputally.compat.launch import settings
from gputally.config import Config
from tests.daemon import PATIENCE, Server, environment

BIN = Path(sys.executable).parent
SIMULATED = {"GPUTALLY_MACHINE": "simulated", "GPUTALLY_TICK": "500ms"}
LOOPBACK = {"GPUTALLY_WEB_LISTEN_ADDRESS": "127.0.0.1:0"}
"""In place of the old default port, so that tests do not meet each other."""


class Launcher(Server):
    """One of the commands."""

    listening = r"listening on http://127\.0\.0\.1:(\d+)/"

    def __init__(self, command: str, *flags: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__([str(BIN / command), *flags], {**SIMULATED, **LOOPBACK, **(env or {})})

    def text(self, path: str) -> str:
        """What a scrape gets, once something was published."""
        return self.until(lambda: self._published(path))

    def _published(self, path: str) -> str | None:
        answer = self.get(path)
        text = answer.body.decode()
        assert answer.status == 200, answer
        return None if "gputally_build_info" in text and "gputally_source_up" not in text else text


def config(system: System, *words: str, **environ: str) -> Config:
    """What the words and variables come to."""
    return settings(read(system, words, environ), environ)


def run(
    command: str, *flags: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> tuple[int, str]:
    """How a command ends that ends by itself, and what it says."""
    done = subprocess.run(
        [BIN / command, *flags],
        env=environment({**SIMULATED, **(env or {})}),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def families(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name of every metric -> its type and its labels in the order they are written."""
    types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels = rest.rpartition("}")[0]
            found[name] = (types[name], tuple(pair.partition("=")[0] for pair in _pairs(labels)))
    return found


def _pairs(labels: str) -> list[str]:
    """Pairs of name and quoted value; no value of the simulated machine holds a quote and a comma."""
    return [pair for pair in labels.replace('",', '"\n').split("\n") if pair]
