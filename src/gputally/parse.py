"""How the text of a setting becomes a value; a ValueError says what would be allowed."""

from __future__ import annotations

import re
from collections.abc import Callable

from gputally.dialects import DIALECTS
from gputally.outputs.http import parse_address
from gputally.sources.ratio import parse_ratio

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Seconds of a duration such as 5s, 500ms or 1m30s."""
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h|d))+", text):
        raise ValueError("a duration such as 500ms, 5s or 1m30s")
    return sum(float(n) * UNITS[unit] for n, _, unit in re.findall(r"(\d+(\.\d+)?)(ms|s|m|h|d)", text))


def within(low: float, high: float) -> Callable[[str], float]:
    """A duration between two bounds, in seconds."""

    def read(text: str) -> float:
        seconds = duration(text)
        if not low <= seconds <= high:
            raise ValueError(f"a duration from {low:g}s to {high:g}s")
        return seconds

    return read


def switch(text: str) -> bool:
    """Yes or no."""
    words = {
        "on": True,
        "true": True,
        "yes": True,
        "1": True,
        "off": False,
        "false": False,
        "no": False,
        "0": False,
    }
    if text.lower() not in words:
        raise ValueError("on or off")
    return words[text.lower()]


def one_of(*words: str) -> Callable[[str], str]:
    """One word of a few."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words) if len(words) == 2 else ", ".join(words))
        return text

    return read


def count(low: int, high: int) -> Callable[[str], int]:
    """A whole number between two bounds."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return read


def machine(text: str) -> str:
    """Which machine answers."""
    kind, colon, folder = text.partition(":")
    if text in ("local", "simulated") or (kind == "recorded" and colon and folder):
        return text
    raise ValueError("local, simulated or recorded:DIR")


def dcgm(text: str) -> str:
    """Where DCGM is."""
    if text in ("off", "auto", "embedded") or re.fullmatch(
        r"unix:/.+|[^\s:/]+:\d{1,5}|\[[^\s/]+\]:\d{1,5}", text
    ):
        return text
    raise ValueError("off, auto, embedded, HOST:PORT or unix:/PATH")


def watts(text: str) -> float | None:
    """A power, or nothing."""
    if text and not re.fullmatch(r"\d{1,4}(\.\d+)?", text):
        raise ValueError("a number of watts from 0 to 9999, or nothing")
    return float(text) if text else None


def gpus(text: str) -> tuple[str, ...]:
    """GPUs by index or uuid."""
    chosen = tuple(part.strip() for part in text.split(",") if part.strip())
    for part in chosen:
        if not re.fullmatch(r"\d{1,4}|GPU-[0-9a-fA-F-]{36}", part):
            raise ValueError(
                "indexes and uuids with commas between, such as 0,3 or GPU-1f2e…, or nothing for all"
            )
    return chosen


def dialects(text: str) -> tuple[str, ...]:
    """Names of dialects, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(name in DIALECTS for name in names):
        raise ValueError(f"one or more of {', '.join(DIALECTS)}, with commas between")
    return names


def url_path(text: str) -> str:
    """An absolute path in a URL."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text.startswith("/-/"):
        raise ValueError("a path such as /metrics, not one of the server's own")
    return text


def address(text: str) -> str:
    """Where to listen."""
    try:
        parse_address(text)
    except ValueError:
        raise ValueError("HOST:PORT, :PORT or [IPV6]:PORT with a port from 0 to 65535") from None
    return text


def absolute(text: str) -> str:
    """A path from the root."""
    if not text.startswith("/") or "\0" in text:
        raise ValueError("a path that begins with /")
    return text.rstrip("/") or "/"


def path(text: str) -> str | None:
    """A path, or nothing."""
    return text or None


def pod_labels(text: str) -> tuple[str, ...]:
    """What pod, namespace and container are called."""
    names = words(text)
    if len(names) != 3 or not all(re.fullmatch(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names):
        raise ValueError("three label names with commas between, for pod, namespace and container")
    return names


def ratio(text: str) -> float | None:
    """Virtual GPUs per GPU, or nothing."""
    return parse_ratio(text) if text else None


def textfile_name(text: str) -> str:
    """A name that node_exporter reads."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\.prom", text):
        raise ValueError("the name of a file that ends in .prom, without a folder")
    return text


def folder(text: str) -> str:
    """An absolute path."""
    if not text.startswith("/"):
        raise ValueError("an absolute path")
    return text


def url(text: str) -> str:
    """Where a server is, or nothing."""
    if text and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/-]*)?", text):
        raise ValueError("a URL such as https://10.0.0.7:10250, without user or query")
    return text


def api(text: str) -> str:
    """Where the API server is."""
    if text in ("auto", "off"):
        return text
    if not text:
        raise ValueError("auto, off or a URL such as https://10.0.0.1:6443")
    return url(text)


def label_key(text: str) -> str:
    """The key of a label in Kubernetes, or nothing."""
    if text and not re.fullmatch(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text):
        raise ValueError("the key of a label, such as nvidia.com/gpu.deploy.client, or nothing")
    return text


def socket(text: str) -> str:
    """Where a unix socket is; nothing where nobody is to be asked."""
    if text in ("", "off"):
        return ""
    place = text.removeprefix("unix://")
    if text != "auto" and (not place.startswith("/") or "\0" in place):
        raise ValueError("auto, off or the path of a unix socket")
    return place


def words(text: str) -> tuple[str, ...]:
    """Words with commas between, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if len(found) > 50:
        raise ValueError("at most 50 names with commas between")
    return found
