"""Size limits of files, functions and argument lists."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
ARGUMENTS_MAX = 6

TOPS = ("src", "tools", "bench", "examples", "tests")

# Field tables are data: one line per field, however many fields a Kafka message has.
TABLES = ("src/barnabas/protocol/messages/", "src/barnabas/protocol/records/")

SOURCES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py"))
assert SOURCES, "the tidy test found no sources"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def function_problems(tree: ast.Module) -> list[str]:
    problems = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            problems.append(f"{node.name} has {lines} lines")
        names = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
        count = len([name for name in names if name not in {"self", "cls"}])
        decorated = any("click" in ast.unparse(d) for d in node.decorator_list)
        if count > ARGUMENTS_MAX and not decorated:
            problems.append(f"{node.name} takes {count} arguments")
    return problems


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_file_functions_and_arguments_stay_within_the_sizes_of_the_style(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    problems = function_problems(tree)
    lines = text.count("\n")
    if lines > FILE_LINES_MAX and not name_of(path).startswith(TABLES):
        problems.append(f"the file has {lines} lines")
    if text.strip() and ast.get_docstring(tree) is None:
        problems.append("the file does not open with what it is")
    assert not problems, "; ".join(problems)


def test_no_file_has_a_todo_or_a_catch_all_name() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *TOPS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line for line in listed.stdout.splitlines() if line.endswith(".py")]
    assert names
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X ")
    offenders = [n for n in names if any(m in (ROOT / n).read_text() for m in marks)]
    offenders += [n for n in names if Path(n).stem in {"utils", "util", "common", "helpers"}]
    assert not offenders


def imported_modules(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names |= {".".join([*module, each.name]) for each in node.names}
    return names


def test_no_file_imports_from_a_file_of_tests() -> None:
    """What several test files share is in a module of its own, without `test_` in its name."""
    tests = {
        path.relative_to(ROOT / "tests") for path in SOURCES if (ROOT / "tests") in path.parents
    }
    files = {
        ".".join(path.with_suffix("").parts) for path in tests if path.name.startswith("test_")
    }
    assert files
    offenders = [
        f"{name_of(path)}: {name}"
        for path in SOURCES
        # Most files have no such name, and need not be parsed.
        if "test_" in (text := path.read_text())
        for name in imported_modules(ast.parse(text))
        if name in files or name.rpartition(".")[0] in files
    ]
    assert not offenders


def test_each_suppression_in_the_sources_has_a_reason() -> None:
    bare = re.compile(r"#\s*(noqa: [A-Z0-9, ]+|noqa|type: ignore(\[[a-z, -]+\])?)$", re.MULTILINE)
    folders = (ROOT / "src", ROOT / "bench", ROOT / "tools")
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    assert paths
    offenders = [
        f"{path.relative_to(ROOT)}: {found.group(0)}"
        for path in paths
        for found in bare.finditer(path.read_text())
    ]
    assert not offenders
