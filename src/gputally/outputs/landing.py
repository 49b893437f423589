"""The landing page: what there is to see, in plain HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gputally import __version__
from gputally.dialects import DIALECTS

STYLE = """\
:root { color-scheme: light dark; }
body { font: 17px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; }
h1 small { font-weight: normal; opacity: .7; }
p { margin: .5rem 0 1.5rem; }
.notice { border-left: .3rem solid #c60; padding-left: .8rem; }
dt { font-family: ui-monospace, monospace; }
dd { margin: 0 0 .8rem; }
"""
NOTICES = {
    "simulated": '<p class="notice">This machine is simulated: nothing here was measured on a GPU.</p>',
    "recorded": '<p class="notice">This machine is recorded: nothing here was measured just now.</p>',
}
"""Machine -> what nobody may overlook."""
UPSTREAM = "only metrics of the other exporter"


def landing(machine: str, path: str, pages: Iterable[str], healthy: str, ready: str) -> bytes:
    """The page of a machine whose metrics are at a path, and alone at further ones under it."""
    links = [
        (path, "all metrics, for Prometheus"),
        *((f"{path}/{name}", _about(name)) for name in pages),
        (healthy, "health: whether the program answers"),
        (ready, "readiness: whether there are metrics of now"),
    ]
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>gputally</title>",
        f"<style>\n{STYLE}</style>",
        f"<h1>gputally <small>{escape(__version__)}</small></h1>",
        "<p>Who uses each GPU, how much, and for how many joules.</p>",
        NOTICES.get(machine, ""),
        "<dl>",
        *(
            f'<dt><a href="{escape(link)}">{escape(link)}</a></dt><dd>{escape(what)}</dd>'
            for link, what in links
        ),
        "</dl>",
        "</html>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _about(page: str) -> str:
    return f"only metrics under {DIALECTS[page].names}" if page in DIALECTS else UPSTREAM
