"""Choose tests: `make test` runs few, `make check` runs most, `make nightly` runs all.

`make check` leaves out two kinds of tests; a run with paths includes them:

- Tests with the mark `nightly`: more seeds, more steps at which a process is killed, more versions
  of what another test shows already, more kinds of records in directories that pass from Apache
  Kafka to Barnabas and back.
- The same test on Apache Kafka, of tests that run on both brokers. It shows that the test expects
  what Kafka does. Comparisons with a running Kafka (`tests/differential`) are in `make check`, and
  tests whose Kafka has a certain version or group protocol.

`make test` is `pytest --short`: all tests that start no server and no Spark, and of the others the
files below, which show that clients, brokers, replication and pipelines work. Nothing of Apache
Kafka is run. `pytest --rest` runs what `--short` leaves out: `.ci/run` runs both, one after the
other, so that no test runs twice.

`CHECK_S_MAX` limits how long both may take (`unit/test_schedule.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent

# Folders with tests whose parameter "kafka" is the broker.
BOTH_BROKERS = ("conformance", "documents", "spark")
# Names of Apache Kafka as the broker of a test: a version or a group protocol may follow.
_KAFKA = "kafka"
_NIGHTLY = "pytest.mark.nightly"
_ANY_KAFKA = re.compile(rf"{_KAFKA}([ -](3\.9|classic|consumer))?")

# A limit for the sum of the seconds in `durations.txt` of all files that `make check` runs.
CHECK_S_MAX = 9_200

# Folders whose tests start no servers, or only a few, and do not use Apache Kafka.
SHORT_FOLDERS = ("property", "simulation", "storms", "unit")

# Real processes and real clients.
SHORT_FILES = (
    "chaos/test_checker.py",
    "chaos/test_transaction_checker.py",
    "conformance/test_aiokafka.py",
    "conformance/test_cli_cluster.py",
    "conformance/test_client_producer.py",
    "conformance/test_cluster.py",
    "conformance/test_consumer_groups.py",
    "conformance/test_kafka_python.py",
    "conformance/test_librdkafka.py",
    "conformance/test_process.py",
    "conformance/test_produce_consume.py",
    "conformance/test_protocol.py",
    "scenario/test_language.py",
    "scenario/test_stories.py",
    "scenario/transactions/test_ledger.py",
    "spark/test_read.py",
    "spark/test_stream.py",
    "spark/test_write.py",
)


def nightly_unless(selected: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """Return parameters of a test; those that are not selected are for `make nightly` only."""
    return [
        case if selected(case) else pytest.param(case, marks=pytest.mark.nightly) for case in cases
    ]


def nightly_rows_unless(
    selected: Callable[[Any], bool], rows: Iterable[tuple[Any, ...]]
) -> list[Any]:
    """Do the same for a test with several parameters; each row has a value of each."""
    return [pytest.param(*row, marks=() if selected(row) else pytest.mark.nightly) for row in rows]


def is_short(path: Path) -> bool:
    """Return whether `pytest --short` runs the tests of this file or looks into this folder."""
    name = path.relative_to(TESTS).as_posix()
    if name == "." or name.split("/")[0] in SHORT_FOLDERS:
        return True
    if path.is_dir():
        return any(file.startswith(f"{name}/") for file in SHORT_FILES)
    return name in SHORT_FILES


def is_collected(options: Any, path: Path) -> bool:
    """Return whether a run with the options `short` and `rest` looks into a file or a folder."""
    if options.short:
        return is_short(path)
    return not (options.rest and _is_in_short_folder(path))


def _is_in_short_folder(path: Path) -> bool:
    return path.relative_to(TESTS).parts[:1] in [(name,) for name in SHORT_FOLDERS]


def is_chosen(options: Any, item: pytest.Item) -> bool:
    """Return whether the options `short`, `rest` and `nightly` of a run include a test."""
    is_in_short = _is_in_short_folder(item.path) or (is_short(item.path) and not needs_kafka(item))
    if (options.short and not is_in_short) or (options.rest and is_in_short):
        return False
    return options.nightly or not is_nightly(item)


def is_nightly(item: pytest.Item) -> bool:
    """Return whether only `make nightly` runs a test."""
    return item.get_closest_marker("nightly") is not None or any(
        isinstance(each, str) and each == _KAFKA for each in _parameters(item)
    )


def is_only_nightly(path: Path) -> bool:
    """Return whether only `make nightly` runs the tests of a file, by the marks in its text."""
    marks: list[list[str]] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            if _NIGHTLY in ast.unparse(node.value):
                return True
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks.append([ast.unparse(each) for each in node.decorator_list])
    return bool(marks) and all(_NIGHTLY in each for each in marks)


def needs_kafka(item: pytest.Item) -> bool:
    """Return whether a test uses the jars of Apache Kafka, or has it as its broker."""
    if "kafka_jars" in getattr(item, "fixturenames", ()):
        return True
    # Of a tuple, the first item is the broker.
    names = [each[0] if isinstance(each, tuple) and each else each for each in _parameters(item)]
    return any(isinstance(each, str) and _ANY_KAFKA.fullmatch(each) for each in names)


def _parameters(item: pytest.Item) -> list[Any]:
    """Return the parameters of a test, if one of them may be the broker."""
    call = getattr(item, "callspec", None)
    if call is None or not any(TESTS / name in item.path.parents for name in BOTH_BROKERS):
        return []
    return list(call.params.values())


def left_out() -> list[str]:
    """Return lines for the end of a run that name what `pytest --short` leaves out."""
    lines = ["not run by --short, only by `make check`: tests beside Apache Kafka, and"]
    for folder in sorted(path for path in TESTS.iterdir() if path.is_dir()):
        files = sorted(folder.rglob("test_*.py"))
        missing = [file for file in files if not is_short(file)]
        if missing:
            count = "all" if len(missing) == len(files) else len(missing)
            lines.append(f"  tests/{folder.name}: {count} of {len(files)} files")
    return lines
