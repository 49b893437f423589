"""Folders that are listed again and again, and settings in files of other programs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gputally.machine.files import SETTLED, Folders, settings
from gputally.machine.local import LocalMachine
from gputally.machine.recorded import RecordedMachine
from gputally.machine.recording import Recorder
from gputally.model import Unreadable


def settle(folder: Path) -> None:
    """Let the last change of a folder be some time ago."""
    then = time.time() - SETTLED - 1
    os.utime(folder, (then, then))


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path) -> None:
    folders = Folders()
    (tmp_path / "a").symlink_to("/somewhere")
    settle(tmp_path)
    first = folders.list(str(tmp_path))
    assert first == {"a": "/somewhere"}
    assert folders.list(str(tmp_path)) is first
    (tmp_path / "b").touch()
    assert folders.list(str(tmp_path)) == {"a": "/somewhere", "b": ""}
    settle(tmp_path)
    (tmp_path / "a").unlink()
    assert folders.list(str(tmp_path)) == {"b": ""}


def test_a_folder_that_changed_just_now_may_change_again_unseen(tmp_path: Path) -> None:
    """Times are of some milliseconds: two changes may have one."""
    folders = Folders()
    (tmp_path / "a").touch()
    now = os.stat(tmp_path)
    assert folders.list(str(tmp_path)) == {"a": ""}
    (tmp_path / "b").touch()
    os.utime(tmp_path, ns=(now.st_atime_ns, now.st_mtime_ns))
    assert folders.list(str(tmp_path)) == {"a": "", "b": ""}


def test_a_folder_that_is_made_anew_is_another(tmp_path: Path) -> None:
    folders, path = Folders(), tmp_path / "logs"
    path.mkdir()
    (path / "a").touch()
    settle(path)
    assert folders.list(str(path)) == {"a": ""}
    (path / "a").unlink()
    path.rename(tmp_path / "old")
    with pytest.raises(Unreadable, match="No such file"):
        folders.list(str(path))
    path.mkdir()
    settle(path)
    assert folders.list(str(path)) == {}


def test_of_a_file_of_another_program_only_what_is_wanted_is_handed_on(tmp_path: Path) -> None:
    text = b"token: secret\na: 1 # why\n--b=/x\n  a: nested\nc: two words\na-b: 'q'\n"
    assert settings(text, ("a", "b", "c", "a-b")) == {"a": "1", "b": "/x", "a-b": "q"}
    (tmp_path / "config").write_bytes(text)
    recorder = Recorder(LocalMachine("/nowhere"))
    assert recorder.settings(str(tmp_path / "config"), ("a",)) == {"a": "1"}
    assert recorder.settings("/not/there", ("a",)) == {}
    recorder.end_tick()
    written = recorder.save(tmp_path / "saved")
    assert not any(b"secret" in path.read_bytes() for path in written)
    again = RecordedMachine(str(tmp_path / "saved"))
    assert again.settings(str(tmp_path / "config"), ("a",)) == {"a": "1"}
    assert again.settings(str(tmp_path / "config"), ("token",)) == {}
