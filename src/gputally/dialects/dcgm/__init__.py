"""The names of dcgm-exporter: DCGM's fields, one row per GPU, MIG instance or pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gputally.dialects.dcgm.counters import Counter
from gputally.dialects.dcgm.fields import BY_NAME, FIELDS
from gputally.dialects.parties import Row, rows
from gputally.metrics import Identity, Metric, Scope

if TYPE_CHECKING:
    from gputally.dialects.options import Options

LABEL_FIELDS = {
    "DCGM_FI_DRIVER_VERSION": "driver_version",
    "DCGM_FI_SYSTEM_DRIVER_VERSION": "driver_version",
    "DCGM_FI_DEV_SERIAL": "serial",
    "DCGM_FI_DEV_BOARD_SERIAL": "serial",
    "DCGM_FI_DEV_VBIOS_VERSION": "vbios_version",
}
"""Fields that stand on every row as a label -> what of a GPU they are."""

DRA_LABELS = (
    *("dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name", "dra_device_name"),
    *("dra_mig_profile", "dra_mig_device_uuid"),
)

DEFAULT = (
    *(Counter(field.name, field.type, field.help) for field in FIELDS if field.is_default),
    Counter("DCGM_FI_DRIVER_VERSION", "label", "Driver Version"),
)
"""What dcgm-exporter shows where it is given no file."""


def metrics(options: Options) -> tuple[Metric, ...]:
    """The table: one row for each counter of the file that we can tell."""
    counters = DEFAULT if options.counters is None else options.counters
    scope = _scope(options, [c.field for c in counters if c.type == "label" and c.field in LABEL_FIELDS])
    return tuple(
        Metric(scope, counter.field, counter.type, counter.help, BY_NAME[counter.field].value)
        for counter in counters
        if counter.type in ("gauge", "counter") and counter.field in BY_NAME
    )


def untold(counters: Sequence[Counter]) -> list[str]:
    """Fields of a file that nobody here can tell."""
    return [c.field for c in counters if c.field not in (LABEL_FIELDS if c.type == "label" else BY_NAME)]


def _scope(options: Options, named: Sequence[str]) -> Scope:
    pod = (
        ("container_name", "pod_namespace", "pod_name")
        if options.old_names
        else ("container", "namespace", "pod")
    )
    uid = ("pod_uid",) if options.pod_uid else ()
    dra = DRA_LABELS if options.dra else ()
    job = ("hpc_job",) if options.jobs else ()
    device = ("gpu", "uuid" if options.old_names else "UUID", "pci_bus_id", "device", "modelName")
    labels = (*device, "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "hostname", *named, *pod, *uid, *dra, *job)

    def identity(row: Row) -> Identity:
        info = row.device.info
        model = (info.model or "").replace(" ", "-") if options.dashes else info.model or ""
        what = (str(row.device.index), row.device.uuid, info.pci_bus_id or "", _node(row), model)
        part = (
            ("", "") if row.instance is None else (row.instance.profile or "", str(row.instance.gpu_instance))
        )
        told = tuple(getattr(info, LABEL_FIELDS[field]) or "" for field in named)
        owner = row.owner
        whose = ("", "", "") if owner is None else (owner.container, owner.namespace, owner.pod)
        more = (row.uid,) * len(uid) + (_dra(row) if dra else ())
        if job:
            more += ("" if owner is None or owner.pod else owner.workload,)
        return (*what, *part, options.hostname, options.hostname, *told, *whose, *more)

    return Scope("dcgm", labels, lambda tally: rows(tally, pods=options.pods, others=options.jobs), identity)


def _dra(row: Row) -> Identity:
    if row.claimed is None:
        return ("",) * len(DRA_LABELS)
    part = ("", "") if row.instance is None else (row.instance.profile or "", row.instance.uuid)
    return (*row.claimed, *part)


def _node(row: Row) -> str:
    """The device file's name; the minor number where the driver tells it."""
    return f"nvidia{row.device.info.minor_number or row.device.index}"
