"""What kubectl tells of a cluster: GPU nodes, our DaemonSet, who has us scraped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

from gputally.model import Unreadable

GPU_LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "cloud.google.com/gke-accelerator",
)
MONITORS = ("podmonitors", "servicemonitors", "scrapeconfigs")

Item = dict[str, Any]


class Kubectl:
    """The kubectl of this machine, with whatever cluster it is set up for."""

    def __init__(self, selector: str, deadline: float) -> None:
        """`selector` finds our objects; `deadline` is a moment of the monotonic clock."""
        self._selector = selector
        self._deadline = deadline

    @staticmethod
    def why_not() -> str | None:
        """Why there is no cluster to ask, or None."""
        if shutil.which("kubectl") is None:
            return "kubectl is not on the PATH"
        configured = os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST")
        if configured or os.path.exists(os.path.expanduser("~/.kube/config")):
            return None
        return "kubectl is set up for no cluster"

    def gpu_nodes(self) -> list[str]:
        """Names of nodes that have GPUs, by what they can allocate or by their labels."""
        return sorted(node["metadata"]["name"] for node in self._items("nodes") if _has_gpus(node))

    def daemon_sets(self) -> list[Item]:
        """Our DaemonSets in all namespaces."""
        return self._items("daemonsets.apps", self._selector)

    def monitors(self) -> list[str]:
        """Who tells a Prometheus operator to scrape us, as kind namespace/name."""
        found = []
        for kind in MONITORS:
            items = self._items(f"{kind}.monitoring.coreos.com", self._selector, optional=True)
            found += [f"{item.get('kind', kind)} {_name(item)}" for item in items]
        return found

    def applications(self) -> list[tuple[str, str, str]]:
        """Argo CD applications named after us: name, sync, health."""
        items = self._items("applications.argoproj.io", optional=True)
        ours = [item for item in items if "gputally" in item["metadata"]["name"]]
        return [(_name(item), _status(item, "sync"), _status(item, "health")) for item in ours]

    def _items(self, kind: str, selector: str = "", *, optional: bool = False) -> list[Item]:
        left = max(1, int(self._deadline - time.monotonic()))
        command = ["kubectl", "get", kind, "--all-namespaces", "--output=json", f"--request-timeout={left}s"]
        if kind == "nodes":
            command.remove("--all-namespaces")
        if selector:
            command.append(f"--selector={selector}")
        code, out, errors = self._run(command)
        if code and optional and "have a resource type" in errors:
            return []
        if code:
            raise Unreadable(f"kubectl get {kind}: {_last_line(errors) or f'ended with {code}'}")
        try:
            items: list[Item] = json.loads(out)["items"]
        except (ValueError, KeyError, TypeError):
            raise Unreadable(f"kubectl get {kind}: its answer is not a list of objects") from None
        return items

    def _run(self, command: list[str]) -> tuple[int, str, str]:
        pipe = subprocess.PIPE
        try:
            # Our own words and a selector that kubectl takes as one argument; no shell.
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise Unreadable(f"kubectl cannot be run: {error.strerror}") from None
        try:
            out, errors = process.communicate(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            # Not waited for: it may be in a state that nothing ends.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise Unreadable(f"kubectl get {command[2]}: no answer in time") from None
        return process.returncode, out, errors


def _has_gpus(node: Item) -> bool:
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    granted = any(k.startswith("nvidia.com/") and v not in ("0", 0) for k, v in allocatable.items())
    return granted or any(labels.get(label) not in (None, "false") for label in GPU_LABELS)


def _name(item: Item) -> str:
    meta = item["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _status(item: Item, part: str) -> str:
    return str(((item.get("status") or {}).get(part) or {}).get("status", "unknown"))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
