"""Health of gputally itself, and of its accounts."""

from __future__ import annotations

from tools.dashboard_parts import Board, Panel, Row, stat, table
from tools.dashboard_variables import CLUSTER, GPU, NODE, ON_GPU, ON_NODE, RATE


def _per_second(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{ON_NODE}}}[{RATE}]))"


EXPORTER = Board(
    "gputally-exporter",
    "gputally-exporter",
    "gputally / Exporter health",
    "Is gputally itself well: scraped, fresh, cheap, able to see processes, and do its joules add up?",
    (CLUSTER, NODE, GPU),
    (
        Row("Now"),
        stat("Nodes", "short", "Nodes that are scraped.", f"count(gputally_up{{{ON_NODE}}})"),
        stat(
            "Without GPU data",
            "short",
            "Nodes on which no source of GPU data answers.",
            f"count(gputally_up{{{ON_NODE}}}) - sum(gputally_up{{{ON_NODE}}})",
            (1,),
        ),
        stat(
            "Oldest numbers",
            "s",
            "Age of the oldest snapshot; the node's clock counts too.",
            f"max(time() - gputally_snapshot_timestamp_seconds{{{ON_NODE}}})",
            (30, 60),
        ),
        stat(
            "Calls that hang",
            "short",
            "Calls that have not returned within their deadline.",
            f"sum(gputally_stuck_calls{{{ON_NODE}}})",
            (1,),
        ),
        stat(
            "Imbalance",
            "joule",
            "Largest difference between a GPU's energy and the sum of its parts; rounding aside it is 0.",
            f"max(abs(gpu:gputally_energy_imbalance_joules{{{ON_GPU}}}))",
            (0.1, 1),
        ),
        stat(
            "Blind nodes",
            "short",
            "Nodes on which gputally is not in the host's PID namespace.",
            f'sum(gputally_host_pid{{{ON_NODE}, mode="no"}})',
            (1,),
        ),
        Row("Sources"),
        table(
            "Sources and resolvers",
            "short",
            "1 if it answered when last asked.",
            f"min by (cluster, node, source) (gputally_source_up{{{ON_NODE}}})",
            "Up",
        ),
        table(
            "Versions",
            "short",
            "Which version runs where, on which kind of machine.",
            f"count by (cluster, version, machine) (gputally_build_info{{{ON_NODE}}})",
            "Nodes",
        ),
        Panel(
            "Time a source takes",
            "s",
            "Time of the newest reading, by source; the slowest node.",
            ((f"max by (source) (gputally_source_duration_seconds{{{ON_NODE}}})", "{{source}}"),),
        ),
        Panel(
            "Age of answers",
            "s",
            "Time since each source last answered; the worst node.",
            ((f"max by (source) (gputally_source_age_seconds{{{ON_NODE}}})", "{{source}}"),),
        ),
        Panel(
            "NVML errors",
            "short",
            "Calls that failed, per second; unsupported calls are not failures.",
            ((_per_second("gputally_nvml_errors_total", "node, call, code"), "{{node}} {{call}} {{code}}"),),
        ),
        Panel(
            "Time of an NVML call",
            "s",
            "Mean time of one call; the five slowest kinds.",
            (
                (
                    f"topk(5, {_per_second('gputally_nvml_call_seconds_total', 'call')} / "
                    f"({_per_second('gputally_nvml_calls_total', 'call')} > 0))",
                    "{{call}}",
                ),
            ),
        ),
        Panel(
            "Processes, by how they were traced",
            "short",
            "All nodes together.",
            ((f"sum by (result) (gputally_processes{{{ON_NODE}}})", "{{result}}"),),
            stack=True,
        ),
        Row("Accounts"),
        Panel(
            "Pending energy",
            "joule",
            "Energy whose owner's name is still coming, or whose series was not scraped yet.",
            ((f"sum by (node) (gputally_gpu_pending_energy_joules{{{ON_GPU}}})", "{{node}}"),),
        ),
        Panel(
            "Imbalance of every GPU",
            "joule",
            "A GPU's energy less the sum of its parts.",
            ((f"gpu:gputally_energy_imbalance_joules{{{ON_GPU}}}", "{{node}} GPU {{gpu}}"),),
        ),
        Panel(
            "Unattributed part of the energy",
            "percentunit",
            "Over an hour, by GPU.",
            ((f"gpu:gputally_unattributed_ratio:rate1h{{{ON_GPU}}}", "{{node}} GPU {{gpu}}"),),
        ),
        Panel(
            "Counter resets and impossible energy",
            "short",
            "Resets of hardware counters, and joules set aside because the power limit does not allow them.",
            (
                (
                    f"sum by (node) (increase(gputally_gpu_energy_resets_total{{{ON_GPU}}}[1h]))",
                    "{{node}} resets",
                ),
                (
                    f"sum by (node) (increase(gputally_gpu_energy_discarded_joules_total{{{ON_GPU}}}[1h]))",
                    "{{node}} joules set aside",
                ),
            ),
        ),
        Panel(
            "Readings and series left out",
            "short",
            "Per second: readings that cannot be true, and series beyond a bound.",
            (
                (
                    _per_second("gputally_samples_dropped_total", "node, reason"),
                    "{{node}} readings: {{reason}}",
                ),
                (_per_second("gputally_series_dropped_total", "node, reason"), "{{node}} series: {{reason}}"),
            ),
        ),
        Panel(
            "Own errors",
            "short",
            "Ticks that ended in an error of gputally itself, per second.",
            ((_per_second("gputally_faults_total", "node"), "{{node}}"),),
        ),
        Row("Cost of watching"),
        Panel(
            "CPU",
            "percentunit",
            "Part of one core.",
            ((_per_second("gputally_self_cpu_seconds_total", "node"), "{{node}}"),),
        ),
        Panel(
            "Memory",
            "bytes",
            "Resident memory.",
            ((f"sum by (node) (gputally_self_resident_memory_bytes{{{ON_NODE}}})", "{{node}}"),),
        ),
        Panel(
            "Series per node",
            "short",
            "Series of the newest scrape.",
            (('sum by (node) (scrape_samples_scraped{job=~".*gputally.*", ' + ON_NODE + "})", "{{node}}"),),
        ),
        Panel(
            "Scrape time",
            "s",
            "Time Prometheus waits for an answer.",
            (('max by (node) (scrape_duration_seconds{job=~".*gputally.*", ' + ON_NODE + "})", "{{node}}"),),
        ),
    ),
)
