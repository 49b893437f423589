"""Another process that asks a fake library."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from tests.daemon import PATIENCE

PRELUDE = """
import ctypes, json, sys, threading, time

def answer(value):
    print(json.dumps(value), flush=True)
"""


class Fake(Protocol):
    """A library, and what a process that loads it must have in its environment."""

    library: Path
    env: dict[str, str]


class Asker:
    """Runs scripts with the path of the library as `sys.argv[1]`; what they `answer` comes back."""

    def __init__(self, prelude: str) -> None:
        self._prelude = PRELUDE + prelude

    def start(self, fake: Fake, script: str) -> subprocess.Popen[str]:
        """The process, for who wants to talk to it."""
        return subprocess.Popen(
            [sys.executable, "-c", self._prelude + script, str(fake.library)],
            env=os.environ | fake.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, fake: Fake, script: str) -> Any:
        """The one answer of a script."""
        with self.start(fake, script) as child:
            output, _ = child.communicate(timeout=PATIENCE)
        assert child.returncode == 0
        return json.loads(output)

    def end(self, fake: Fake, script: str) -> int:
        """How a script ends."""
        with self.start(fake, script) as child:
            child.communicate(timeout=PATIENCE)
        return child.returncode
