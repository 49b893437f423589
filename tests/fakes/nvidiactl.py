"""A /dev/nvidiactl that a test gives to another process, and takes away from it."""

import subprocess
from pathlib import Path

from tests.fakes.shared import COMPILER

HERE = Path(__file__).parent
NEVER = -1


class FakeNvidiactl:
    """The device: `env` is for the process under test."""

    def __init__(self, folder: Path) -> None:
        library = folder / "nvidiactl.so"
        options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", str(library)]
        subprocess.run([*COMPILER, *options, str(HERE / "nvidiactl.c"), "-ldl"], check=True)
        self._told = folder / "nvidiactl.errno"
        self.answer(0)
        self.env = {"LD_PRELOAD": str(library), "FAKE_NVIDIACTL": str(self._told)}

    def answer(self, error: int) -> None:
        """Have every open of it end so from now on; 0 opens it, NEVER hangs."""
        fresh = self._told.with_suffix(".new")
        fresh.write_text(f"{error}\n")
        fresh.replace(self._told)
