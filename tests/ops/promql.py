"""Queries: read as PromQL, with the variables of Grafana filled in, and taken apart."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser

from tests.ops.dashboards import Query
from tests.ops.dashboards import queries as dashboard_queries
from tests.ops.rules import ROOT, RULE_FILES, rules

GRAFANA = {"$__rate_interval": "1m", "$__range": "10m", "$__interval": "1m"}
PAGES = ("README.md", "docs/*.md")


class Matcher(NamedTuple):
    """One condition on a label."""

    name: str
    text: str


class Selector(NamedTuple):
    """Series that a query reads, and the function right around them."""

    name: str
    matchers: tuple[Matcher, ...]
    function: str

    @property
    def query(self) -> str:
        """A query for these series alone."""
        inside = ", ".join(f"{matcher.name}{matcher.text}" for matcher in self.matchers)
        return f"{self.name}{{{inside}}}"


def bare(expression: str) -> str:
    """The expression as Grafana would send it, with everything chosen."""
    for variable, value in GRAFANA.items():
        expression = expression.replace(variable, value)
    return re.sub(r"\$\w+", ".*", expression)


def parse(expression: str) -> Any:
    """The expression's tree; raises ValueError where it is no PromQL."""
    return promql_parser.parse(bare(expression))


def selectors(expression: str) -> list[Selector]:
    """All series the expression reads."""
    return list(_selectors(parse(expression), ""))


def _selectors(node: Any, function: str) -> Iterator[Selector]:
    match type(node).__name__:
        case "VectorSelector":
            matchers = tuple(_matcher(matcher) for matcher in node.matchers.matchers)
            yield Selector(node.name or "", matchers, function)
        case "MatrixSelector":
            yield from _selectors(node.vector_selector, function)
        case "BinaryExpr":
            yield from _selectors(node.lhs, "")
            yield from _selectors(node.rhs, "")
        case "Call":
            for argument in node.args:
                yield from _selectors(argument, node.func.name)
        case "AggregateExpr" | "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
            yield from _selectors(node.expr, "")
        case "NumberLiteral" | "StringLiteral":
            return
        case other:
            raise AssertionError(f"a kind of expression that this test does not know: {other}")


def _matcher(matcher: Any) -> Matcher:
    signs = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    value = matcher.value.replace("\\", "\\\\").replace('"', '\\"')
    return Matcher(matcher.name, f'{signs[str(matcher.op).removeprefix("MatchOp.")]}"{value}"')


def rule_queries() -> Iterator[Query]:
    """Every expression of the rules."""
    for path in RULE_FILES:
        for rule in rules(path):
            yield Query(f"{path.stem} / {rule.get('alert') or rule['record']}", rule["expr"])


def page_queries() -> Iterator[Query]:
    """Every query in a block marked promql of the README and the docs; lines that go on are indented."""
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        for block in re.findall(r"^```promql\n(.*?)^```", path.read_text(), re.M | re.S):
            text = re.sub(r"^#.*\n", "", block, flags=re.M)
            for query in re.findall(r"^\S.*(?:\n[ \t)].*)*", text, re.M):
                yield Query(f"{path.name} / {query.splitlines()[0][:60]}", query)


def all_queries() -> list[Query]:
    """Every query we ship."""
    return [*dashboard_queries(), *rule_queries(), *page_queries()]
