"""Whether the driver and /proc show us every process: they only show those of our own PID namespace."""

from __future__ import annotations

from gputally.model import Namespaces

INIT_PID_NAMESPACE = 4_026_531_836
"""PROC_PID_INIT_INO of the kernel: the namespace of the host."""
NESTED_SINCE = 570
"""The first driver that gives every answer in the pids of the caller's namespace."""
FIX = (
    "the driver shows only processes of gputally's own PID namespace, which is not the host's: set"
    " hostPID: true in Kubernetes, --pid=host with Docker or Podman; until then no process and no workload"
    " is shown"
)


def host_pid(namespaces: Namespaces | None, driver: str | None, all_resolve: bool) -> str | None:
    """yes, nested (a node that is itself a container) or no; None where the machine cannot tell."""
    if namespaces is None:
        return None
    if namespaces.pid_inode == INIT_PID_NAMESPACE:
        return "yes"
    return "nested" if _is_node(namespaces) and _is_new(driver) and all_resolve else "no"


def _is_new(driver: str | None) -> bool:
    major = (driver or "").partition(".")[0]
    return major.isascii() and major.isdigit() and int(major[:9]) >= NESTED_SINCE


def _is_node(namespaces: Namespaces) -> bool:
    """Process 1 is not ours: it stands above our cgroup everywhere, and somewhere really above."""
    if namespaces.own_pid == 1 or namespaces.init_cgroup is None:
        return False
    own, init = _paths(namespaces.own_cgroup), _paths(namespaces.init_cgroup)
    pairs = [(init[name], own[name]) for name in init.keys() & own.keys()]
    return all(_is_above(a, b) or a == b for a, b in pairs) and any(_is_above(a, b) for a, b in pairs)


def _paths(text: str) -> dict[str, tuple[str, ...]]:
    """Hierarchy -> folders of the path, without the scope in which systemd keeps itself."""
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            path = parts[2].removesuffix("/init.scope")
            found[parts[1]] = tuple(part for part in path.split("/") if part)
    return found


def _is_above(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Steps up from where we are, or a beginning of our own path."""
    if ".." in one or ".." in other:
        up = [sum(part == ".." for part in path) for path in (one, other)]
        return set(one) == {".."} and up[0] > up[1]
    return len(one) < len(other) and other[: len(one)] == one
