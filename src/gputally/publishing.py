"""Puts together where Tallies go: the site in its dialects, and a copy of its text in a file."""

from __future__ import annotations

import logging
import os
import socket

from gputally import feeds
from gputally.config import Config
from gputally.dialects import DIALECTS, Options, dcgm
from gputally.files import open_parent, refuse_foreign, write
from gputally.loop import Followed, Outlet
from gputally.machine import Machine
from gputally.outputs.site import Site
from gputally.writing import Writer

log = logging.getLogger(__name__)


def site(config: Config, machine: Machine) -> Site:
    """What is served, in the dialects that were asked for."""
    told = options(config, machine)
    if "dcgm" in config.dialect and told.counters is not None:
        for name in dcgm.untold(told.counters):
            log.warning("%s is in the file of counters, and nothing here can tell it: it has no series", name)
    return Site(
        machine,
        tables={name: DIALECTS[name].metrics(told) for name in config.dialect},
        path=config.web_telemetry_path,
        aliases=config.web_aliases,
        max_age=config.max_age,
        upstream=feeds.pod_labels(config),
    )


def options(config: Config, machine: Machine) -> Options:
    """What the dialects are told."""
    return Options(
        hostname=_hostname(config.dialect_hostname, machine),
        pod_labels=config.kubernetes_pod_labels,
        pod_annotations=config.kubernetes_pod_annotations,
        counters=config.dialect_counters,
        pods=config.dialect_pods,
        pod_uid=config.dialect_pod_uid,
        dra=config.dialect_dra,
        jobs=config.hpc_job_mapping_dir is not None,
        old_names=config.dialect_old_names,
        dashes=config.dialect_model_dashes,
        prefix=config.dialect_prefix,
        ratio=config.vgpu_ratio or 1.0,
        namespace_label=config.dialect_namespace_label,
    )


def _hostname(chosen: str, machine: Machine) -> str:
    if chosen:
        return "" if chosen == "-" else chosen
    # Of a machine that is elsewhere or nowhere, our own name would be a lie, and another one each time.
    return machine.variable("NODE_NAME") or (
        socket.gethostname() if machine.name == "local" else machine.name
    )


class Copy:
    """The text of every publication in a file, whole each time."""

    def __init__(self, path: str, site: Site) -> None:
        self._folder, self._name = open_parent(path)
        refuse_foreign(self._folder, self._name)
        self._site = site
        self._writer = Writer(path, "scrapes go on")

    def behind(self, outlet: Outlet) -> Outlet:
        """The outlet, with the file written after each publication."""
        return Followed(outlet, self._begin)

    async def end(self) -> None:
        """Take the file away, if it is still ours: nobody shall read old numbers as new."""
        await self._writer.remove(self._remove)

    def _begin(self) -> None:
        body = self._site.body()
        self._writer.begin(lambda: self._write(body))

    def _write(self, body: bytes) -> None:
        refuse_foreign(self._folder, self._name)
        write(self._folder, self._name, body, mode=0o644)

    def _remove(self) -> None:
        refuse_foreign(self._folder, self._name)
        os.unlink(self._name, dir_fd=self._folder)
