"""What NVML answers about a GPU in one batch: its numbered fields, with the call that stands in for each."""

from __future__ import annotations

from typing import Any

from gputally.sources.nvml_fields import Field, FieldValue, Put, Values, entry, flag, named, number, one, row

ALL_LINKS = 2**32 - 1
KIB = 1024

RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}


_put_memory_temperature = entry("temperature_celsius", "memory")


def _memory_temperature(values: Values, raw: Any) -> None:
    _put_memory_temperature(values, raw or None)  # boards without the sensor say 0


def _ecc(kind: str, scope: str) -> Put:
    return entry("ecc_errors", (kind, scope))


def _ecc_call(kind: str, scope: str, error: int, counter: int) -> Field:
    return row(_ecc(kind, scope), ("nvmlDeviceGetTotalEccErrors", error, counter))


def _held_down(reason: str) -> Put:
    def put(values: Values, raw: Any) -> None:
        times = values.setdefault("throttle_seconds", {})
        if number(raw) is not None:
            times[reason] = raw / 1e9

    return put


def _violation(reason: str, policy: int) -> Field:
    put = _held_down(reason)
    return row(
        lambda values, raw: put(values, raw["violationTime"]), ("nvmlDeviceGetViolationStatus", policy)
    )


_THROTTLE = (
    ("sw_power_cap", 74, 0),
    ("thermal", 75, 1),
    ("sync_boost", 76, 2),
    ("board_limit", 77, 3),
    ("low_utilization", 78, 4),
    ("reliability", 79, 5),
)
"""Reason, field, and the policy that nvmlDeviceGetViolationStatus knows it by."""

_NVLINK_ERRORS = (("crc_flit", 38), ("crc_data", 45), ("replay", 52), ("recovery", 59), ("ecc_data", 160))

FIELD_ROWS = (
    FieldValue(82, _memory_temperature),
    FieldValue(3, _ecc("corrected", "volatile"), instead=_ecc_call("corrected", "volatile", 0, 0), slow=True),
    FieldValue(
        4, _ecc("uncorrected", "volatile"), instead=_ecc_call("uncorrected", "volatile", 1, 0), slow=True
    ),
    FieldValue(
        5, _ecc("corrected", "aggregate"), instead=_ecc_call("corrected", "aggregate", 0, 1), slow=True
    ),
    FieldValue(
        6, _ecc("uncorrected", "aggregate"), instead=_ecc_call("uncorrected", "aggregate", 1, 1), slow=True
    ),
    FieldValue(29, entry("retired_pages", "multiple_single_bit_ecc_errors"), slow=True),
    FieldValue(30, entry("retired_pages", "double_bit_ecc_error"), slow=True),
    FieldValue(31, flag("retired_pages_pending"), slow=True),
    FieldValue(142, entry("remapped_rows", "corrected"), slow=True),
    FieldValue(143, entry("remapped_rows", "uncorrected"), slow=True),
    FieldValue(144, flag("remapped_rows_pending"), slow=True),
    FieldValue(145, flag("remapped_rows_failed"), slow=True),
    *(FieldValue(id, entry("nvlink_errors", error), slow=True) for error, id in _NVLINK_ERRORS),
    FieldValue(138, entry("nvlink_bytes", "transmit", KIB), scope=ALL_LINKS),
    FieldValue(139, entry("nvlink_bytes", "receive", KIB), scope=ALL_LINKS),
    *(
        FieldValue(id, _held_down(reason), instead=_violation(reason, policy))
        for reason, id, policy in _THROTTLE
    ),
    FieldValue(269, _held_down("sw_thermal")),
    FieldValue(270, _held_down("hw_thermal")),
    FieldValue(271, _held_down("hw_power_brake")),
    FieldValue(
        94,
        named("pcie_replays"),
        instead=row(named("pcie_replays"), "nvmlDeviceGetPcieReplayCounter"),
        slow=True,
    ),
    FieldValue(197, entry("pcie_bytes", "transmit")),
    FieldValue(198, entry("pcie_bytes", "receive")),
    FieldValue(230, one("recovery_action", lambda raw: RECOVERY_ACTIONS.get(raw, "unknown")), slow=True),
)
"""Every interval, in one call, but for the slow; a field that a GPU does not know is left out until the
driver changes, and the calls that stand in for it are slow."""
