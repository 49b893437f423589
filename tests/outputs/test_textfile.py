"""The textfile for node_exporter: atomic, safe, withdrawn at the end, and never in the way of a scrape."""

from __future__ import annotations

import os
import re
import resource
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon import GPUTALLY, Daemon, environment, find, parse

ERRORS = "gputally_textfile_write_errors_total"
NAME = "gputally.prom"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "textfile"
    path.mkdir(mode=0o755)
    return path


def daemon(folder: Path, *flags: str) -> Daemon:
    return Daemon("--machine", "simulated", "--interval", "1s", "--textfile.directory", str(folder), *flags)


def written(server: Daemon, path: Path) -> bytes:
    server.until(path.exists)
    return path.read_bytes()


def test_the_file_has_the_bytes_of_a_scrape(folder: Path) -> None:
    with daemon(folder, "--dialect", "native") as server:
        written(server, folder / NAME)
        server.until(lambda: (folder / NAME).read_bytes() == server.get("/metrics").body)
        about = (folder / NAME).stat()
        assert stat.S_IMODE(about.st_mode) == 0o644
        assert about.st_nlink == 1
        assert (folder / NAME).read_bytes().endswith(b"\n")


def test_what_is_read_at_any_moment_is_whole(folder: Path) -> None:
    with daemon(folder, "--interval", "1s") as server:
        written(server, folder / NAME)
        seen = set()

        def three() -> bool:
            text = (folder / NAME).read_text()
            assert find(parse(text), "gputally_up") == [1]
            seen.add(text)
            return len(seen) >= 3

        server.until(three)
        assert [name for name in os.listdir(folder) if name.endswith(".prom")] == [NAME]


def test_the_file_goes_with_the_program(folder: Path) -> None:
    with daemon(folder) as server:
        written(server, folder / NAME)
        assert server.terminate() == 0
    assert os.listdir(folder) == []


def test_what_a_killed_program_left_is_taken_away_at_the_next_start(folder: Path) -> None:
    (folder / NAME).write_text("old 1\n")
    (folder / f".{NAME}.0123456789abcdef").write_text("cut sh")
    (folder / "other.prom").write_text("other 1\n")
    with daemon(folder) as server:
        server.until(
            lambda: (folder / NAME).exists() and not (folder / NAME).read_bytes().startswith(b"old 1")
        )
        assert not list(folder.glob(".*0123456789abcdef"))
    assert (folder / "other.prom").read_text() == "other 1\n"


def test_a_second_program_does_not_take_the_file_of_the_first(folder: Path) -> None:
    with daemon(folder) as server:
        written(server, folder / NAME)
        flags = ["--machine", "simulated", "--textfile.directory", str(folder)]
        address = ["--web.listen-address", f"127.0.0.1:{server.port}", "--interval", "300s"]
        second = subprocess.run(
            [*GPUTALLY, "serve", *flags, *address], capture_output=True, env=environment(), timeout=60
        )
        assert second.returncode == 71
        assert (folder / NAME).exists()


def test_another_name(folder: Path) -> None:
    with daemon(folder, "--textfile.name", "dcgm-pod.prom") as server:
        written(server, folder / "dcgm-pod.prom")


@pytest.mark.parametrize("name", ["../x.prom", "x.txt", ".prom", ""])
def test_a_name_that_is_no_plain_prom_file_is_refused(folder: Path, name: str) -> None:
    refused(folder, r"--textfile\.name .* cannot be used", "--textfile.name", name)


def refused(folder: Path, pattern: str, *flags: str) -> None:
    command = [*GPUTALLY, "serve", "--machine", "simulated", "--textfile.directory", str(folder), *flags]
    ended = subprocess.run(
        [*command, "--web.listen-address", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert ended.returncode == 2
    assert re.search(pattern, ended.stderr), ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    refused(folder, "others can write there")


def test_a_link_in_place_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    refused(tmp_path / "link", "not a link")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none", "must be a folder")


def _symlink(target: Path, victim: Path) -> None:
    target.symlink_to(victim)


def _hard_link(target: Path, victim: Path) -> None:
    target.hardlink_to(victim)


def _fifo(target: Path, _: Path) -> None:
    os.mkfifo(target)


@pytest.mark.parametrize("plant", [_symlink, _hard_link, _fifo])
def test_what_is_planted_under_the_name_hurts_nobody(
    folder: Path, tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    with daemon(folder) as server:
        written(server, folder / NAME)
        server.until(lambda: _replace(folder / NAME, lambda target: plant(target, victim)))
        server.until(lambda: stat.S_ISREG((folder / NAME).lstat().st_mode))
        server.until(lambda: b"gputally_up" in (folder / NAME).read_bytes())
    assert victim.read_text() == "precious\n"


def _replace(target: Path, plant: Callable[[Path], None]) -> bool:
    beside = target.with_name(".planted")
    plant(beside)
    os.rename(beside, target)
    return True


def test_a_full_disk_keeps_the_last_good_file_and_scrapes_go_on(folder: Path) -> None:
    with daemon(folder) as server:
        # Its files, and nobody else's, may not grow beyond 4 KiB: as good as a full disk.
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        samples = server.wait_for(lambda samples: sum(find(samples, ERRORS)) >= 2)
        assert find(samples, "gputally_up") == [1]
        assert set(os.listdir(folder)) <= {NAME}, "half a file was left"
        (folder / NAME).write_text("good 1\n")
        before = find(server.metrics(), ERRORS)[0]
        server.wait_for(lambda samples: find(samples, ERRORS)[0] > before)
        assert (folder / NAME).read_text() == "good 1\n"
        assert len([line for line in server.log if "cannot be written" in line["msg"]]) == 1


def test_it_is_said_when_the_disk_is_back(folder: Path) -> None:
    with daemon(folder) as server:
        written(server, folder / NAME)
        folder.chmod(0o777)
        server.line("cannot be written")
        folder.chmod(0o755)
        server.line("is written again")
        assert server.wait_for(lambda samples: find(samples, ERRORS)[0] >= 1)


def test_without_the_setting_there_is_no_file_and_no_row(tmp_path: Path) -> None:
    with Daemon("--machine", "simulated", "--interval", "1s") as server:
        samples = server.wait_for(lambda samples: find(samples, "gputally_source_up"))
        assert find(samples, ERRORS) == []
