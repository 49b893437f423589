"""Log lines to standard error: key=value text, or one JSON object a line."""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(level: str, style: str, file: int | None = None) -> None:
    """Send every logger's lines to standard error in one style, and to a file that is open."""
    streams = (
        [sys.stderr] if file is None else [sys.stderr, os.fdopen(file, "a", buffering=1, encoding="utf-8")]
    )
    root = logging.getLogger()
    root.handlers[:] = [logging.StreamHandler(stream) for stream in streams]
    for handler in root.handlers:
        handler.setFormatter(_Json() if style == "json" else _Text())
    root.setLevel(LEVELS[level])
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The line as key=value pairs, on one line whatever the message holds."""
        return " ".join(f"{key}={_quoted(value)}" for key, value in _parts(self, record).items())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The line as a JSON object."""
        return json.dumps(_parts(self, record), ensure_ascii=False)


def _parts(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, str]:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    parts = {
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": record.getMessage(),
    }
    if record.exc_info:
        parts["error"] = formatter.formatException(record.exc_info)
    return parts


def _quoted(value: str) -> str:
    plain = value and not any(c.isspace() or c in '"=\\' or not c.isprintable() for c in value)
    return value if plain else json.dumps(value, ensure_ascii=False)
