"""A disk that a test lets hang in another process."""

import subprocess
from pathlib import Path

from tests.fakes.shared import COMPILER, HERE


class FakeDisk:
    """All that is written: `env` is for the process under test."""

    def __init__(self, folder: Path) -> None:
        library = folder / "disk.so"
        options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", str(library)]
        subprocess.run([*COMPILER, *options, str(HERE / "disk.c"), "-ldl"], check=True)
        self._hangs = folder / "disk.hangs"
        self.env = {"LD_PRELOAD": str(library), "FAKE_DISK": str(self._hangs)}

    def hang(self) -> None:
        """Let nothing be made sure of or taken away from now on."""
        self._hangs.touch()

    def release(self) -> None:
        """Let all go on."""
        self._hangs.unlink()
