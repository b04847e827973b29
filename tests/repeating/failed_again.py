"""A plugin that runs failed tests once more, each alone, after the run (`--flaky-max N`).

A test that passes then is *flaky*: it was unlucky, for example because the machine was busy. The
run succeeds if at most N tests are flaky and all others pass. The flaky tests are named in the last
lines of the output.

Tests whose outcome is decided by a seed are not repeated: the same seed would fail again, and a
new one would hide the failure. A run that did not run all of its tests (an error of collection, an
interruption, too many crashes of workers) fails as it is.

A fixture of a module or of the session that fails makes all of its tests fail with the same error.
That is one failure: its tests are repeated together, and all of them must pass. A failed teardown
may be the fault of an earlier test: all tests of the file are repeated. The last teardown of a
process ends the fixtures of the session, which any test may have damaged: it is not repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from repeating.alone import first_line, run_alone

# A run with more failures has one cause, and it is not bad luck.
REPEATED_MAX = 10

# Folders of tests that are decided by seeds. Elsewhere such tests have the mark `seeded`.
SEEDED_FOLDERS = ("tests/fuzz/", "tests/property/", "tests/simulation/")
# Folders where a parameter `seed` decides. In others, real processes take part too.
SEED_FOLDERS = ("tests/chaos/", "tests/unit/")


def add_option(group: Any) -> None:
    """Add the option of the plugin to a group of options or to a parser."""
    group.addoption("--flaky-max", type=int, help="repeat failed tests; at most so many may pass")


def register(config: pytest.Config) -> None:
    """Register the plugins that this process needs."""
    config.pluginmanager.register(FailureDetails())
    if config.option.flaky_max is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedAgain(config, config.option.flaky_max))


def is_seeded(item: pytest.Item) -> bool:
    """Return whether a seed decides the outcome of a test."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return (
        item.nodeid.startswith(SEEDED_FOLDERS)
        or (item.nodeid.startswith(SEED_FOLDERS) and "seed" in parameters)
        or item.get_closest_marker("seeded") is not None
        or getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    )


class FailureDetails:
    """A plugin of each process that runs tests: its reports say which failures are the same."""

    def __init__(self) -> None:
        self._is_last = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Remember whether fixtures of the session end with this test."""
        self._is_last = nextitem is None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add `is_repeatable` to each report, and `first_failed_test` to that of a failed test."""
        report = yield
        report.is_repeatable = not (
            is_seeded(item) or (report.failed and report.when == "teardown" and self._is_last)
        )
        if report.failed and call.excinfo is not None:
            # pytest raises the same exception object for each test of a failed fixture.
            error = vars(call.excinfo.value)
            report.first_failed_test = error.setdefault("first_failed_test", item.nodeid)
        return report


@dataclass
class _Failure:
    """Reports with the same cause, in the order of the run."""

    reports: list[Any] = field(default_factory=list)
    again: str = ""
    """The error of the repetition; empty if it passed, or if there was none."""

    @property
    def test(self) -> str:
        return str(self.reports[0].nodeid)

    @property
    def tests(self) -> list[str]:
        return list(dict.fromkeys(report.nodeid for report in self.reports))

    @property
    def name(self) -> str:
        more = len(self.tests) - 1
        return f"{self.test} and {more} more" if more else self.test

    @property
    def error(self) -> str:
        # The report of a crashed worker has only a sentence.
        longrepr = self.reports[0].longrepr
        crash = getattr(longrepr, "reprcrash", None)
        return first_line(crash.message if crash else str(longrepr))


class FailedAgain:
    """A plugin of the process that prints the results. It repeats the failed tests."""

    def __init__(self, config: pytest.Config, flaky_max: int) -> None:
        self._config = config
        self._flaky_max = flaky_max
        self._failures: dict[str, _Failure] = defaultdict(_Failure)
        # The tests by file that were not skipped.
        self._tests: dict[str, dict[str, None]] = defaultdict(dict)
        self._completed: set[str] = set()
        self._unrepeatable: set[str] = set()
        self._is_collected = True
        self._flaky: list[_Failure] = []
        # Why no test is repeated.
        self._reason = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember an error of collection: some tests are not run."""
        self._is_collected &= not report.failed

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember a failure under the first test that failed for its cause."""
        if report.when == "call" and not report.skipped:
            self._tests[report.nodeid.split("::", 1)[0]][report.nodeid] = None
        # Without teardown: the report of a crashed worker.
        if report.when not in {"setup", "call"}:
            self._completed.add(report.nodeid)
        # The report of a crashed worker does not say; the setup of its test usually did.
        if not getattr(report, "is_repeatable", not report.nodeid.startswith(SEEDED_FOLDERS)):
            self._unrepeatable.add(report.nodeid)
        if report.failed:
            cause = getattr(report, "first_failed_test", report.nodeid)
            self._failures[cause].reports.append(report)

    # After the plugins that end the workers, before conftest.py judges skipped tests.
    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Repeat the failed tests and set the exit status of the run."""
        if session.exitstatus == pytest.ExitCode.OK:
            return
        was_run = len(self._completed) >= session.testscollected
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not (
            self._is_collected and was_run
        ):
            self._reason = "not all tests were run"
        elif len(self._failures) > REPEATED_MAX:
            self._reason = f"more than {REPEATED_MAX} failures"
        if self._reason:
            return
        for failure in self._failures.values():
            if self._unrepeatable.isdisjoint(failure.tests):
                self._repeat(failure)
        for failure in self._flaky:
            self._move_to_flaky(failure)
        if len(self._flaky) == len(self._failures) <= self._flaky_max:
            session.exitstatus = pytest.ExitCode.OK

    def _repeat(self, failure: _Failure) -> None:
        tests = failure.tests
        for report in failure.reports:
            if report.when == "teardown":
                tests = list(dict.fromkeys([*tests, *self._tests[report.nodeid.split("::", 1)[0]]]))
        outcome = run_alone(tests, self._config.rootpath)
        failure.again = next(iter(outcome.errors.values()), "")
        if outcome.passed < len(tests) and not failure.again:
            failure.again = f"{outcome.passed} of {len(tests)} tests passed"
        if not failure.again:
            self._flaky.append(failure)

    @property
    def _reporter(self) -> pytest.TerminalReporter:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        return reporter

    def _move_to_flaky(self, failure: _Failure) -> None:
        """Count the first test of a failure as flaky and its other tests as passed."""
        stats = self._reporter.stats
        for category in ("failed", "error"):
            kept = [each for each in stats.get(category, []) if each not in failure.reports]
            stats.pop(category, None)
            if kept:
                stats[category] = kept
        stats.setdefault("flaky", []).append(failure.reports[0])
        others = {
            report.nodeid: report for report in failure.reports if report.nodeid != failure.test
        }
        stats.setdefault("passed", []).extend(others.values())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self) -> Generator[None, None, None]:
        """Print the first failures of flaky tests, and as the last lines their names."""
        reporter = self._reporter
        if self._flaky:
            reporter.write_sep("=", "failed, and passed alone")
        for failure in self._flaky:
            reporter.write_sep("_", failure.name)
            reporter.write_line(failure.reports[0].longreprtext)
        yield
        for failure in self._failures.values():
            if failure.again:
                reporter.write_line(f"FAILED AGAIN {failure.name} - {failure.again}")
        for failure in self._flaky:
            reporter.write_line(f"FLAKY {failure.name} - {failure.error}")
        if self._reason:
            reporter.write_line(f"no test was repeated: {self._reason}")
        if len(self._flaky) > self._flaky_max:
            reporter.write_line(
                f"too many flaky tests: {len(self._flaky)}, at most {self._flaky_max} may be"
            )
