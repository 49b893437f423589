"""What the chart starts is started: the program takes its flags, and `helm test` asks a real one."""

import subprocess
import sys

import pytest

from tests.daemon import GPUTALLY, Daemon, environment
from tests.deploy.chart import PROFILES, one, pod, rendered
from tests.deploy.test_files import AWAITED


@pytest.mark.parametrize("profile", PROFILES)
def test_the_program_takes_the_flags_together(profile: str) -> None:
    (main,) = pod(rendered(profile))["containers"]
    command, *flags = main["args"]
    assert command == "serve"
    here = [flag.replace("$(HOST_IP)", "10.0.0.7") for flag in flags if _known(flag)]
    words = [*GPUTALLY, "show", "--machine=simulated", *here]
    done = subprocess.run(words, env=environment({}), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "\ngputally_up 1\n" in done.stdout


def _known(flag: str) -> bool:
    name = flag.removeprefix("--").partition("=")[0]
    return name not in AWAITED and name != "state.directory"


def test_helm_test_asks_every_address_and_fails_where_there_are_no_metrics() -> None:
    (tester,) = one(rendered("default"), "Pod")["spec"]["containers"]
    assert tester["command"] == ["python3", "-c"]
    with Daemon("--machine", "simulated") as daemon:
        script = tester["args"][0].replace("gputally.gputally.svc", "127.0.0.1")
        script = script.replace("10400", str(daemon.port))
        good = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert good.returncode == 0, good.stderr
        assert "127.0.0.1" in good.stdout
        assert "series" in good.stdout
        wrong = script.replace("/metrics", "/nothing")
        assert subprocess.run([sys.executable, "-c", wrong], capture_output=True, timeout=60).returncode
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode
