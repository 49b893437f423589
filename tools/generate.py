"""Writes the reference pages from the tables in the code; with --check, only says which are not current."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gputally.config import SETTINGS
from gputally.dialects import DEFAULTS, DIALECTS
from gputally.metrics import Metric

ROOT = Path(__file__).parent.parent
NOTE = "<!-- Written by `make generate`; change the table in the code, not this page. -->\n"

SCOPES = {
    "exporter": "About gputally itself.",
    "source": "One per source of data.",
    "gpu": "One per GPU, also while it does not answer.",
    "device": "One per GPU that answers; withdrawn while it does not.",
    "mig": "One per MIG instance of a GPU that answers.",
    "workload": "One per owner and GPU: all processes of one owner on one GPU together.",
    "owner": "One per container that uses a GPU or was granted one; chosen pod labels are added to it.",
    "grant": "One per container and GPU or MIG instance, granted or used; none where nobody tells of grants.",
    "limit": "One per container and GPU or MIG instance, granted or used, and per method that says a limit.",
    "namespace": "One per namespace and GPU, never retired: what an auditor adds up.",
    "call": "One per NVML call.",
    "purplepill_gpu": "One per GPU.",
    "purplepill_pod": "One per GPU and pod, or container outside Kubernetes.",
    "stay": "One per process and GPU, kept for the retention time after it ended.",
    "pod_gpu": "One per GPU, or per GPU and pod; power and energy of a GPU's rows add up to the GPU's.",
    "vgpu": "One per GPU and pod.",
    "dcgm": "One per GPU or MIG instance, or per pod on it; power and energy add up to the GPU's.",
    "nvidia_smi": "One per GPU.",
    "process": "One per process and GPU, with `--process-metrics on`.",
    "engines": "One per process and GPU that the driver saw busy, with `--process-metrics on`.",
}


def metrics_page() -> str:
    """docs/METRICS.md."""
    parts = [
        "# Metrics\n",
        NOTE,
        "Base units; counters end in `_total`; what is not known has no sample, so absent is never zero.",
        "A name here is a promise: a change is listed under *Metrics* in the changelog.\n",
    ]
    for dialect, table in DIALECTS.items():
        metrics = table.metrics(DEFAULTS)
        parts.append(f"## Dialect `{dialect}`\n")
        for scope in dict.fromkeys(metric.scope.name for metric in metrics):
            rows = [metric for metric in metrics if metric.scope.name == scope]
            parts += [f"### {scope}\n", SCOPES[scope] + _shared(rows) + "\n", *_table(rows), ""]
    return "\n".join(parts)


def _shared(rows: Sequence[Metric]) -> str:
    labels = ", ".join(f"`{label}`" for label in rows[0].scope.labels)
    return f" Labels: {labels}; and those named with the metric." if labels else ""


def _table(rows: Sequence[Metric]) -> Iterable[str]:
    """With where a reading comes from, since when and what its absence means, where that is said."""
    told = any(metric.source for metric in rows)
    more = " from | since | absent means |" if told else ""
    yield f"| metric | type | meaning |{more}"
    yield "|---|---|---|" + ("---|---|---|" if told else "")
    for metric in rows:
        by = f"`{{{', '.join(metric.by)}}}`" if metric.by else ""
        cells = [f"`{metric.name}`{by}", metric.type, metric.help]
        cells += [metric.source, metric.since, metric.absent] if told else []
        yield "| " + " | ".join(cell.replace("|", "&#124;") for cell in cells) + " |"


def config_page() -> str:
    """docs/CONFIG.md."""
    lines = [
        "# Settings\n",
        NOTE,
        "A flag wins over its variable, a variable over the default. Durations are written 500ms, 5s, 1m30s.",
        "A value that cannot be used ends the program with code 2, and a sentence says what is allowed.\n",
        "| flag | variable | default | meaning |",
        "|---|---|---|---|",
    ]
    for setting in SETTINGS:
        shape = setting.shape.replace("|", "&#124;")
        default = f"`{setting.default}`" if setting.default else ""
        meaning = setting.help.replace("|", "&#124;")
        lines.append(f"| `--{setting.flag}` {shape} | `{setting.variable}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {"docs/METRICS.md": metrics_page, "docs/CONFIG.md": config_page}


def main() -> int:
    """Write or check every page."""
    check = sys.argv[1:] == ["--check"]
    stale = [name for name, page in PAGES.items() if _read(ROOT / name) != page()]
    if check:
        for name in stale:
            print(f"{name} is not current; run `make generate`", file=sys.stderr)
        return int(bool(stale))
    for name in stale:
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    print(f"{len(stale)} pages written, {len(PAGES) - len(stale)} were current")
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
