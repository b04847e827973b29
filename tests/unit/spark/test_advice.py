"""Messages and pages never offer first what loses or repeats rows, and name the cost of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.spark.safe_advice import DANGEROUS, assert_safe

ROOT = Path(__file__).parents[3]
SOURCES = sorted(
    path
    for part in ("spark", "cli/pipeline", "console/pages")
    for path in (ROOT / "src" / "barnabas" / part).rglob("*.py")
)
PAGES = [ROOT / "docs" / name for name in ("pipelines.md", "spark.md", "tables.md")]


def messages(path: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings, with … for values."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in docstrings or id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_are_safe() -> None:
    found = [
        (path, text)
        for path in SOURCES
        for text in messages(path)
        # A command alone is a part of a message.
        if DANGEROUS.search(text) and " " in text.replace("barnabas pipeline reset …", "")
    ]
    assert found
    for _path, text in found:
        assert_safe(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_the_cost(page: Path) -> None:
    for paragraph in page.read_text().split("\n\n"):
        if not paragraph.startswith("```"):
            assert_safe(paragraph)
