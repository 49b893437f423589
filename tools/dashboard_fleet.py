"""The fleet: which GPUs there are, how they are, and what they do."""

from __future__ import annotations

from tools.dashboard_parts import Board, Panel, Row, stat, table
from tools.dashboard_variables import CLUSTER, GPU, NODE, ON_GPU, RANGE, RATE

FLEET = Board(
    "gputally-fleet",
    "gputally-fleet",
    "gputally / Fleet",
    "Every GPU: state, use, power, heat and errors, as the hardware tells it.",
    (CLUSTER, NODE, GPU),
    (
        Row("Now"),
        stat("GPUs that answer", "short", "GPUs that answer now.", f"sum(gputally_gpu_up{{{ON_GPU}}})"),
        stat(
            "GPUs that do not",
            "short",
            "GPUs that are lost, hung or failing.",
            f"count(gputally_gpu_up{{{ON_GPU}}}) - sum(gputally_gpu_up{{{ON_GPU}}})",
            (1,),
        ),
        stat("Power", "watt", "Power all GPUs draw.", f"sum(gputally_gpu_power_watts{{{ON_GPU}}})"),
        stat(
            "Utilization",
            "percentunit",
            "Part of time in which a kernel ran, averaged over GPUs; not the part of the GPU in use.",
            f"avg(gputally_gpu_utilization_ratio{{{ON_GPU}}})",
        ),
        stat(
            "Memory used",
            "percentunit",
            "Memory in use as a part of all GPU memory.",
            f"sum(gputally_gpu_memory_used_bytes{{{ON_GPU}}}) / "
            f"sum(gputally_gpu_memory_total_bytes{{{ON_GPU}}})",
        ),
        stat(
            "Lowest coverage",
            "percentunit",
            "Of the GPU whose use is least traced to owners: the part that is.",
            f"min(gputally_gpu_attribution_coverage_ratio{{{ON_GPU}}})",
        ),
        Row("Use"),
        Panel(
            "Utilization by node",
            "percentunit",
            "Part of time in which a kernel ran, averaged over the node's GPUs.",
            (
                (
                    f"avg by (cluster, node) (gputally_gpu_utilization_ratio{{{ON_GPU}}})",
                    "{{cluster}} {{node}}",
                ),
            ),
        ),
        Panel(
            "Power by node",
            "watt",
            "Power the GPUs of each node draw.",
            ((f"sum by (cluster, node) (gputally_gpu_power_watts{{{ON_GPU}}})", "{{cluster}} {{node}}"),),
            stack=True,
        ),
        Panel(
            "Memory used by node",
            "bytes",
            "GPU memory in use on each node.",
            (
                (
                    f"sum by (cluster, node) (gputally_gpu_memory_used_bytes{{{ON_GPU}}})",
                    "{{cluster}} {{node}}",
                ),
            ),
            stack=True,
        ),
        Panel(
            "What the parts of GPUs do",
            "percentunit",
            "Averages of the GPU's own meters (Hopper and newer): SM, tensor, memory and more.",
            ((f"avg by (part) (gputally_gpu_activity_ratio{{{ON_GPU}}})", "{{part}}"),),
        ),
        Panel(
            "PCIe traffic",
            "Bps",
            "Bytes per second over PCIe, by node and direction.",
            (
                (
                    f"sum by (node) (rate(gputally_gpu_pcie_transmit_bytes_total{{{ON_GPU}}}[{RATE}]))",
                    "{{node}} sent",
                ),
                (
                    f"sum by (node) (rate(gputally_gpu_pcie_receive_bytes_total{{{ON_GPU}}}[{RATE}]))",
                    "{{node}} received",
                ),
            ),
        ),
        Panel(
            "NVLink traffic",
            "Bps",
            "Bytes per second over NVLink, by node and direction.",
            (
                (
                    f"sum by (node) (rate(gputally_gpu_nvlink_transmit_bytes_total{{{ON_GPU}}}[{RATE}]))",
                    "{{node}} sent",
                ),
                (
                    f"sum by (node) (rate(gputally_gpu_nvlink_receive_bytes_total{{{ON_GPU}}}[{RATE}]))",
                    "{{node}} received",
                ),
            ),
        ),
        Row("Heat and clocks"),
        Panel(
            "Hottest GPUs",
            "celsius",
            "The ten hottest GPUs, by their own sensor.",
            (
                (
                    "topk(10, max by (node, gpu) "
                    f'(gputally_gpu_temperature_celsius{{{ON_GPU}, sensor="gpu"}}))',
                    "{{node}} GPU {{gpu}}",
                ),
            ),
        ),
        Panel(
            "GPUs held back, by reason",
            "short",
            "GPUs whose clocks a reason holds down now; a software power cap is the ordinary power limit.",
            (
                (
                    "sum by (reason) "
                    f'(gputally_gpu_throttle_active{{{ON_GPU}, reason!~"idle|applications_clocks"}})',
                    "{{reason}}",
                ),
            ),
        ),
        Panel(
            "SM clock",
            "hertz",
            "Clock of the multiprocessors, averaged per node.",
            ((f'avg by (node) (gputally_gpu_clock_hertz{{{ON_GPU}, clock="sm"}})', "{{node}}"),),
        ),
        Panel(
            "Power as a part of its limit",
            "percentunit",
            "The ten GPUs nearest to their power limit.",
            (
                (
                    f"topk(10, gputally_gpu_power_watts{{{ON_GPU}}} / "
                    f"gputally_gpu_power_limit_watts{{{ON_GPU}}})",
                    "{{node}} GPU {{gpu}}",
                ),
            ),
        ),
        Row("Health"),
        table(
            "State of every GPU",
            "short",
            "The state each GPU is in.",
            f"sum by (cluster, node, gpu, uuid, state) (gputally_gpu_state{{{ON_GPU}}} == 1)",
            "In it",
        ),
        table(
            "Xids in this time",
            "short",
            "Errors the driver reported; 13, 31, 43 and 45 usually come from the application.",
            f"sum by (node, gpu, uuid, xid) (increase(gputally_gpu_xid_errors_total{{{ON_GPU}}}[{RANGE}]))",
            "Times",
        ),
        Panel(
            "ECC errors",
            "short",
            "ECC errors per second since the driver was loaded.",
            (
                (
                    "sum by (node, gpu, kind) "
                    f'(rate(gputally_gpu_ecc_errors_total{{{ON_GPU}, scope="volatile"}}[{RATE}]))',
                    "{{node}} GPU {{gpu}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Link errors",
            "short",
            "PCIe packets sent again and NVLink errors, per second.",
            (
                (
                    f"sum by (node) (rate(gputally_gpu_pcie_replays_total{{{ON_GPU}}}[{RATE}]))",
                    "{{node}} PCIe replays",
                ),
                (
                    f"sum by (node, error) (rate(gputally_gpu_nvlink_errors_total{{{ON_GPU}}}[{RATE}]))",
                    "{{node}} NVLink {{error}}",
                ),
            ),
        ),
        table(
            "Inventory",
            "short",
            "What GPUs there are, with their driver.",
            "count by (cluster, node, model, architecture, driver_version, cuda_version) "
            f"(gputally_gpu_info{{{ON_GPU}}})",
            "GPUs",
        ),
        table(
            "MIG instances",
            "bytes",
            "Memory in use on every MIG instance; the uuid is that of its GPU.",
            f"sum by (node, gpu, uuid, mig) (gputally_mig_memory_used_bytes{{{ON_GPU}}})",
            "Memory used",
        ),
    ),
)
