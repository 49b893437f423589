"""`cmpp`: CM PurplePill, on gputally."""

from __future__ import annotations

from typing import NoReturn

from gputally.compat.flags import Flag, System, port, seconds, to
from gputally.compat.launch import launch

SYSTEM = System(
    "CM PurplePill",
    "cmpp",
    (
        Flag(
            ("port",),
            "PORT",
            "9531",
            "Port to expose HTTP metrics server",
            to("web.listen-address", port),
            "CM_PURPLEPILL_PORT",
        ),
        Flag(
            ("interval",),
            "SECONDS",
            "15",
            "Interval between metric collections",
            to("interval", seconds(1, 300)),
            "CM_PURPLEPILL_INTERVAL",
        ),
        Flag(("log-file",), "FILE", "", "Log file path; none unless it is given", to("log.file")),
        Flag(
            ("metrics-file",),
            "FILE",
            "",
            "File to store metrics; none unless it is given",
            to("metrics-file"),
        ),
        Flag(
            ("hostname-override",),
            "NAME",
            "",
            "The Hostname in labels, in place of the system's",
            to("dialect.hostname"),
            "CM_PURPLEPILL_HOSTNAME_OVERRIDE",
        ),
    ),
    {"dialect": "purplepill", "web.aliases": "/=metrics,/health=health"},
    version=True,
)


def main() -> NoReturn:
    """Run it."""
    launch(SYSTEM)
