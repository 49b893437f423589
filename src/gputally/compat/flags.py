"""Old flags and variables, and how they become our settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Settings = dict[str, str]
"""Our flags and their values."""


class BadFlag(Exception):
    """A flag or variable that cannot be used; the text names it."""


@dataclass(frozen=True)
class Flag:
    """One flag of an old system."""

    names: tuple[str, ...]
    shape: str
    """What its value looks like; empty for a switch."""
    default: str
    help: str
    settings: Callable[[str], Settings]
    """Our settings for its value; a ValueError says what would be allowed."""
    variable: str = ""
    note: str = ""
    """Why it has no effect, where it has none."""


@dataclass(frozen=True)
class System:
    """An old system: its command, its flags, and what is so whatever they say."""

    name: str
    command: str
    flags: tuple[Flag, ...]
    settings: Settings = field(default_factory=dict)
    version: bool = False
    finish: Callable[[Settings], Settings] = lambda settings: settings


@dataclass(frozen=True)
class Wish:
    """What somebody wants who starts an old system."""

    chosen: Settings
    """Settings by flags and variables that were given."""
    assumed: Settings
    """Settings by the old system's defaults; a variable of ours is stronger."""
    notes: tuple[str, ...]
    """What was given and has no effect."""


def read(system: System, words: Sequence[str], environ: Mapping[str, str]) -> Wish:
    """The settings that the words on the command line and the variables stand for."""
    given = _given(system, words)
    chosen: Settings = {}
    assumed: Settings = dict(system.settings)
    notes = []
    for flag in system.flags:
        name, text = f"--{flag.names[0]}", given.get(flag.names[0])
        if text is None and environ.get(flag.variable):
            name, text = flag.variable, environ[flag.variable]
        try:
            (assumed if text is None else chosen).update(
                flag.settings(flag.default if text is None else text)
            )
        except ValueError as error:
            told = flag.default if text is None else text
            raise BadFlag(f"{name} {told!r} cannot be used: it must be {error}") from None
        if text is not None and flag.note:
            notes.append(f"{name} has no effect: {flag.note}")
    merged = system.finish({**assumed, **chosen})
    return Wish(
        {k: merged[k] for k in chosen}, {k: merged[k] for k in merged if k not in chosen}, tuple(notes)
    )


def usage(system: System) -> str:
    """The old system's own list of flags."""
    lines = [f"usage: {system.command} [flags]", ""]
    for flag in system.flags:
        names = ", ".join(("-" if len(name) == 1 else "--") + name for name in flag.names)
        told = f"{names} {flag.shape}".rstrip()
        more = f" (default {flag.default})" if flag.default else ""
        more += f" [${flag.variable}]" if flag.variable else ""
        lines.append(f"  {told}\n        {flag.help}{more}")
    lines.append("  --help\n        Show this text")
    if system.version:
        lines.append("  --version\n        Show the version")
    return "\n".join(lines) + "\n"


def _given(system: System, words: Sequence[str]) -> dict[str, str]:
    """Flags by their first name; one dash or two, a value after `=` or as the next word."""
    flags = {name: flag for flag in system.flags for name in flag.names}
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        match = re.fullmatch(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", word, re.DOTALL)
        flag = flags.get(match[1]) if match else None
        if match is None or flag is None:
            raise BadFlag(f"{word.partition('=')[0]!r} is no flag of {system.command}")
        value = match[2]
        if value is None and not flag.shape:
            value = "true"
        elif value is None:
            if not rest:
                raise BadFlag(f"{word} needs a value: {flag.shape}")
            value = rest.pop(0)
        given[flag.names[0]] = value
    return given


def to(setting: str, change: Callable[[str], str] = str) -> Callable[[str], Settings]:
    """The value, perhaps changed, is that of one setting of ours; an empty one is none."""
    return lambda text: {setting: change(text)} if text else {}


def nothing(_: str) -> Settings:
    """No setting of ours."""
    return {}


def truth(text: str) -> bool:
    """A switch as Go reads it."""
    words = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
    if text.lower() not in words:
        raise ValueError("true or false")
    return words[text.lower()]


def on_off(text: str) -> str:
    """A switch as ours are written."""
    return "on" if truth(text) else "off"


def port(text: str) -> str:
    """A port on every address."""
    if not re.fullmatch(r"\d{1,5}", text) or int(text) > 65535:
        raise ValueError("a port from 0 to 65535")
    return f":{text}"


GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)"


def go_duration(low: float, high: float) -> Callable[[str], str]:
    """A duration as Go writes it, brought into what we can do."""

    def read(text: str) -> str:
        if text != "0" and not re.fullmatch(f"(?:{_GO_PART})+", text):
            raise ValueError("a duration such as 500ms, 10s or 1m30s")
        return bounded(sum(float(n) * GO_UNITS[unit] for n, unit in re.findall(_GO_PART, text)), low, high)

    return read


def seconds(low: float, high: float, unit: float = 1.0) -> Callable[[str], str]:
    """A number of seconds, or of another unit, brought into what we can do."""

    def read(text: str) -> str:
        if not re.fullmatch(r"\d{1,9}(\.\d+)?", text) or float(text) == 0:
            raise ValueError("a number above 0")
        return bounded(float(text) * unit, low, high)

    return read


def bounded(amount: float, low: float, high: float) -> str:
    """Seconds as our settings take them, no less and no more than they allow."""
    text = f"{min(max(amount, low), high):.3f}".rstrip("0").rstrip(".")
    return f"{text}s"
