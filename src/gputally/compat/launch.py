"""Starts gputally in the place of an old system."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gputally import __version__, logs, service
from gputally.cli import CANNOT_LISTEN, OK, RESTART, USAGE
from gputally.compat.flags import BadFlag, Settings, System, Wish, read, usage
from gputally.config import SETTINGS, Config, Wrong, configure
from gputally.files import Unsafe, open_to_append
from gputally.machine import BadRecording
from gputally.outputs.http import BindError

log = logging.getLogger(__name__)

OURS = {setting.flag: setting for setting in SETTINGS}


def launch(system: System, words: Sequence[str] | None = None) -> NoReturn:
    """Run until it is told to end, and end with a code."""
    words = sys.argv[1:] if words is None else words
    if words in (["--help"], ["-help"], ["-h"]):
        print(usage(system), end="")
        sys.exit(OK)
    if system.version and words in (["--version"], ["-version"], ["-v"]):
        print(f"{system.command} of gputally {__version__}")
        sys.exit(OK)
    try:
        wish = read(system, words, os.environ)
        config = settings(wish, os.environ)
        logs.set_up(
            config.log_level, config.log_format, open_to_append(config.log_file) if config.log_file else None
        )
        _introduce(system, wish)
        alive = asyncio.run(service.serve(config))
    except (BadFlag, Wrong) as error:
        _fail(system, f"{error}\n\n{usage(system)}", USAGE)
    except (BadRecording, Unsafe) as error:
        _fail(system, f"{error}\n", USAGE)
    except BindError as error:
        _fail(system, f"{error}\n", CANNOT_LISTEN)
    service.leave(OK if alive else RESTART)


def settings(wish: Wish, environ: Mapping[str, str]) -> Config:
    """The wish in our settings; where it leaves something open, our own variables and defaults hold."""
    for flag in wish.chosen:
        if flag not in OURS:
            raise BadFlag(f"this needs --{flag}, which this version of gputally has not")
    return configure({**_assumed(wish, environ), **wish.chosen}, environ)


def _assumed(wish: Wish, environ: Mapping[str, str]) -> Settings:
    return {
        flag: text
        for flag, text in wish.assumed.items()
        if flag in OURS and OURS[flag].variable not in environ
    }


def _introduce(system: System, wish: Wish) -> None:
    told = {**_assumed(wish, os.environ), **wish.chosen}
    words = " ".join(f"--{flag} {text}" for flag, text in told.items())
    log.info(
        "%s stands in for %s; by its own name it is: gputally serve %s", system.command, system.name, words
    )
    log.info("what stays and what differs: docs/MIGRATING.md")
    for note in wish.notes:
        log.warning("%s", note)


def _fail(system: System, message: str, code: int) -> NoReturn:
    print(f"{system.command}: {message}", end="", file=sys.stderr)
    sys.exit(code)
