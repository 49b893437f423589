"""Gathers what the image holds into one folder: Python, the packages and the libraries they need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PREFIX = Path(sys.base_prefix)
LIBRARY = Path(sysconfig.get_path("stdlib"))
UNWANTED = ("test", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3", "pydoc_data")
INSTALLERS = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack")
DRIVERS_NEED = ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")
"""What NVIDIA's libraries are linked to; Python itself may be linked to none of them."""
USERS = "root:x:0:0::/:/none\ngputally:x:65532:65532::/:/none\n"
GROUPS = "root:x:0:\ngputally:x:65532:\n"


def main() -> None:
    """Fill the folder that is named."""
    root = Path(sys.argv[1])
    for name in ("dev", "etc", "proc", "sys", "usr/lib", "usr/lib64"):
        (root / name).mkdir(parents=True)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copytree(PREFIX / "lib", root / PREFIX.relative_to("/") / "lib", ignore=_ignored, symlinks=True)
    shutil.copytree(PREFIX / "bin", root / PREFIX.relative_to("/") / "bin", ignore=_ignored, symlinks=True)
    for path in [*_linked(), *_configuration()]:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (root / "etc/passwd").write_text(USERS, encoding="utf-8")
    (root / "etc/group").write_text(GROUPS, encoding="utf-8")


def _ignored(folder: str, names: list[str]) -> set[str]:
    """What nobody needs at run time; nothing can be installed into the image, either."""
    place = Path(folder)
    if place == LIBRARY:
        return {*UNWANTED} & {*names}
    if place == LIBRARY / "site-packages" or place == PREFIX / "bin":
        return {name for name in names if name.split("-")[0].rstrip("0123456789.") in INSTALLERS}
    return {name for name in names if name.endswith(".a")}


def _linked() -> Iterator[Path]:
    """Shared libraries from outside Python's own folder, as the loader finds them."""
    objects = [path for path in PREFIX.rglob("*.so*") if path.is_file()]
    objects.append(Path(sys.executable).resolve())
    answer = subprocess.run(["ldd", *map(str, objects)], stdout=subprocess.PIPE, text=True).stdout
    words = {Path(word) for word in answer.split() if word.startswith("/") and not word.endswith(":")}
    folders = {word.parent for word in words}
    words |= {folder / name for folder in folders for name in DRIVERS_NEED}
    yield from (path for path in sorted(words) if path.is_file() and not path.is_relative_to(PREFIX))


def _configuration() -> Iterator[Path]:
    """How the loader finds libraries, which distribution they are of, and whom TLS trusts."""
    wanted = (
        "ld.so.conf",
        "ld.so.cache",
        "ld.so.conf.d/*.conf",
        "debian_version",
        "ssl/certs/ca-certificates.crt",
    )
    for pattern in wanted:
        yield from Path("/etc").glob(pattern)


if __name__ == "__main__":
    main()
