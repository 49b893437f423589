"""Writes the expected output of every recorded machine in every dialect; the diff is the review."""

from __future__ import annotations

from pathlib import Path

from tests.golden_files import cases, expected_path, render

if __name__ == "__main__":
    wanted: set[Path] = set()
    for machine, dialect in cases():
        path = expected_path(machine, dialect)
        path.write_bytes(render(machine, dialect))
        wanted.add(path)
    for stray in set(next(iter(wanted)).parent.glob("*.prom")) - wanted:
        stray.unlink()
    print(f"{len(wanted)} files")
