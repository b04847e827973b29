"""Names that not all operating systems have are used in `runtime` only.

`tests/platforms/masking.py` says which names macOS and Windows lack.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.masking import MACOS, MODULES, NOT_ON_WINDOWS, WINDOWS, absent

SOURCE = Path(__file__).parents[2] / "src"
DOOR = "barnabas/runtime/"
# Directories of Linux, as the beginning of a path.
LINUX_PATHS = ("/proc", "/sys")
# Files that may use what macOS lacks: tools for tests, which do without it elsewhere.
ON_LINUX = {
    "barnabas/testing/free_ports.py",
    "barnabas/testing/relays.py",
}
# Files that may use what Windows lacks: they run servers, or pipelines of Spark.
ON_POSIX = ON_LINUX | {
    "barnabas/cli/nodes/cluster_nodes.py",
    "barnabas/cli/nodes/process_output.py",
    "barnabas/cli/nodes/registry_child.py",
    "barnabas/spark/pipelines/run_process.py",
    "barnabas/spark/pipelines/runs.py",
    "barnabas/testing/broker_process.py",
}


def sources() -> list[str]:
    found = (path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py")))
    return [name for name in found if not name.startswith(DOOR)]


def used_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each name of an imported module; the name "" for the import."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in imported:
                yield node.value.id, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def missing(source: str, system: str) -> list[str]:
    """Return what a file uses and a system lacks."""
    found = []
    for module, name in used_names(ast.parse(source)):
        lacks_module = system == WINDOWS and module in NOT_ON_WINDOWS
        if lacks_module or (module in MODULES and name in absent(module, system)):
            found.append(f"{module}.{name}")
    return found


def linux_paths(source: str) -> list[str]:
    return [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(LINUX_PATHS)
    ]


@pytest.mark.parametrize("name", sources())
def test_a_file_uses_only_names_of_all_systems(name: str) -> None:
    source = (SOURCE / name).read_text()
    if name not in ON_LINUX:
        assert missing(source, MACOS) == []
        assert linux_paths(source) == []
    if name not in ON_POSIX:
        assert missing(source, WINDOWS) == []


@pytest.mark.parametrize("name", sorted(ON_POSIX))
def test_each_exception_is_needed(name: str) -> None:
    source = (SOURCE / name).read_text()
    assert missing(source, WINDOWS) or linux_paths(source)


on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has the names that macOS lacks"
)


@pytest.mark.parametrize(
    ("source", "system"),
    [
        pytest.param("import os\nos.fdatasync(1)", MACOS, marks=on_linux),
        pytest.param("from socket import TCP_USER_TIMEOUT", MACOS, marks=on_linux),
        pytest.param("import select\nselect.epoll()", MACOS, marks=on_linux),
        ("import os\nos.fork()", WINDOWS),
        ("import signal\nsignal.SIGHUP", WINDOWS),
        ("import socket\nsocket.AF_UNIX", WINDOWS),
        ("def late():\n    import fcntl", WINDOWS),
    ],
)
def test_the_check_detects_a_name(source: str, system: str) -> None:
    assert missing(source, system)


def test_the_check_detects_a_path_of_linux() -> None:
    assert linux_paths("open('/proc/self/stat')")
