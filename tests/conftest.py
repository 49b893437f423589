"""What several test modules need: the fake NVML library, and the tools of Prometheus."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fakes.nvml import build

# How long an example takes depends on what else the machine does.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake libnvidia-ml.so.1, built once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def prometheus() -> str:
    """The Prometheus server."""
    return _executable("prometheus")


@pytest.fixture(scope="session")
def promtool() -> str:
    """The tool that checks metrics, rules and settings as Prometheus reads them."""
    return _executable("promtool")


def _executable(name: str) -> str:
    """Where it is; without it a test is skipped, but not in CI, where nobody would see that."""
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not on the PATH; `make tools` installs it on Debian"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path
