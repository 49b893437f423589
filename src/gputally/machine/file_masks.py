"""What a recording keeps of files that may hold secrets: the fields that resolvers use, nothing else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

CONMON = {"-c": "--cid", "-n": "--name"}
"""Flags of conmon's command line that say which container it watches over."""


def what_we_use(path: str, content: bytes) -> str:
    """The part of a file that is kept."""
    text = content.decode("utf-8", "replace")
    if path.endswith("/cmdline"):
        return "\0".join(conmon_words(text.split("\0")))
    if path.endswith("/config.v2.json"):
        return _docker(text)
    return text


def conmon_words(words: Sequence[str]) -> list[str]:
    """The command and the two flags of a conmon; of any other program, nothing."""
    if not words or words[0].rpartition("/")[2] != "conmon":
        return []
    kept = ["conmon"]
    for word, value in itertools.pairwise(words):
        if word not in kept and (word in CONMON or word in CONMON.values()):
            kept += [word, value]
    return kept


def _docker(text: str) -> str:
    try:
        content = json.loads(text)
        return json.dumps({name: content[name] for name in ("ID", "Name") if name in content})
    except (ValueError, TypeError, RecursionError):
        return ""
