"""Puts together where Tallies go: the site in its dialects, and a copy of its text in a file."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from gputally import feeds
from gputally.config import Config
from gputally.dialects import DIALECTS, Options, dcgm
from gputally.files import Unsafe, open_parent, refuse_foreign, write
from gputally.lanes import Lane
from gputally.loop import Outlet
from gputally.machine import Machine
from gputally.model import Unreadable
from gputally.outputs.site import Site
from gputally.tally import Tally

log = logging.getLogger(__name__)

DEADLINE = 10.0


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
    """The text of every publication in a file, whole each time; the site does not wait for the disk."""

    def __init__(self, path: str, site: Site, outlet: Outlet) -> None:
        self._folder, self._name = open_parent(path)
        refuse_foreign(self._folder, self._name)
        self._path, self._site, self._outlet = path, site, outlet
        self._lane = Lane("metrics-file")
        self._writing: asyncio.Future[None] | None = None
        self._failing = False

    @property
    def served(self) -> bool:
        """Whether somebody has read the newest Tally."""
        return self._outlet.served

    def publish(self, tally: Tally) -> int:
        """Show this Tally, and begin to write it."""
        dropped = self._outlet.publish(tally)
        if not self._lane.busy:
            self._writing = asyncio.ensure_future(self._write(self._site.body()))
        return dropped

    async def close(self) -> None:
        """Take the file away, if it is still ours: nobody shall read old numbers as new."""
        if self._writing is not None:
            await self._writing
        try:
            refuse_foreign(self._folder, self._name)
            os.unlink(self._name, dir_fd=self._folder)
        except (OSError, Unsafe) as error:
            log.info("%s is left as it is: %s", self._path, error)

    async def _write(self, body: bytes) -> None:
        try:
            await self._lane.ask(lambda: self._put(body), DEADLINE)
        except (OSError, Unreadable, Unsafe) as error:
            if not self._failing:
                log.warning("%s cannot be written; scrapes go on: %s", self._path, error)
            self._failing = True
        else:
            if self._failing:
                log.info("%s is written again", self._path)
            self._failing = False

    def _put(self, body: bytes) -> None:
        refuse_foreign(self._folder, self._name)
        write(self._folder, self._name, body, mode=0o644)
