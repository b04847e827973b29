"""Each capability in the comparison of docs/console.md names its test in Chromium."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "tests/conformance", ROOT / "tests/jvm")
_SECTION = "## Beside Redpanda Console and kafka-ui"
_NAMED = re.compile(r"`(test_console_browser\w*\.py)::(test_\w+)`")


def rows() -> dict[str, str]:
    """Return the column of Barnabas by capability."""
    table = (ROOT / "docs/console.md").read_text().split(_SECTION, 1)[1]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")]
    return {name.strip(): ours.strip() for name, ours in cells}


def text_of(file: str) -> str:
    """Return the text of a test file; "" if there is none."""
    paths = [folder / file for folder in FOLDERS]
    return "".join(path.read_text() for path in paths if path.exists())


def functions_of(file: str) -> set[str]:
    return {node.name for node in ast.parse(text_of(file)).body if hasattr(node, "name")}


def test_each_capability_names_an_existing_test_in_chromium() -> None:
    wanted = {name: ours for name, ours in rows().items() if ours.startswith("●")}
    assert len(wanted) > 60
    wrong = {}
    for name, ours in wanted.items():
        found = _NAMED.search(ours)
        if found is None or found[2] not in functions_of(found[1]):
            wrong[name] = ours
    assert wrong == {}


def test_each_named_file_drives_chromium() -> None:
    files = {found[1] for ours in rows().values() if (found := _NAMED.search(ours))}
    assert files
    assert [each for each in files if "Chromium(" not in text_of(each)] == []
