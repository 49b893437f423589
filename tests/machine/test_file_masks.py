"""A recording keeps of files only what resolvers use."""

from __future__ import annotations

import json

from gputally.machine.file_masks import what_we_use

HEX = "a1" * 32


def test_of_a_command_line_only_conmons_two_flags_are_kept() -> None:
    line = f"/usr/bin/conmon\0--api-version\x001\0-c\0{HEX}\0-n\0web\0--env\0TOKEN=secret\0-n\0other"
    assert what_we_use("/proc/7/cmdline", line.encode()).split("\0") == ["conmon", "-c", HEX, "-n", "web"]
    assert what_we_use("/proc/7/cmdline", b"mysqld\0-c\0--password=secret") == ""


def test_of_dockers_file_only_id_and_name_are_kept() -> None:
    content = json.dumps({"ID": HEX, "Name": "/web", "Config": {"Env": ["TOKEN=secret"]}})
    path = f"/var/lib/docker/containers/{HEX}/config.v2.json"
    assert json.loads(what_we_use(path, content.encode())) == {"ID": HEX, "Name": "/web"}
    assert what_we_use(path, b"secret") == ""
    assert what_we_use(path, b"[" * 100_000) == ""
