"""Settings and the command line, as a user meets them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputally.config import SETTINGS, Wrong, configure
from gputally.parse import duration
from tests.daemon import GPUTALLY, environment


def gputally(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GPUTALLY_")}
    return subprocess.run(
        [sys.executable, "-m", "gputally", *words],
        capture_output=True,
        text=True,
        env=inherited | environ,
        timeout=60,
        check=False,
    )


def test_defaults_are_those_of_the_design() -> None:
    config = configure({}, {})
    assert (config.machine, config.interval, config.tick) == ("local", 5.0, 1.0)
    assert (config.web_listen_address, config.web_telemetry_path) == (":10400", "/metrics")
    assert config.dialect == ("native",)
    assert not config.process_metrics
    assert config.max_age == 15.0


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_default() -> None:
    assert configure({"tick": "2s"}, {"GPUTALLY_TICK": "3s"}).tick == 2.0
    assert configure({}, {"GPUTALLY_TICK": "3s"}).tick == 3.0
    assert configure({}, {"GPUTALLY_WEB_LISTEN_ADDRESS": "[::1]:9"}).web_listen_address == "[::1]:9"


@pytest.mark.parametrize(
    ("value", "socket"),
    [("", ""), ("off", ""), ("auto", "auto"), ("/run/a.sock", "/run/a.sock"), ("unix:///run/a", "/run/a")],
)
def test_the_runtime_is_not_asked_unless_that_is_wanted(value: str, socket: str) -> None:
    assert configure({}, {}).cri_socket == ""
    assert configure({"cri.socket": value}, {}).cri_socket == socket


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("machine", "cloud", "local, simulated or recorded:DIR"),
        ("machine", "recorded:", "local, simulated or recorded:DIR"),
        ("interval", "5", "a duration"),
        ("interval", "-5s", "a duration"),
        ("interval", "1h", "from 1s to 300s"),
        ("tick", "1ms", "from 0.1s to 10s"),
        ("gpus", "first", "indexes and uuids"),
        ("dialect", "native,klingon", "native"),
        ("dialect", "", "native"),
        ("process-metrics", "maybe", "on or off"),
        ("process-metrics.top", "many", "a whole number"),
        ("process-metrics.top", "٣", "a whole number"),
        ("web.listen-address", "10400", "HOST:PORT"),
        ("web.listen-address", ":99999", "HOST:PORT"),
        ("web.telemetry-path", "metrics", "a path"),
        ("web.telemetry-path", "/-/ready", "a path"),
        ("log.level", "loud", "debug, info"),
        ("log.format", "xml", "text or json"),
        ("simulated.sampler", "none", "fraction or one-owner"),
        ("cri.socket", "containerd", "auto, off or the path of a unix socket"),
        ("cri.socket", "tcp://127.0.0.1:1", "auto, off or the path of a unix socket"),
    ],
)
def test_a_wrong_value_names_the_flag_the_value_and_what_is_allowed(
    flag: str, value: str, allowed: str
) -> None:
    with pytest.raises(Wrong) as wrong:
        configure({flag: value}, {})
    for part in (f"--{flag}", repr(value), allowed):
        assert part in str(wrong.value)
    setting = next(s for s in SETTINGS if s.flag == flag)
    with pytest.raises(Wrong, match=setting.variable):
        configure({}, {setting.variable: value})


def test_a_tick_longer_than_the_interval_is_refused() -> None:
    with pytest.raises(Wrong, match="--tick"):
        configure({"tick": "9s"}, {})


@given(st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(minutes: int, seconds: int, thousandths: int) -> None:
    expected = minutes * 60 + seconds + thousandths / 1000
    assert duration(f"{minutes}m{seconds}s{thousandths}ms") == pytest.approx(expected)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_clear_no(text: str) -> None:
    try:
        seconds = duration(text)
    except ValueError:
        return
    assert seconds >= 0
    assert text[0].isdigit()


def test_wrong_words_end_with_code_2_and_one_sentence() -> None:
    for words in ("serve --interval 5x", "serve --nothing", "dance", "record", "show --gpus"):
        result = gputally(*words.split())
        assert result.returncode == 2, words
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("gputally: ")
        assert not result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--interval -5s", "--interval '-5s' cannot be used: it must be a duration"),
        ("--tick -.5s", "--tick '-.5s' cannot be used: it must be a duration"),
        ("--machine recorded:/nowhere", "--machine recorded:/nowhere cannot be used: "),
        ("--machine recorded:/dev/null", "/dev/null is a file, and a recording is a folder"),
        ("--proc.root /nowhere", "--proc.root '/nowhere' cannot be used: it must be a folder that is there"),
        ("--proc.root /dev/null", "--proc.root '/dev/null' cannot be used: it must be a folder"),
    ],
)
def test_what_is_wrong_with_a_setting_is_said_in_its_own_words(words: str, told: str) -> None:
    result = gputally("show", *words.split())
    assert result.returncode == 2
    assert told in result.stderr
    assert "Errno" not in result.stderr


@pytest.mark.parametrize(
    "command",
    ["show --machine simulated", "explain 1 --machine simulated", "--help", "--version", "verify --help"],
)
def test_where_nothing_can_be_printed_one_sentence_says_so(command: str) -> None:
    words = [*GPUTALLY, *command.split()]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60
        )
    assert result.returncode == 73
    assert result.stderr == "gputally: cannot write to standard output: No space left on device\n"


def test_flags_are_not_guessed_from_their_beginning() -> None:
    assert "--inter" in gputally("serve", "--inter", "5s").stderr


def test_a_port_in_use_ends_with_code_71_and_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = gputally("serve", "--machine", "simulated", "--web.listen-address", f"127.0.0.1:{port}")
    assert result.returncode == 71
    assert str(port) in result.stderr


def test_help_and_version() -> None:
    assert gputally("--version").stdout.startswith("gputally 0.")
    assert gputally().returncode == 2
    assert "commands:" in gputally("--help").stdout
    text = gputally("serve", "--help").stdout
    for setting in SETTINGS:
        assert f"--{setting.flag}" in text


def test_a_misspelt_variable_is_pointed_out() -> None:
    result = gputally("show", "--machine", "simulated", GPUTALLY_INTERVALL="5s")
    assert "GPUTALLY_INTERVALL" in result.stderr
    assert result.returncode == 0


def test_json_logs_are_json() -> None:
    import json

    result = gputally("show", "--log.format", "json", GPUTALLY_INTERVALL="5s")
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert {line["level"] for line in lines} == {"warning"}


def test_without_a_driver_show_says_so_and_how_to_go_on() -> None:
    result = gputally("show", "--nvml.library", "/nowhere/libnvidia-ml.so.1")
    assert result.returncode == 1
    assert "gputally_up 0\n" in result.stdout
    assert 'gputally_source_up{source="nvml"} 0\n' in result.stdout
    assert "gputally_gpu_" not in result.stdout
    assert "/nowhere/libnvidia-ml.so.1" in result.stderr
    assert "--machine simulated" in result.stderr
    assert sum("is down" in line for line in result.stderr.splitlines()) == 1
