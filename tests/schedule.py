"""Share test files out to the processes of `pytest -n`, those that take longest first.

`tests/durations.txt` has the seconds of each file that takes more than a second or so. On an idle
machine, `pytest -n 2 --store-durations` measures the files that it runs. Give it whole files.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

DURATIONS_FILE = Path(__file__).parent / "durations.txt"
# Seconds of a file that is not in the table.
DEFAULT_S = 1.0

# Tests that share costly session fixtures run in one process, one after the other: a Spark
# session, a broker of each kind for the comparison, one Java process for Kafka's tools.
_TOGETHER = ("tests/spark/", "tests/differential/", "tests/conformance/test_java_tools")
# Files of these folders that have brokers, and Spark sessions, of their own.
_ALONE = {
    *(f"tests/differential/test_{name}.py" for name in ("controller", "restarted_transactions")),
    *(f"tests/differential/test_{name}.py" for name in ("secured", "transaction_records")),
    *(f"tests/differential/test_{name}.py" for name in ("restricted", "consumer_group_records")),
    "tests/differential/test_streams_group_records.py",
    *(f"tests/spark/test_exactly_once_{name}.py" for name in ("cluster", "jobs")),
    *(f"tests/spark/test_{name}.py" for name in ("java", "slices", "transactions")),
}
# These run before other tests of their folder, whose objects would change and lengthen responses.
_EARLY = {"tests/differential/test_mutations.py"}
# These share two clusters of three brokers.
_THREE_BROKERS = {
    f"tests/conformance/test_{name}.py" for name in ("cli_partitions", "cli_why", "client_cluster")
}


def unit_of(node_id: str) -> str:
    """Return the name of the unit of work that a test belongs to: its file, or a group of files."""
    file = node_id.split("::", 1)[0]
    if file in _ALONE:
        return file
    for prefix in _TOGETHER:
        if file.startswith(prefix):
            return prefix
    return "three brokers" if file in _THREE_BROKERS else file


def read_durations(path: Path = DURATIONS_FILE) -> dict[str, float]:
    """Return the stored seconds by file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {file: float(seconds) for seconds, file in (line.split() for line in lines)}


def early_first(items: list[pytest.Item]) -> None:
    """Move the tests of some files to the beginning."""
    items.sort(key=lambda item: item.nodeid.split("::", 1)[0] not in _EARLY)


def longest_first(items: list[pytest.Item], durations: dict[str, float]) -> None:
    """Sort tests so that the longest units of work come first; inside a unit the order stays."""
    files = {item.nodeid.split("::", 1)[0] for item in items}
    totals: dict[str, float] = defaultdict(float)
    for file in files:
        totals[unit_of(file)] += durations.get(file, DEFAULT_S)
    items.sort(key=lambda item: (-totals[unit_of(item.nodeid)], unit_of(item.nodeid)))


class LongestFirst(LoadScopeScheduling):
    """Give the next unit of work to the process that is free, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        # The collection is sorted already (`longest_first`).
        config.option.loadscopereorder = False

    def remove_node(self, node: Any) -> str | None:
        """Give the rest of the units of a process that crashed to others, without the crashed test.

        pytest-xdist would run that test again and again, until too many processes have crashed. It
        would also give out completed units, and a process with no test in its unit gets no other.
        """
        units = self.assigned_work[node]
        pending = [(unit, test) for unit in units.values() for test in unit if not unit[test]]
        if not pending:
            return super().remove_node(node)
        unit, crashed = pending[0]
        unit[crashed] = True
        for name in [name for name, unit in units.items() if all(unit.values())]:
            del units[name]
        super().remove_node(node)
        return str(crashed)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class DurationRecorder:
    """A plugin that updates the table of durations at the end of a run."""

    def __init__(self, path: Path = DURATIONS_FILE) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of the setup, the call or the teardown of a test."""
        self._seconds[report.nodeid.split("::", 1)[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the table, the longest first. Files that were not run keep their seconds."""
        known = read_durations(self._path) | self._seconds
        root = self._path.parent.parent
        kept = {file: known[file] for file in known if (root / file).exists()}
        rows = sorted(kept.items(), key=lambda row: (-round(row[1]), row[0]))
        lines = [f"{seconds:.0f} {file}\n" for file, seconds in rows if seconds >= 1.5]
        self._path.write_text("".join(lines))
