"""The command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from gputally import __version__, logs, service
from gputally.config import SETTINGS, Config, Wrong, configure, unknown_variables
from gputally.files import Unsafe, open_to_append
from gputally.machine import BadRecording
from gputally.outputs.http import BindError
from gputally.outputs.web_config import BadWebConfig
from gputally.setting import Setting

log = logging.getLogger(__name__)

OK, NOTHING_ANSWERS, USAGE, CANNOT_LISTEN, RESTART = 0, 1, 2, 71, 78
CANNOT_WRITE = service.CANNOT_WRITE

MOST_CGROUP = 2**20
TAKES = {"record": "DIR ", "explain": "PID|--cgroup FILE ", "accounting": "status|enable "}

ABOUT = """\
gputally says who uses each GPU, how much, and for how many joules.

commands:
  serve          collect and answer Prometheus on the listen address, until SIGTERM
  show           print one collection, as a scrape would get it
  explain PID    say step by step how a process on a GPU was traced, or what would help;
                 --cgroup FILE reads a saved /proc/PID/cgroup instead (- for standard input)
  record DIR     save what this machine answers into a new folder, for a bug report or a test
  accounting status|enable
                 say whether GPUs keep the records of processes that DCGM needs, or have them do so (root)
  verify         ask a Prometheus, and the cluster where kubectl is set up, whether every GPU node
                 is counted, fresh, attributed and adding up

`gputally COMMAND --help` lists the settings; each is also a variable, --web.listen-address
for instance GPUTALLY_WEB_LISTEN_ADDRESS. Without a GPU: gputally serve --machine simulated
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end with its code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["--version"]:
        service.say(f"gputally {__version__}\n".encode())
        sys.exit(OK)
    if not words or words[0] in ("--help", "-h", "help"):
        service.say(ABOUT.encode())
        sys.exit(OK if words else USAGE)
    command, *rest = words
    if command not in COMMANDS:
        _fail(f"no command {command!r}; there are {', '.join(COMMANDS)}; see gputally --help")
    options = _parser(command).parse_args(_joined(rest))
    try:
        config = configure({s.flag: getattr(options, s.flag, None) for s in SETTINGS})
        logs.set_up(
            config.log_level, config.log_format, open_to_append(config.log_file) if config.log_file else None
        )
        for name in unknown_variables(os.environ):
            log.warning("%s is no setting of gputally and has no effect; `gputally %s --help`", name, command)
        code = COMMANDS[command](config, options)
    except (Wrong, BadRecording, Unsafe, BadWebConfig) as error:
        _fail(str(error))
    except BindError as error:
        _fail(str(error), CANNOT_LISTEN)
    service.leave(code)


def _serve(config: Config, _: argparse.Namespace) -> int:
    return OK if asyncio.run(service.serve(config)) else RESTART


def _show(config: Config, _: argparse.Namespace) -> int:
    return OK if asyncio.run(service.show(config)) else NOTHING_ANSWERS


def _record(config: Config, options: argparse.Namespace) -> int:
    folder = Path(options.folder)
    if folder.exists():
        _fail(f"{folder} is there already; name a folder that record can make", CANNOT_WRITE)
    try:
        paths = asyncio.run(service.record(config, folder))
    except OSError as error:
        _fail(f"cannot write {folder}: {error.strerror}", CANNOT_WRITE)
    told = f"{len(paths)} files in {folder}; look at them with: gputally show --machine recorded:{folder}\n"
    service.say(os.fsencode(told))
    return OK


def _accounting(config: Config, options: argparse.Namespace) -> int:
    from gputally.accounting import accounting  # it can change the node, and no other command may

    return OK if asyncio.run(accounting(config, options.action)) else NOTHING_ANSWERS


def _verify(_: Config, options: argparse.Namespace) -> int:
    # Only here: what it needs of HTTP and TLS is memory that `serve` must not pay for.
    from gputally.verify_options import VERIFY_OPTIONS, request
    from gputally.views.verify import exit_code, table, verify

    findings = verify(request({option.flag: getattr(options, option.flag) for option in VERIFY_OPTIONS}))
    service.say(table(findings).encode())
    return exit_code(findings)


def _explain(config: Config, options: argparse.Namespace) -> int:
    if (options.pid is None) == (options.cgroup is None):
        _fail("explain needs either the number of a process or --cgroup FILE; see gputally explain --help")
    if options.cgroup is None:
        return OK if asyncio.run(service.explain(config, options.pid)) else NOTHING_ANSWERS
    try:
        if options.cgroup == "-":
            service.explain_cgroup(sys.stdin.buffer.read(MOST_CGROUP))
        else:
            with open(options.cgroup, "rb") as file:
                service.explain_cgroup(file.read(MOST_CGROUP))
    except OSError as error:
        _fail(f"cannot read {options.cgroup}: {error.strerror}")
    return OK


COMMANDS: dict[str, Callable[[Config, argparse.Namespace], int]] = {
    "serve": _serve,
    "show": _show,
    "explain": _explain,
    "record": _record,
    "accounting": _accounting,
    "verify": _verify,
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one sentence, without the long list of flags."""
        _fail(f"{message}; see {self.prog} --help")

    def print_help(self, file: object = None) -> None:
        """Say it, and fail where nobody hears: argparse would end as if all were well."""
        service.say(self.format_help().encode())


def _parser(command: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"gputally {command}",
        usage=f"gputally {command} {TAKES.get(command, '')}[SETTINGS]",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=100),
    )
    if command == "record":
        parser.add_argument("folder", metavar="DIR", help="the folder to make")
    if command == "accounting":
        parser.add_argument("action", choices=("status", "enable"), help="say how it is, or turn it on")
    if command == "explain":
        parser.add_argument("pid", metavar="PID", nargs="?", type=_pid, help="the process, by its number")
        parser.add_argument("--cgroup", metavar="FILE", help="a saved /proc/PID/cgroup; - for standard input")
    for setting in _settings(command):
        default = f" (default {setting.default})" if setting.default else ""
        parser.add_argument(
            f"--{setting.flag}",
            dest=setting.flag,
            metavar=setting.shape,
            nargs="?" if setting.shape == "on|off" else None,
            const="on" if setting.shape == "on|off" else None,
            help=(setting.help + default).replace("%", "%%"),
        )
    return parser


def _settings(command: str) -> Sequence[Setting]:
    if command != "verify":
        return SETTINGS
    from gputally.verify_options import VERIFY_OPTIONS

    return VERIFY_OPTIONS


def _joined(words: Sequence[str]) -> list[str]:
    """The words, with what begins like a number below zero joined to its flag: alone it would be one."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-\.?\d", word) and joined and re.match(r"--[^=]+$", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 2**31 and len(text) <= 10):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a process")
    return int(text)


def _fail(message: str, code: int = USAGE) -> NoReturn:
    print(f"gputally: {message}", file=sys.stderr)
    sys.exit(code)
