"""Where the joules go, and what they cost where a price is known."""

from __future__ import annotations

from tools.dashboard_parts import Board, Panel, Row, stat, table
from tools.dashboard_variables import ALL, OF_NAMESPACE, OF_WORKLOAD, ON_GPU, ON_NODE, RANGE, RATE

_DIVIDED = "Shares of the measured whole; divided by activity where several were active."


def _kwh(metric: str, chosen: str, by: str = "") -> str:
    return f"sum{by} (increase({metric}{{{chosen}}}[{RANGE}])) / 3.6e6"


def _watts(metric: str, chosen: str = ON_GPU, by: str = "") -> str:
    return f"sum{by} (rate({metric}{{{chosen}}}[{RATE}]))"


_IN_CLUSTER = 'cluster=~"$cluster", namespace=~"$namespace"'

ENERGY = Board(
    "gputally-energy",
    "gputally-energy",
    "gputally / Energy and cost",
    "Every joule of the GPUs: charged to a namespace, idle, or unattributed for a named reason.",
    ALL,
    (
        Row("In this time"),
        stat(
            "Energy",
            "kwatth",
            "Energy of whole GPUs, measured.",
            _kwh("gputally_gpu_energy_joules_total", ON_GPU),
        ),
        stat(
            "Charged",
            "kwatth",
            f"Energy above idle charged to namespaces. {_DIVIDED}",
            _kwh("gputally_namespace_energy_joules_total", OF_NAMESPACE),
        ),
        stat(
            "Idle",
            "kwatth",
            "Idle energy charged to nobody.",
            _kwh("gputally_gpu_idle_energy_joules_total", ON_GPU),
        ),
        stat(
            "Unattributed",
            "kwatth",
            "Energy above idle that nobody could be charged for.",
            _kwh("gputally_gpu_unattributed_energy_joules_total", ON_GPU),
        ),
        stat(
            "Wasted now",
            "watt",
            "Power of GPUs on which nobody was busy for half an hour.",
            f"sum(gpu:gputally_idle_waste_watts:rate30m{{{ON_GPU}}})",
        ),
        stat(
            "Granted, yet idle",
            "short",
            "Devices that Kubernetes allocated and nobody was busy on for half an hour.",
            f"sum(namespace:gputally_granted_idle_gpus:count{{{_IN_CLUSTER}}})",
        ),
        Row("Where the power goes"),
        Panel(
            "Charged, idle and unattributed",
            "watt",
            "The three add up to what the GPUs draw, but for energy that is pending for some seconds.",
            (
                (_watts("gputally_namespace_energy_joules_total"), "charged"),
                (_watts("gputally_namespace_idle_energy_joules_total"), "idle, charged by policy"),
                (_watts("gputally_gpu_idle_energy_joules_total"), "idle"),
                (
                    _watts("gputally_gpu_unattributed_energy_joules_total", by=" by (reason)") + " > 0",
                    "unattributed: {{reason}}",
                ),
            ),
            stack=True,
        ),
        Panel(
            "Idle power of every GPU",
            "watt",
            "What counts as idle: configured, or learned while no process held a context.",
            (
                (
                    f"max by (node, gpu, source) (gputally_gpu_idle_watts{{{ON_GPU}}})",
                    "{{node}} GPU {{gpu}} {{source}}",
                ),
            ),
        ),
        table(
            "Energy by namespace",
            "kwatth",
            f"In the chosen time. {_DIVIDED}",
            "sort_desc("
            + _kwh("gputally_namespace_energy_joules_total", OF_NAMESPACE, " by (cluster, kind, namespace)")
            + ")",
            "kWh",
        ),
        table(
            "Energy by workload",
            "kwatth",
            f"In the chosen time, of workloads that were seen at its end. {_DIVIDED}",
            "sort_desc("
            + _kwh(
                "gputally_workload_energy_joules_total",
                OF_WORKLOAD,
                " by (cluster, kind, namespace, workload)",
            )
            + ")",
            "kWh",
        ),
        Panel(
            "Energy per busy second, by workload",
            "joule",
            "Joules above idle for one second in which the workload was busy: lower is thriftier.",
            (
                (
                    _watts("gputally_workload_energy_joules_total", OF_WORKLOAD, " by (namespace, workload)")
                    + " / ("
                    + _watts(
                        "gputally_workload_sm_busy_seconds_total", OF_WORKLOAD, " by (namespace, workload)"
                    )
                    + " > 0)",
                    "{{namespace}} {{workload}}",
                ),
            ),
        ),
        Panel(
            "How far learned cost is believed",
            "percentunit",
            "0: shares by busy time alone. 1: wholly by the learned cost of a busy second.",
            (
                (
                    f"avg by (node, gpu) (gputally_gpu_intensity_trust_ratio{{{ON_GPU}}})",
                    "{{node}} GPU {{gpu}}",
                ),
            ),
        ),
        Row("Trend (recording rules)"),
        Panel(
            "Energy per hour, by namespace",
            "kwatth",
            "kWh of the hour before each point; recorded, so that it outlives the raw series.",
            (
                (
                    f"namespace:gputally_energy_kwh:increase1h{{{_IN_CLUSTER}}}",
                    "{{cluster}} {{kind}} {{namespace}}",
                ),
            ),
            stack=True,
        ),
        Panel(
            "Energy per hour, by node",
            "kwatth",
            "kWh of whole GPUs in the hour before each point, and the idle part of it.",
            (
                (f"node:gputally_energy_kwh:increase1h{{{ON_NODE}}}", "{{node}}"),
                (f"node:gputally_idle_energy_kwh:increase1h{{{ON_NODE}}}", "{{node}} idle"),
            ),
        ),
        Row("Cost and CO₂ (only where you record a price and an intensity)"),
        Panel(
            "Cost per hour, by namespace",
            "short",
            "In the currency of gputally:price_per_kwh; empty until you record that series.",
            ((f"namespace:gputally_cost:increase1h{{{_IN_CLUSTER}}}", "{{namespace}} {{currency}}"),),
            stack=True,
        ),
        Panel(
            "CO₂ per hour, by namespace",
            "massg",
            "Grams by gputally:co2_grams_per_kwh; empty until you record that series.",
            ((f"namespace:gputally_co2_grams:increase1h{{{_IN_CLUSTER}}}", "{{namespace}}"),),
            stack=True,
        ),
        Panel(
            "Cost of idle power per hour, by node",
            "short",
            "What GPUs cost while idle, charged to nobody.",
            ((f"node:gputally_idle_cost:increase1h{{{ON_NODE}}}", "{{node}} {{currency}}"),),
        ),
        Panel(
            "Cost per hour, by workload",
            "short",
            f"The 15 dearest. {_DIVIDED}",
            (
                (
                    f'topk(15, workload:gputally_cost:increase1h{{{_IN_CLUSTER}, workload=~"$workload"}})',
                    "{{namespace}} {{workload}} {{currency}}",
                ),
            ),
        ),
    ),
    span="24h",
    refresh="1m",
)
