"""CM PurplePill's promises, kept by `cmpp`."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from gputally.compat.cmpp import SYSTEM
from tests.compat.conftest import Fleet
from tests.compat.launchers import Launcher, config, families, run

GPU = ("gpu", "UUID", "modelName", "Hostname")
POD = ("gpu", "UUID", "Hostname", "device", "pod", "namespace", "stack_id")
METRICS = {
    "CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB": ("gauge", GPU),
    "CM_PURPLEPILL_GPU_MEMORY_USED_TOTAL_MIB": ("gauge", GPU),
    "CM_PURPLEPILL_GPU_MEMORY_FREE_MIB": ("gauge", GPU),
    "CM_PURPLEPILL_GPU_UTILIZATION": ("gauge", GPU),
    "CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB": ("gauge", POD),
}
QUERIES = (
    "sum by (instance) (CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB)",
    "CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB",
    # Mended: without group_left it is refused as soon as a GPU has two pods.
    "CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB"
    " / on (gpu, UUID) group_left () CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB * 100",
)


def test_defaults_are_as_documented() -> None:
    told = config(SYSTEM)
    assert told.web_listen_address == ":9531"
    assert told.interval == 15
    assert told.dialect == ("purplepill",)
    assert told.metrics_file is None
    assert told.log_file is None


@pytest.mark.parametrize(
    ("words", "attribute", "value"),
    [
        (["--port", "8000"], "web_listen_address", ":8000"),
        (["--port=8000"], "web_listen_address", ":8000"),
        (["--interval", "30"], "interval", 30),
        (["--log-file", "/x/y"], "log_file", "/x/y"),
        (["--metrics-file", "/x/y"], "metrics_file", "/x/y"),
        (["--hostname-override", "gpu-host-01"], "dialect_hostname", "gpu-host-01"),
    ],
)
def test_every_flag_has_its_effect(words: list[str], attribute: str, value: object) -> None:
    assert getattr(config(SYSTEM, *words), attribute) == value


def test_variables_hold_and_flags_are_stronger() -> None:
    variables = {
        "CM_PURPLEPILL_PORT": "8080",
        "CM_PURPLEPILL_INTERVAL": "30",
        "CM_PURPLEPILL_HOSTNAME_OVERRIDE": "gpu-host-01",
    }
    told = config(SYSTEM, **variables)
    assert (told.web_listen_address, told.interval, told.dialect_hostname) == (":8080", 30, "gpu-host-01")
    assert config(SYSTEM, "--port", "9", **variables).web_listen_address == ":9"


def test_metrics_labels_types_and_units(fleet: Fleet) -> None:
    server = fleet.servers["cmpp"]
    assert isinstance(server, Launcher)
    text = server.text("/metrics")
    assert families(text) == METRICS
    assert "# HELP CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB Total GPU memory in MiB.\n" in text
    [(_, total)] = fleet.prometheus.wait_for('CM_PURPLEPILL_GPU_MEMORY_TOTAL_MIB{gpu="0"}', bool)
    assert total == 81920


def test_endpoints(fleet: Fleet) -> None:
    server = fleet.servers["cmpp"]
    assert server.get("/health").body == b"OK"
    assert families(server.get("/").body.decode()).keys() == METRICS.keys()
    assert server.get("/elsewhere").status == 404


@pytest.mark.parametrize("query", QUERIES)
def test_the_queries_of_its_document(fleet: Fleet, query: str) -> None:
    found = fleet.prometheus.wait_for(query, bool)
    assert all(value > 0 for _, value in found)


def test_a_pod_with_several_processes_is_one_series(fleet: Fleet) -> None:
    pods = fleet.prometheus.wait_for(
        "count by (gpu, pod, namespace) (CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB)", bool
    )
    assert {count for _, count in pods} == {1}
    whole = fleet.prometheus.query(
        "sum by (gpu) (CM_PURPLEPILL_GPU_MEMORY_USED_POD_MIB)"
        " <= on (gpu) CM_PURPLEPILL_GPU_MEMORY_USED_TOTAL_MIB"
    )
    assert whole


def test_it_says_what_it_stands_in_for(fleet: Fleet) -> None:
    said = [line for line in fleet.servers["cmpp"].lines if "stands in for CM PurplePill" in line]
    assert len(said) == 1
    assert "gputally serve" in said[0]
    assert "--dialect purplepill" in said[0]


def test_the_host_in_labels_can_be_chosen() -> None:
    with Launcher("cmpp", "--interval", "1", "--hostname-override", "gpu-host-01") as server:
        assert 'Hostname="gpu-host-01"' in server.text("/metrics")


@pytest.mark.parametrize("flag", ["--nope", "nope", "--prot=1"])
def test_an_unknown_flag_is_named_with_the_usage(flag: str) -> None:
    code, said = run("cmpp", flag)
    assert code == 2
    assert repr(flag.partition("=")[0]) in said
    assert "usage: cmpp" in said
    assert "--metrics-file FILE" in said


@pytest.mark.parametrize("flags", [["--port", "70000"], ["--interval", "0"], ["--interval"]])
def test_a_bad_value_is_named(flags: list[str]) -> None:
    code, said = run("cmpp", *flags)
    assert code == 2
    assert flags[0] in said


def test_help_and_version() -> None:
    assert run("cmpp", "--help")[0] == 0
    code, said = run("cmpp", "--version")
    assert code == 0
    assert "gputally" in said


def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = run("cmpp", env={"GPUTALLY_WEB_LISTEN_ADDRESS": address})
    assert code == 71
    assert "in use" in said


# The file attacks of the original: it ran as root and wrote to fixed names in /tmp.


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    """A folder as /tmp is."""
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_files_are_written_only_where_asked(sticky: Path) -> None:
    metrics, log = sticky / "cmpp_metrics.prom", sticky / "cmpp.log"
    with Launcher(
        "cmpp", "--interval", "1", "--metrics-file", str(metrics), "--log-file", str(log)
    ) as server:
        server.until(metrics.exists)
        assert families(metrics.read_text()).keys() == METRICS.keys()
        assert stat.S_IMODE(metrics.stat().st_mode) == 0o644
        assert "stands in for" in log.read_text()
        assert server.terminate() == 0
    assert not metrics.exists()
    assert [path.name for path in sticky.iterdir()] == ["cmpp.log"]


@pytest.mark.parametrize("flag", ["--metrics-file", "--log-file"])
@pytest.mark.parametrize("trap", ["link", "dangling", "hard link", "fifo", "folder"])
def test_a_trap_in_a_sticky_folder_catches_nothing(
    sticky: Path, tmp_path: Path, flag: str, trap: str
) -> None:
    victim, name = tmp_path / "victim", sticky / "name"
    victim.write_text("precious")
    if trap == "link":
        name.symlink_to(victim)
    elif trap == "dangling":
        name.symlink_to(tmp_path / "not there yet")
    elif trap == "hard link":
        name.hardlink_to(victim)
    elif trap == "fifo":
        os.mkfifo(name)
    else:
        name.mkdir()
    code, said = run("cmpp", flag, str(name), env={"GPUTALLY_WEB_LISTEN_ADDRESS": "127.0.0.1:0"})
    assert code == 2
    assert "name" in said
    assert victim.read_text() == "precious"
    assert not (tmp_path / "not there yet").exists()


def test_a_trap_that_comes_later_catches_nothing(sticky: Path, tmp_path: Path) -> None:
    victim, name = tmp_path / "victim", sticky / "name"
    victim.write_text("precious")
    with Launcher("cmpp", "--interval", "1", "--metrics-file", str(name)) as server:
        server.until(name.exists)
        name.unlink()
        name.symlink_to(victim)
        server.line("cannot be written")
        assert server.get("/health").status == 200
    assert victim.read_text() == "precious"


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    code, said = run(
        "cmpp", "--metrics-file", str(folder / "x"), env={"GPUTALLY_WEB_LISTEN_ADDRESS": "127.0.0.1:0"}
    )
    assert code == 2
    assert "others could change files" in said
