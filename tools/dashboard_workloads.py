"""Who uses GPUs: namespace, then workload, then pod."""

from __future__ import annotations

from tools.dashboard_parts import Board, Panel, Row, table
from tools.dashboard_variables import ALL, OF_NAMESPACE, OF_WORKLOAD, ON_GPU, ON_NODE, RATE

_DIVIDED = "Measured for the GPU; divided by activity where several were active."
_POD = "cluster, node, namespace, pod, container, workload, gpu"


def _by(labels: str, metric: str, chosen: str = OF_WORKLOAD) -> str:
    return f"sum by ({labels}) (rate({metric}{{{chosen}}}[{RATE}]))"


WORKLOADS = Board(
    "gputally-workloads",
    "gputally-workloads",
    "gputally / Workloads",
    "Who uses GPUs: by namespace, then workload, then pod and container.",
    ALL,
    (
        Row("Namespaces"),
        Panel(
            "Power by namespace",
            "watt",
            f"Power above idle of each namespace's workloads. {_DIVIDED}",
            (
                (
                    _by("kind, namespace", "gputally_namespace_energy_joules_total", OF_NAMESPACE),
                    "{{kind}} {{namespace}}",
                ),
            ),
            stack=True,
        ),
        Panel(
            "GPUs kept busy, by namespace",
            "short",
            "Busy seconds per second: 2 is two GPUs' worth of time in which kernels ran.",
            (
                (
                    _by("kind, namespace", "gputally_namespace_sm_busy_seconds_total", OF_NAMESPACE),
                    "{{kind}} {{namespace}}",
                ),
            ),
            stack=True,
        ),
        Row("Workloads"),
        Panel(
            "Power by workload",
            "watt",
            f"The 15 workloads with most power above idle. {_DIVIDED}",
            (
                (
                    f"topk(15, {_by('namespace, workload', 'gputally_workload_energy_joules_total')})",
                    "{{namespace}} {{workload}}",
                ),
            ),
        ),
        Panel(
            "GPU memory by workload",
            "bytes",
            "The 15 workloads with most GPU memory, as the driver counts it.",
            (
                (
                    f"topk(15, sum by (namespace, workload) "
                    f"(gputally_workload_memory_used_bytes{{{OF_WORKLOAD}}}))",
                    "{{namespace}} {{workload}}",
                ),
            ),
        ),
        Panel(
            "GPUs kept busy, by workload",
            "short",
            "Busy seconds per second of the 15 busiest workloads.",
            (
                (
                    f"topk(15, {_by('namespace, workload', 'gputally_workload_sm_busy_seconds_total')})",
                    "{{namespace}} {{workload}}",
                ),
            ),
        ),
        Panel(
            "Part of the energy that was divided",
            "percentunit",
            "0: each was alone on its GPU, so it is measured. 1: all of it was divided between several.",
            (
                (
                    f"{_by('namespace, workload', 'gputally_workload_estimated_energy_joules_total')} / "
                    f"({_by('namespace, workload', 'gputally_workload_energy_joules_total')} > 0)",
                    "{{namespace}} {{workload}}",
                ),
            ),
        ),
        Row("Pods"),
        Panel(
            "Busy on the GPU",
            "percentunit",
            "Part of time in which the driver's samples saw the container busy, by GPU.",
            (
                (
                    f"sum by ({_POD}) (gputally_workload_sm_utilization_ratio{{{OF_WORKLOAD}}})",
                    "{{namespace}}/{{pod}} {{workload}} {{node}} GPU {{gpu}}",
                ),
            ),
        ),
        Panel(
            "GPU memory",
            "bytes",
            "GPU memory of each container, by GPU.",
            (
                (
                    f"sum by ({_POD}) (gputally_workload_memory_used_bytes{{{OF_WORKLOAD}}})",
                    "{{namespace}}/{{pod}} {{workload}} {{node}} GPU {{gpu}}",
                ),
            ),
        ),
        Panel(
            "GPU memory as a part of its limit",
            "percentunit",
            "Only where a vGPU limit is known; the method says how it was found.",
            (
                (
                    f"gputally_workload_memory_used_bytes{{{OF_WORKLOAD}}} / "
                    f"ignoring (method) group_right () gputally_workload_memory_limit_bytes{{{OF_WORKLOAD}}}",
                    "{{namespace}}/{{pod}} {{workload}} {{method}}",
                ),
            ),
        ),
        Panel(
            "Processes",
            "short",
            "Processes of each container that hold a context.",
            (
                (
                    f"sum by ({_POD}) (gputally_workload_processes{{{OF_WORKLOAD}}})",
                    "{{namespace}}/{{pod}} {{workload}} {{node}} GPU {{gpu}}",
                ),
            ),
        ),
        Row("Granted and used"),
        table(
            "Granted, yet idle for half an hour",
            "short",
            "Containers that hold a GPU of Kubernetes and were not busy on it.",
            "sum by (cluster, node, namespace, pod, container, workload, gpu) "
            f"(workload:gputally_granted_idle{{{OF_WORKLOAD}}})",
            "Idle",
        ),
        table(
            "Used without a grant",
            "short",
            "Who holds a context on a GPU that Kubernetes did not allocate to it.",
            f"sum by (kind, cluster, node, namespace, pod, container, workload, gpu) "
            f"(gputally_workload_granted{{{OF_WORKLOAD}}} == 0)",
            "Granted",
        ),
        table(
            "Containers",
            "short",
            "Uid and id of every container on a GPU or with one; chosen pod labels are columns too.",
            f'gputally_workload_info{{{ON_NODE}, namespace=~"$namespace", workload=~"$workload"}}',
            "There",
            ("instance", "container_id"),
        ),
        Panel(
            "Coverage of attribution",
            "percentunit",
            "The part of each GPU's use that is traced to somebody.",
            (
                (
                    f"min by (node, gpu) (gputally_gpu_attribution_coverage_ratio{{{ON_GPU}}})",
                    "{{node}} GPU {{gpu}}",
                ),
            ),
        ),
    ),
)
