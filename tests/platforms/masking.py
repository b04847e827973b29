"""Processes that see only what another operating system has.

`mask/sitecustomize.py` removes names from modules of Python before anything else is imported. The
stubs of the standard library, which mypy brings along, say which names each system has.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import mypy

MASK = Path(__file__).parent / "mask"
STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
# Modules whose content depends on the operating system.
MODULES = ("errno", "fcntl", "mmap", "os", "resource", "select", "signal", "socket", "time")
LINUX, MACOS, WINDOWS = "linux", "darwin", "win32"
# Windows gets names later than Linux, such as `os.set_blocking` with Python 3.12.
OLDEST_PYTHON = (3, 11)
# Modules that Windows lacks.
NOT_ON_WINDOWS = (
    "fcntl",
    "grp",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
    # Not in the standard library.
    "uvloop",
)
# Packages call these without looking, where `sys.platform` is that of Linux.
NOT_REMOVED = {WINDOWS: {"uname"}, MACOS: set[str](), LINUX: set[str]()}
# Functions of the C library that macOS lacks.
NOT_IN_LIBRARY = ("mallopt", "malloc_trim", "prctl", "syncfs")


def masked(
    system: str, directory: Path, *, without: Sequence[str] = (), note: Path | None = None
) -> dict[str, str]:
    """Return the environment variables of a process, and its children, on another system.

    Args:
        system: `LINUX`, `MACOS` or `WINDOWS`, as in `sys.platform`.
        directory: gets a file with the names.
        without: modules that cannot be imported.
        note: a file that gets the id of each process.
    """
    file = directory / f"{system}.json"
    blocked = [*without, *(NOT_ON_WINDOWS if system == WINDOWS else ())]
    names = {
        module: sorted(absent(module, system) - NOT_REMOVED[system])
        for module in MODULES
        if module not in blocked
    }
    library = NOT_IN_LIBRARY if system == MACOS else ()
    content = {"system": system, "names": names, "modules": blocked, "library": library}
    file.write_text(json.dumps(content))
    variables = {
        "PYTHONPATH": os.pathsep.join([str(MASK), *filter(None, sys.path)]),
        "SYSTEM_MASK": str(file),
    }
    if system == MACOS:
        # What `sysconfig` says. Packages look for a version of macOS in it.
        variables["_PYTHON_HOST_PLATFORM"] = "macosx-14.0-arm64"
    return variables if note is None else {**variables, "SYSTEM_MASK_NOTE": str(note)}


@cache
def absent(module: str, system: str) -> frozenset[str]:
    """Return the public names of a module that this system has and the other lacks."""
    here = {name for name in dir(importlib.import_module(module)) if not name.startswith("_")}
    return frozenset(
        name
        for python in (OLDEST_PYTHON, sys.version_info)
        for name in here & (_names(module, sys.platform, python) - _names(module, system, python))
    )


def _names(module: str, system: str, python: tuple[object, ...]) -> set[str]:
    path = STUBS / f"{module}.pyi"
    if not path.exists():
        path = STUBS / module / "__init__.pyi"
    facts = SimpleNamespace(platform=system, version_info=python)
    return set(_defined(ast.parse(path.read_text()).body, {"sys": facts}))


def _defined(statements: Sequence[ast.stmt], facts: Mapping[str, object]) -> Iterator[str]:
    """Yield the names that statements of a stub define, if its conditions hold."""
    for each in statements:
        if isinstance(each, ast.If):
            condition = compile(ast.Expression(each.test), "stub", "eval")
            yield from _defined(each.body if eval(condition, dict(facts)) else each.orelse, facts)
        elif isinstance(each, ast.ImportFrom):
            yield from (alias.asname for alias in each.names if alias.asname)
        elif isinstance(each, ast.FunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
