"""One Prometheus for all tests of queries and of `gputally verify`."""

from collections.abc import Iterator

import pytest

from tests.ops.scene import DATA, SEEDS, Prometheus, Scene, Target, nodes, serving

FIRST_SCRAPES = 5


@pytest.fixture(scope="package")
def scene(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Simulated nodes and what dcgm-exporter and nvidia-smi told, scraped long enough for rates."""
    foreign = b"".join(path.read_bytes() for path in sorted(DATA.glob("*.prom")))
    with nodes(SEEDS) as daemons, serving(foreign) as port:
        targets = [
            Target("monitoring/gputally", daemon.port, {"cluster": "east", "node": f"gpu-{seed}"})
            for seed, daemon in zip(SEEDS, daemons, strict=True)
        ]
        targets.append(Target("dcgm-exporter", port, {"cluster": "east"}))
        with Prometheus(prometheus, tmp_path_factory.mktemp("prometheus"), targets) as server:
            server.wait_for(f"count(count_over_time(gputally_up[1m]) >= {FIRST_SCRAPES}) == {len(SEEDS)}")
            server.wait_for("node:gputally_cost:increase1h")
            yield Scene(server, daemons)


@pytest.fixture(scope="package")
def server(scene: Scene) -> Prometheus:
    """That Prometheus."""
    return scene.server
