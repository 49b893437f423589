"""The options of `gputally verify`, which has no use for the settings of the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gputally.config import Wrong
from gputally.parse import one_of, path, within
from gputally.setting import Setting
from gputally.views.verify import SELECTOR, Request


def web_url(text: str) -> str | None:
    """The address of an HTTP server, or nothing."""
    if not text:
        return None
    parts = urlsplit(text)
    good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    if not good or parts.query or parts.fragment:
        raise ValueError("an address such as http://prometheus.example:9090")
    return text


def selector(text: str) -> str:
    """A label selector of Kubernetes."""
    if not text or text.startswith("-") or any(c.isspace() for c in text):
        raise ValueError(f"a label selector such as {SELECTOR}")
    return text


VERIFY_OPTIONS = (
    Setting("prometheus.url", "", web_url, "URL", "The Prometheus that scrapes gputally."),
    Setting("prometheus.token-file", "", path, "PATH", "A file with the bearer token it wants."),
    Setting("prometheus.ca-file", "", path, "PATH", "Who must have signed its certificate."),
    Setting(
        "kubectl",
        "auto",
        one_of("auto", "on", "off"),
        "auto|on|off",
        "Ask the cluster through kubectl; auto where kubectl is set up.",
    ),
    Setting(
        "kubernetes.selector", SELECTOR, selector, "LABELS", "Which objects of the cluster are gputally's."
    ),
    Setting("deadline", "30s", within(1, 600), "DURATION", "How long all of it may take."),
)


def request(flags: Mapping[str, str | None]) -> Request:
    """What the flags ask for; raises Wrong at the first that cannot be used."""
    values = {}
    for option in VERIFY_OPTIONS:
        text = flags.get(option.flag)
        try:
            values[option.flag] = option.read(option.default if text is None else text)
        except ValueError as error:
            raise Wrong(f"--{option.flag} {text!r} cannot be used: it must be {error}") from None
    return Request(
        url=values["prometheus.url"],
        token=_token(values["prometheus.token-file"]),
        ca_file=values["prometheus.ca-file"],
        kubectl=values["kubectl"],
        selector=values["kubernetes.selector"],
        seconds=values["deadline"],
    )


def _token(file: str | None) -> str:
    if file is None:
        return ""
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise Wrong(f"--prometheus.token-file {file!r} cannot be read: {error}") from None
    if not token.isprintable():
        raise Wrong(f"--prometheus.token-file {file!r} holds no token")
    return token
