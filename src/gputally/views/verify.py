"""`gputally verify`: is every GPU node counted, fresh, attributed and adding up, as Prometheus sees it?"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gputally.model import Unreadable
from gputally.views.cluster import Kubectl
from gputally.views.prometheus_api import PrometheusApi, Series

GOOD, PROBLEM, UNCHECKED, NOTE = "good", "problem", "unchecked", "note"
CODES = {GOOD: 0, NOTE: 0, PROBLEM: 1, UNCHECKED: 2}

SELECTOR = "app.kubernetes.io/name=gputally"
FRESH_SECONDS = 60.0
LEAST_COVERAGE = 0.9
MOST_IMBALANCE = 1.0

_TARGETS = 'up{job=~".*gputally.*"} or (up and on (job) count by (job) (gputally_up))'
_AGE = "time() - gputally_snapshot_timestamp_seconds"
_COVERAGE = "min by (job, instance) (gputally_gpu_attribution_coverage_ratio)"
_PARTS = (
    '{__name__=~"gputally_namespace_(idle_)?energy_joules_total|'
    'gputally_gpu_(idle|unattributed)_energy_joules_total|gputally_gpu_pending_energy_joules"}'
)
_IMBALANCE = (
    "max by (job, instance) (abs(sum by (job, instance, uuid) (gputally_gpu_energy_joules_total) - "
    f"sum by (job, instance, uuid) ({_PARTS})))"
)
_NO_HOST_PID = 'gputally_host_pid{mode="no"} == 1'
_YIELDED = "it was told to let go of its GPUs, and has not taken them up again"
_TWICE = "count by (uuid) (gputally_gpu_up) > 1"
_RENAMED = '{__name__="gputally_workload_active", exported_pod!=""}'

Key = tuple[str, str]


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    subject: str
    verdict: str
    words: str


@dataclass(frozen=True)
class Request:
    """What to verify: a Prometheus, a cluster, or both; and how long that may take."""

    url: str | None
    token: str = ""
    ca_file: str | None = None
    kubectl: str = "auto"
    selector: str = SELECTOR
    seconds: float = 30.0


def verify(request: Request) -> list[Finding]:
    """Everything that was looked at, and how it is."""
    deadline = time.monotonic() + request.seconds
    findings: list[Finding] = []
    seen: set[str] | None = None
    if request.url is None:
        findings.append(Finding("prometheus", UNCHECKED, "no --prometheus.url was given"))
    else:
        try:
            api = PrometheusApi(request.url, deadline, request.token, request.ca_file)
            found, seen = _prometheus(api)
            findings += found
        except Unreadable as error:
            findings.append(Finding("prometheus", UNCHECKED, str(error)))
    findings += _cluster(request, deadline, seen)
    if any(finding.subject == "GPU nodes" for finding in findings) and request.url is None:
        findings[0] = Finding("prometheus", NOTE, findings[0].words)
    return findings


def table(findings: Iterable[Finding]) -> str:
    """The findings for a person to read, and one sentence that sums them up."""
    rows = [("CHECK", "RESULT", "FOUND"), *((f.subject, f.verdict, f.words) for f in findings)]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{subject:<{wide[0]}}  {verdict:<{wide[1]}}  {words}" for subject, verdict, words in rows]
    return "\n".join([*lines, "", _sum(findings)]) + "\n"


def exit_code(findings: Iterable[Finding]) -> int:
    """0 all good, 1 problems, 2 something could not be checked and no problem is known."""
    codes = {CODES[finding.verdict] for finding in findings}
    return 1 if 1 in codes else 2 if 2 in codes else 0


def _sum(findings: Iterable[Finding]) -> str:
    verdicts = [finding.verdict for finding in findings]
    problems, unchecked = verdicts.count(PROBLEM), verdicts.count(UNCHECKED)
    if problems or unchecked:
        return f"{problems} problems, {unchecked} not checked; docs/OPERATIONS.md says what to do"
    return "all good"


def _prometheus(api: PrometheusApi) -> tuple[list[Finding], set[str]]:
    targets = api.query(_TARGETS)
    sources = {_key(labels): value for labels, value in api.query("gputally_up")}
    findings = [Finding("prometheus", GOOD, "answers queries")]
    if not targets and not sources:
        words = "Prometheus has no target of gputally: see PodMonitor labels and namespaces"
        return [*findings, Finding("targets", PROBLEM, words)], set()
    down = {_key(labels): _node(labels) for labels, value in targets if not value}
    words = f"{len(targets) - len(down)} of {len(targets)} are up"
    findings.append(Finding("targets", PROBLEM if down else GOOD, words))
    errors = api.target_errors() if down else {}
    for (job, instance), node in down.items():
        why = errors.get(instance, "the last scrape failed")
        findings.append(Finding(f"node {node}", PROBLEM, f"{instance} ({job}): {why}"))
    findings += _nodes(
        api, {key: n for labels, _ in targets if (key := _key(labels)) and (n := _node(labels))}
    )
    findings += _doubles(api)
    return findings, {labels["node"] for labels, _ in api.query("gputally_up") if "node" in labels}


def _nodes(api: PrometheusApi, names: dict[Key, str]) -> Iterator[Finding]:
    """One line for every instance that gputally's metrics come from."""
    up = _by_key(api.query("gputally_up"))
    ages, gpus = _by_key(api.query(_AGE)), _by_key(api.query("count by (job, instance) (gputally_gpu_up)"))
    lost = _by_key(api.query("count by (job, instance) (gputally_gpu_up == 0)"))
    coverage, imbalance = _by_key(api.query(_COVERAGE)), _by_key(api.query(_IMBALANCE))
    blind, yielded = _by_key(api.query(_NO_HOST_PID)), _by_key(api.query("gputally_yielded == 1"))
    for key in sorted(up, key=lambda key: names.get(key, key[1])):
        troubles = [
            *([_YIELDED] if key in yielded else _silent(up[key], lost.get(key))),
            *(_old(ages.get(key))),
            *([] if gpus.get(key) else ["no GPU"]),
            *(["not in the host's PID namespace: set hostPID"] if key in blind else []),
            *(_uncovered(coverage.get(key))),
            *(_unbalanced(imbalance.get(key))),
        ]
        subject = f"node {names.get(key, key[1])}"
        if troubles:
            yield Finding(subject, PROBLEM, "; ".join(troubles))
        else:
            yield Finding(subject, GOOD, _well(gpus[key], ages[key], coverage.get(key), imbalance.get(key)))


def _well(gpus: float, age: float, coverage: float | None, imbalance: float | None) -> str:
    traced = "coverage not told" if coverage is None else f"coverage {coverage:.0%}"
    sums = "no energy is told" if imbalance is None else "the joules add up"
    return f"{gpus:g} GPUs, {max(age, 0):.0f} s old, {traced}, {sums}"


def _silent(up: float, lost: float | None) -> list[str]:
    nothing = [] if up else ["no source of GPU data answers"]
    return [*nothing, *([f"{lost:g} GPUs do not answer"] if lost else [])]


def _old(age: float | None) -> list[str]:
    if age is None:
        return ["it does not say when its numbers were taken"]
    return [f"its numbers are {age:.0f} s old, or its clock is wrong"] if abs(age) > FRESH_SECONDS else []


def _uncovered(coverage: float | None) -> list[str]:
    low = coverage is not None and coverage < LEAST_COVERAGE
    return [f"only {coverage:.0%} of a GPU's use is traced to an owner"] if low else []


def _unbalanced(joules: float | None) -> list[str]:
    off = joules is not None and joules > MOST_IMBALANCE
    return [f"the joules do not add up: {joules:g} J are off"] if off else []


def _doubles(api: PrometheusApi) -> Iterator[Finding]:
    """What makes sums wrong without any target being down."""
    twice = api.query(_TWICE)
    if twice:
        words = f"{len(twice)} GPUs are scraped more than once: keep one monitor or scrape job"
        yield Finding("scraped once", PROBLEM, words)
    if api.query(_RENAMED):
        words = "pods are shown as exported_pod: the scrape needs honor_labels (honorLabels: true)"
        yield Finding("labels", PROBLEM, words)


def _cluster(request: Request, deadline: float, seen: set[str] | None) -> Iterator[Finding]:
    missing = Kubectl.why_not()
    if request.kubectl == "off":
        return
    if missing is not None:
        yield Finding("cluster", NOTE if request.kubectl == "auto" else UNCHECKED, f"not asked: {missing}")
        return
    kubectl = Kubectl(request.selector, deadline)
    try:
        nodes = kubectl.gpu_nodes()
        yield Finding("GPU nodes", GOOD if nodes else PROBLEM, f"{len(nodes)} in the cluster")
        yield from _daemon_sets(kubectl, len(nodes))
        yield _monitors(kubectl)
        for name, sync, health in kubectl.applications():
            good = (sync, health) == ("Synced", "Healthy")
            yield Finding(f"application {name}", GOOD if good else PROBLEM, f"{sync}, {health}")
    except Unreadable as error:
        yield Finding("cluster", UNCHECKED, str(error))
        return
    if seen is not None:
        yield _met(nodes, seen)


def _daemon_sets(kubectl: Kubectl, nodes: int) -> Iterator[Finding]:
    found = kubectl.daemon_sets()
    if not found:
        yield Finding(
            "DaemonSet", PROBLEM, f"none with {SELECTOR}; --kubernetes.selector names another label"
        )
    for item in found:
        status = item.get("status") or {}
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        good = ready == wanted and wanted >= nodes
        words = f"{ready} of {wanted} pods ready, for {nodes} GPU nodes"
        hint = "" if wanted >= nodes else ": see its node selector and tolerations"
        name = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        yield Finding(f"DaemonSet {name}", GOOD if good else PROBLEM, words + hint)


def _monitors(kubectl: Kubectl) -> Finding:
    found = kubectl.monitors()
    if not found:
        return Finding("monitors", NOTE, "none; well if Prometheus is told otherwise to scrape gputally")
    if len(found) > 1:
        return Finding("monitors", PROBLEM, f"{len(found)}, so GPUs are scraped twice: {', '.join(found)}")
    return Finding("monitors", GOOD, found[0])


def _met(nodes: list[str], seen: set[str]) -> Finding:
    """Whether Prometheus has metrics of every GPU node."""
    if nodes and not seen:
        return Finding("nodes covered", PROBLEM, "no series has a label `node`: the shipped monitors add it")
    missing = [node for node in nodes if node not in seen]
    if missing:
        return Finding("nodes covered", PROBLEM, f"no metrics of {', '.join(missing)}")
    return Finding("nodes covered", GOOD, f"Prometheus has metrics of all {len(nodes)} GPU nodes")


def _key(labels: object) -> Key:
    assert isinstance(labels, dict)
    return labels.get("job", ""), labels.get("instance", "")


def _node(labels: object) -> str:
    assert isinstance(labels, dict)
    return str(labels.get("node") or labels.get("instance", "?"))


def _by_key(series: Series) -> dict[Key, float]:
    return {_key(labels): value for labels, value in series}
