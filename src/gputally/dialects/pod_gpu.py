"""The names of pod-gpu-metrics-exporter: the whole set of dcgm-exporter 1.x, with the pod of each GPU."""

from __future__ import annotations

from collections.abc import Callable

from gputally.dialects.dcgm.fields import BY_ID
from gputally.dialects.dcgm.values import Value
from gputally.dialects.options import Options
from gputally.dialects.parties import Row, rows
from gputally.metrics import COUNTER, GAUGE, Identity, Metric, Scope
from gputally.tally import Tally

LABELS = ("gpu", "uuid", "pod_name", "pod_namespace", "container_name")
ROWS = (
    ("sm_clock", 100),
    ("memory_clock", 101),
    ("memory_temp", 140),
    ("gpu_temp", 150),
    ("power_usage", 155),
    ("total_energy_consumption", 156),
    ("pcie_tx_throughput", 200),
    ("pcie_rx_throughput", 201),
    ("pcie_replay_counter", 202),
    ("gpu_utilization", 203),
    ("mem_copy_utilization", 204),
    ("enc_utilization", 206),
    ("dec_utilization", 207),
    ("xid_errors", 230),
    ("power_violation", 240),
    ("thermal_violation", 241),
    ("sync_boost_violation", 242),
    ("board_limit_violation", 243),
    ("low_util_violation", 244),
    ("reliability_violation", 245),
    ("fb_free", 251),
    ("fb_used", 252),
    ("ecc_sbe_volatile_total", 310),
    ("ecc_dbe_volatile_total", 311),
    ("ecc_sbe_aggregate_total", 312),
    ("ecc_dbe_aggregate_total", 313),
    ("retired_pages_sbe", 390),
    ("retired_pages_dbe", 391),
    ("retired_pages_pending", 392),
    ("nvlink_flit_crc_error_count_total", 409),
    ("nvlink_data_crc_error_count_total", 419),
    ("nvlink_replay_error_count_total", 429),
    ("nvlink_recovery_error_count_total", 439),
    ("nvlink_bandwidth_total", 449),
    ("fi_prof_gr_engine_active", 1001),
    ("fi_prof_sm_active", 1002),
    ("fi_prof_sm_occupancy", 1003),
    ("fi_prof_pipe_tensor_active", 1004),
    ("fi_prof_dram_active", 1005),
)
"""Names and DCGM fields, in the order of dcgm-exporter 1.x."""
VIOLATIONS = range(240, 246)
PCIE = {200: ("transmitted through PCIe TX", "transmit"), 201: ("received through PCIe RX", "receive")}


def metrics(options: Options) -> tuple[Metric, ...]:
    """The table."""

    def found(tally: Tally) -> list[Row]:
        return rows(tally, pods=options.pods, instances=False, others=False)

    scope = Scope("pod_gpu", LABELS, found, _identity)
    return tuple(_metric(scope, name, field) for name, field in ROWS)


def _metric(scope: Scope, name: str, number: int) -> Metric:
    if number in PCIE:
        words, way = PCIE[number]
        return Metric(
            scope, f"dcgm_{name}", COUNTER, f"Total number of bytes {words} (in KB).", _kilobytes(way)
        )
    field = BY_ID[number]
    if number in VIOLATIONS:
        return Metric(
            scope,
            f"dcgm_{name}",
            COUNTER,
            field.help.replace("(in ns)", "(in us)"),
            _microseconds(field.value),
        )
    return Metric(scope, f"dcgm_{name}", field.type if number < 1000 else GAUGE, field.help, field.value)


def _kilobytes(way: str) -> Callable[[Row], int | None]:
    def value(row: Row) -> int | None:
        told = row.device.counters.pcie_bytes.get(way)
        return None if told is None or row.is_rest else told // 1000

    return value


def _microseconds(nanoseconds: Value) -> Callable[[Row], int | None]:
    def value(row: Row) -> int | None:
        told = nanoseconds(row)
        return None if told is None else int(told) // 1000

    return value


def _identity(row: Row) -> Identity:
    owner = row.owner
    whose = ("", "", "") if owner is None else (owner.pod, owner.namespace, owner.container)
    return (str(row.device.index), row.device.uuid, *whose)
