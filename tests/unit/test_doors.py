"""Time, randomness, files, sockets and threads are used through `runtime` only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src"

# What these packages are for: the doors themselves, and the outermost layer that people start.
OUTSIDE = ("barnabas/runtime", "barnabas/sim", "barnabas/testing", "barnabas/cli", "barnabas/spark")
OUTSIDE_TOP = ("pyspark_barnabas", "pyspark_barnabas_delta", "pyspark_barnabas_iceberg")
# The asynchronous faces are written in the language of asyncio.
ASYNC_FACES = ("barnabas/client/aio", "barnabas/console", "barnabas/registry")

CLOSED_MODULES = {
    "asyncio",
    "concurrent",
    "datetime",
    "fcntl",
    "io",
    "multiprocessing",
    "obstore",
    "os",
    "pathlib",
    "queue",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}
CLOSED_NAMES = {"uuid1", "uuid4", "urandom"}
# Pure parts of closed modules: no clock is read and no file is touched.
PURE = {("datetime", "timedelta"), ("datetime", "UTC"), ("datetime", "timezone"), ("io", "BytesIO")}


def sources() -> list[Path]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(f"{top}/" for top in OUTSIDE + OUTSIDE_TOP)):
            found.append(path)
    return found


def type_checking_nodes(tree: ast.Module) -> set[ast.AST]:
    """Return the imports that only the type checker evaluates."""
    nodes: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes.update(inner for part in node.body for inner in ast.walk(part))
    return nodes


def opened_doors(tree: ast.Module) -> list[str]:
    ignored = type_checking_nodes(tree)
    found = []
    for node in ast.walk(tree):
        if node in ignored:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
            found += [f"line {node.lineno}: {n}" for n in names if n in CLOSED_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            top = node.module.split(".")[0]
            for alias in node.names:
                closed = top in CLOSED_MODULES and (node.module, alias.name) not in PURE
                if closed or alias.name in CLOSED_NAMES:
                    found.append(f"line {node.lineno}: {node.module}.{alias.name}")
        elif isinstance(node, ast.Attribute) and node.attr in CLOSED_NAMES:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            found.append(f"line {node.lineno}: open()")
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_uses_the_system_only_through_runtime(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    doors = opened_doors(ast.parse(path.read_text()))
    if name.startswith(ASYNC_FACES):
        doors = [door for door in doors if not door.endswith(("asyncio", ".Future"))]
    assert not doors, "; ".join(doors)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4",
        "open('x')",
        "def late():\n    import socket",
    ],
)
def test_the_check_detects_a_direct_use_of_the_system(source: str) -> None:
    assert opened_doors(ast.parse(source))


def test_imports_for_the_type_checker_are_allowed() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio\n"
    assert opened_doors(ast.parse(source)) == []
