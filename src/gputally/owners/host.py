"""The least that is known of a process: it runs on this host, under a name it chose itself."""

from __future__ import annotations

from gputally.model import Owner, Process


class HostOwner:
    """Takes the process's own name, which is no identity but says what to look for."""

    name = "host"

    def refine(self, process: Process, owner: Owner) -> Owner:
        """A process of the host."""
        return Owner(kind="host", workload=process.comm)
