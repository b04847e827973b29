"""The table of invariants in ARCHITECTURE.md agrees with the assertions in the code.

An assertion in `src` that checks a named invariant begins its message with the name and a colon.
The message also contains the values: `assert a <= b, f"OffsetsInOrder: a={a} b={b}"`.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE_HEADER = "| invariant | statement | asserted in | checked in |"

# CamelCase with at least two words; `Bounded` is the only name with a single word.
NAME = re.compile(r"^(Bounded|(?:[A-Z][a-z]+){2,})\b")


def table_rows() -> dict[str, tuple[str, list[str], list[str]]]:
    """Return statement, packages and test folders of each invariant in ARCHITECTURE.md."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert TABLE_HEADER in lines, f"ARCHITECTURE.md has no table with {TABLE_HEADER}"
    rows = {}
    for line in lines[lines.index(TABLE_HEADER) + 2 :]:
        if not line.startswith("|"):
            break
        name, statement, packages, folders = [cell.strip() for cell in line.strip("|").split("|")]
        rows[name] = (
            statement,
            re.findall(r"`([^`]+)`", packages),
            re.findall(r"`([^`]+)`", folders),
        )
    return rows


def messages_of(tree: ast.Module) -> list[tuple[str, bool]]:
    """Return the first literal part of each assertion's message, and whether it has values."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert):
            continue
        message = node.msg
        parts = message.values if isinstance(message, ast.JoinedStr) else [message]
        if parts and isinstance(parts[0], ast.Constant) and isinstance(parts[0].value, str):
            has_values = any(isinstance(part, ast.FormattedValue) for part in parts)
            found.append((parts[0].value, has_values))
    return found


@cache
def asserted_names(top: str) -> dict[str, dict[str, bool]]:
    """Return, by invariant name, each package or folder below `top` that asserts it.

    The value tells whether every such assertion there gives values.
    """
    found: dict[str, dict[str, bool]] = {}
    for path in sorted((ROOT / top).rglob("*.py")):
        place = path.relative_to(ROOT / top).parts[0]
        if place == "unit":
            place = "/".join(path.relative_to(ROOT / top).parts[:2])
        for text, has_values in messages_of(ast.parse(path.read_text())):
            match = NAME.match(text)
            if match is not None and (match.end() == len(text) or text[match.end()] in ": "):
                places = found.setdefault(match[1], {})
                places[place] = places.get(place, True) and has_values
    return found


def asserted_in_source() -> dict[str, dict[str, bool]]:
    return asserted_names("src/barnabas")


def test_each_named_assertion_in_the_source_is_listed_with_its_package() -> None:
    rows = table_rows()
    missing = [
        f"{name} in {package}"
        for name, packages in asserted_in_source().items()
        for package in packages
        if name not in rows or package not in rows[name][1]
    ]
    assert not missing, f"not in the table of ARCHITECTURE.md: {missing}"


@pytest.mark.parametrize("name", table_rows())
def test_each_listed_invariant_is_asserted_where_the_table_says(name: str) -> None:
    statement, packages, folders = table_rows()[name]
    assert NAME.fullmatch(name), f"{name} is not a name of words in CamelCase"
    assert statement
    assert packages or folders, f"{name} is neither asserted nor checked by a test"
    asserted = asserted_in_source().get(name, {})
    checked = asserted_names("tests").get(name, {})
    missing = [package for package in packages if package not in asserted]
    missing += [f"tests/{folder}" for folder in folders if folder not in checked]
    assert not missing, f"no assertion begins its message with {name!r} in {missing}"


def test_each_named_assertion_in_the_source_gives_its_values() -> None:
    without = [
        f"{name} in {package}"
        for name, packages in asserted_in_source().items()
        for package, has_values in packages.items()
        if not has_values
    ]
    assert not without, f"assertions whose message has no values: {without}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('assert a, f"NoOffsetTwice: a={a}"', [("NoOffsetTwice: a=", True)]),
        ('assert a, "NoOffsetTwice"', [("NoOffsetTwice", False)]),
        ("assert a, a", []),
        ("assert a", []),
    ],
)
def test_the_check_reads_the_message_of_an_assertion(
    source: str, expected: list[tuple[str, bool]]
) -> None:
    assert messages_of(ast.parse(source)) == expected
