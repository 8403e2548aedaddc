"""SQL stands in files, each statement with a purpose and a caller."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from counterfoil.infrastructure.statements import Statements

LAYER = Path(__file__).parents[1] / "infrastructure"
MAKES_SQL = ("rows_of_projections.py", "projection_tables.py")
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|WITH)\s")
NAMED = {
    f"{file.name}: {name}": (name, body)
    for file in sorted(LAYER.rglob("*.sql"))
    for name, body in re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name|\Z)", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
}
WORDS = {word for file in LAYER.rglob("*.py") for word in re.findall(r"\w+", file.read_text("utf-8"))}


@pytest.mark.parametrize("statement", NAMED)
def test_statement_is_described_and_used(statement: str) -> None:
    name, body = NAMED[statement]

    assert body.startswith("-- ")
    assert name.removesuffix("_newest_first") in WORDS


def test_no_statement_stands_in_code() -> None:
    found = [
        f"{file.relative_to(LAYER)}:{node.lineno}: {node.value[:40]}"
        for file in sorted(LAYER.rglob("*.py"))
        if file.name not in MAKES_SQL
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
    ]

    assert not found, "\n".join(["statements belong into infrastructure/sql/:", *found])


def test_a_fragment_stands_where_it_is_included() -> None:
    """It is no statement of its own, and its description goes nowhere."""
    found = Statements(
        "-- fragment: rows\n-- All of it.\nSELECT *\nFROM a\n\n-- name: one\n-- One.\n-- include: rows\nWHERE id = ?\n"
    )

    assert "SELECT *\nFROM a\nWHERE id = ?" == found.one
    with pytest.raises(AttributeError):
        _ = found.rows


def test_a_fragment_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError):
        Statements("-- name: one\n-- include: rows\n")
