"""Text of clients and peers cannot forge log lines or control a terminal."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest

import barnabas.cli
from barnabas.cli.common.output import echo_json, problem
from barnabas.cli.common.printable import (
    echo,
    json_line,
    printable,
    printable_bytes,
    printable_lines,
)
from barnabas.cli.common.tables import bad, echo_entry, echo_line, echo_table, table
from barnabas.cli.nodes.start_broker import JsonFormatter, TextFormatter

HOSTILE = (
    "a\n2026-01-01 00:00:00 ERROR forged\r\x1b[2J\x1b]0;title\x07\x9b31m\u202eb\u2028c\x00\x7f"
)
ESCAPED = (
    r"a\n2026-01-01 00:00:00 ERROR forged\r\x1b[2J\x1b]0;title\x07\x9b31m\u202eb\u2028c\x00\x7f"
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def record_of(text: str, *, with_error: bool = False) -> logging.LogRecord:
    error = None
    if with_error:
        try:
            raise ValueError(text)
        except ValueError:
            error = sys.exc_info()
    return logging.LogRecord("barnabas.x", logging.WARNING, "f", 1, "group %s", (text,), error)


def test_printable_text_is_one_line_without_controls() -> None:
    assert printable(HOSTILE) == ESCAPED
    assert printable("ein Thema, 主题 ✓") == "ein Thema, 主题 ✓"
    assert printable("\ud800") == r"\ud800"


def test_lines_keep_their_newlines_and_tabs() -> None:
    assert printable_lines("a\n\tb\x1b[1m") == "a\n\tb\\x1b[1m"


def test_bytes_are_escaped_as_their_text_is() -> None:
    for text in (HOSTILE, "a\tb\nc", "ein Thema ✓ à"):
        assert printable_bytes(text.encode()) == printable_lines(text).encode()
    assert printable_bytes(b"\xff\xfe") == b"\xff\xfe"


def test_escaped_json_has_the_same_value() -> None:
    line = json_line({"name": HOSTILE, "other": "✓"})
    assert json.loads(line) == {"name": HOSTILE, "other": "✓"}
    assert "✓" in line
    assert not CONTROLS.search(line)
    assert "\n" not in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_message_of_the_log_is_one_line(formatter: logging.Formatter) -> None:
    text = formatter.format(record_of(HOSTILE))
    assert "\n" not in text
    assert not CONTROLS.search(text)


def test_lines_of_a_traceback_cannot_be_taken_for_messages() -> None:
    lines = TextFormatter().format(record_of(HOSTILE, with_error=True)).split("\n")
    assert len(lines) > 3
    assert "WARNING barnabas.x: group a\\n2026" in lines[0]
    assert all(line.startswith("    ") for line in lines[1:])
    assert not any(CONTROLS.search(line) for line in lines)


def test_usual_log_messages_are_not_changed() -> None:
    record = record_of("g")
    usual = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    assert TextFormatter().format(record) == usual.format(record)


def test_printed_text_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE)
    problem(HOSTILE)
    echo_json({"a": HOSTILE})
    echo_line("x ", bad(HOSTILE), HOSTILE)
    echo_entry(bad(HOSTILE), HOSTILE, HOSTILE)
    printed = "".join(capsys.readouterr())
    assert not CONTROLS.search(printed.replace("\x1b[31m\x1b[1merror: \x1b[0m", ""))


def test_a_cell_of_a_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo_table(("a", "b"), [(HOSTILE, bad("x\ty"))])
    assert capsys.readouterr().out == f"a\tb\n{ESCAPED}\tx\\ty\n"
    cells = [str(cell) for column in table(("a",), [(HOSTILE,)]).columns for cell in column.cells]
    assert ESCAPED in cells


def test_commands_print_only_through_the_output_module() -> None:
    allowed = {
        "printable.py": 1,
        # A line of cells, each of which is printable.
        "tables.py": 1,
        # A shell's script, made by click.
        "group.py": 1,
    }
    found: dict[str, int] = {}
    for path in Path(barnabas.cli.__file__).parent.rglob("*.py"):
        count = len(re.findall(r"click\.echo\(|(?<![\w.])print\(", path.read_text()))
        if count:
            found[path.name] = count
    assert found == allowed
