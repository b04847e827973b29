"""Run tests in a pytest process of their own and read what failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

# A test has 600 s (`timeout` in pyproject.toml); its file may start Java and Spark first.
TIMEOUT_S = 1200


@dataclass(frozen=True)
class Outcome:
    """The result of one process.

    Attributes:
        errors: the error of each failed test by its name, in the order of the run. A process that
            ran no test, crashed or did not end has one error under the name of the command.
        output: everything that the process printed.
        passed: the number of tests that passed.
    """

    errors: dict[str, str]
    output: str
    passed: int


def first_line(text: str) -> str:
    """Return the first line of an error that is not empty, cut to the width of a terminal line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else "no message"


def run_alone(tests: Sequence[str], directory: Path, timeout_s: int = TIMEOUT_S) -> Outcome:
    """Run tests in one new process, without pytest-xdist and without options of the environment.

    Args:
        tests: ids of tests, paths, or options of pytest.
        directory: the root directory of the project; ids are relative to it.
        timeout_s: the process is killed after this time, in seconds.
    """
    with tempfile.TemporaryDirectory() as temporary:
        results, printed = Path(temporary, "results.xml"), Path(temporary, "output")
        command = [sys.executable, "-m", "pytest", "-n", "0", f"--junitxml={results}"]
        with printed.open("wb") as file:
            try:
                status = subprocess.run(
                    [*command, *tests],
                    cwd=directory,
                    env={**os.environ, "PYTEST_ADDOPTS": ""},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=timeout_s,
                    check=False,
                ).returncode
                ended = f"pytest ended with status {status}"
            except subprocess.TimeoutExpired:
                status, ended = -1, f"pytest did not end within {timeout_s} s"
        output = printed.read_text(errors="replace")
        errors, passed = _read(results) if results.exists() else ({}, 0)
    if not errors and (status != 0 or not passed):
        errors = {"pytest": ended if status else "all tests were skipped"}
    return Outcome(errors, output, passed)


def _read(results: Path) -> tuple[dict[str, str], int]:
    """Return the errors by the name of the test, and the number of passed tests."""
    errors: dict[str, str] = {}
    passed = 0
    for case in ET.parse(results).iter("testcase"):
        found = [each for each in case if each.tag in {"failure", "error"}]
        if found:
            name = f"{case.get('classname')}::{case.get('name')}"
            errors[name] = first_line(found[0].get("message") or found[0].text or "")
        passed += not found and case.find("skipped") is None
    return errors, passed


def kind_of(error: str) -> str:
    """Return an error without its numbers: errors of one kind differ in ports, times and counts."""
    return re.sub(r"\b0x[0-9a-f]+|[0-9]+", "#", error)
