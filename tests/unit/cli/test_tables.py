"""Tables: headings and colors for terminals, tab separated lines for pipes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from barnabas.cli.common.tables import bad, echo_table, table, warn


def shown(columns: tuple[str, ...], rows: list[tuple[object, ...]], width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table(columns, rows))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_numbers_are_right_aligned_and_text_left_aligned() -> None:
    rows = [("a", 5, warn("1.5 MiB")), ("bb", 1234, "-")]
    assert shown(("name", "count", "size"), rows) == [
        "name  count     size",
        "a         5  1.5 MiB",
        "bb     1234        -",
    ]


def test_an_address_is_left_aligned() -> None:
    assert shown(("broker", "n"), [("127.0.0.1:9092", 1)])[0].startswith("broker  ")


def test_wide_cells_are_folded_and_not_truncated() -> None:
    lines = shown(("name",), [("x" * 30,)], width=20)
    assert "".join(lines[1:]) == "x" * 30


def test_piped_output_has_tab_separated_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("a", "b", "c"), [("x", None, bad(3))])
    assert capsys.readouterr().out == "x\t-\t3\n"
