"""Tables: headings and colours for people, tab separated lines for programs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from barnabas.cli.common.tables import bad, echo_table, table, warn


def shown(columns: tuple[str, ...], rows: list[tuple[object, ...]], width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table(columns, rows))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_numbers_are_set_to_the_right_and_words_to_the_left() -> None:
    rows = [("a", 5, warn("1.5 MiB")), ("bb", 1234, "-")]
    assert shown(("name", "count", "size"), rows) == [
        "name  count     size",
        "a         5  1.5 MiB",
        "bb     1234        -",
    ]


def test_an_address_is_no_number() -> None:
    assert shown(("broker", "n"), [("127.0.0.1:9092", 1)])[0].startswith("broker  ")


def test_what_is_too_wide_is_folded_and_not_cut() -> None:
    lines = shown(("name",), [("x" * 30,)], width=20)
    assert "".join(lines[1:]) == "x" * 30


def test_programs_get_lines_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("a", "b", "c"), [("x", None, bad(3))])
    assert capsys.readouterr().out == "x\t-\t3\n"
