"""Law 9: a module imports only what comes before it on the line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "gputally"

LINE = (
    ("",),
    ("columns", "counted", "foreign", "kernel", "claimed"),
    ("model",),
    ("lanes",),
    ("machine",),
    ("sources",),
    ("owners",),
    ("collect",),
    ("meter", "apportion", "idle", "intensity", "weights"),
    ("crowd", "shares"),
    ("attribute",),
    ("coverage",),
    ("tally",),
    ("limits",),
    ("joined",),
    ("accounts",),
    ("claims", "desk", "stays", "workloads"),
    ("process_book",),
    ("ledger",),
    ("loop",),
    ("files",),
    ("writing",),
    ("state",),
    ("keeper",),
    ("metrics",),
    ("dialects",),
    ("outputs",),
    ("views",),
    ("parse", "logs", "setting"),
    ("setting_names", "setting_sources", "setting_feeds", "setting_dialects"),
    ("config",),
    ("feeds",),
    ("asking", "footprint", "publishing", "yielding"),
    ("verify_options",),
    ("service",),
    ("accounting",),
    ("cli",),
    ("compat",),
    ("__main__",),
)
PLACE = {name: place for place, names in enumerate(LINE) for name in names}
CORE = (
    *("model", "lanes", "collect", "meter", "apportion", "idle", "intensity", "weights", "crowd"),
    *(
        "shares",
        "attribute",
        "coverage",
        "columns",
        "tally",
        "limits",
        "accounts",
        "desk",
        "workloads",
        "process_book",
    ),
    *("ledger", "loop", "metrics"),
)


def part(module: str) -> str:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


def imports(path: Path) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            here = {f"{node.module}.{alias.name}" for alias in node.names}
            known = {name for name in here if part(name) in PLACE} if node.module == "gputally" else set()
            found |= known or {node.module}
    return found


def modules() -> list[Path]:
    return sorted(path for path in SRC.rglob("*.py") if path.parent != SRC or path.name != "__init__.py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_one_way(path: Path) -> None:
    own = path.relative_to(SRC).parts[0].removesuffix(".py")
    ours = {part(name) for name in imports(path) if name.split(".")[0] == "gputally"}
    late = {name for name in ours if PLACE[name] > PLACE[own]}
    assert not late, f"{own} comes before {late}"


@pytest.mark.parametrize("name", CORE)
def test_the_core_needs_the_standard_library_only(name: str) -> None:
    foreign = {module.split(".")[0] for module in imports(SRC / f"{name}.py")}
    assert not foreign & {"pynvml", "tornado", "h2", "google", "yaml"}


def test_no_module_is_too_long() -> None:
    assert {path.name: n for path in modules() if (n := len(path.read_text().splitlines())) > 300} == {}
