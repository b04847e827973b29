"""Fixtures for Apache Kafka, its tools and its jars; the order and the choice of tests.

Tests that need Java or Maven are skipped where these are missing. The number of skipped tests is
printed. With CI=true each skipped test is a failure.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from jvm.kafka_process import KafkaProcess
from jvm.maven import class_path
from jvm.schema_registry import SchemaRegistryProcess
from jvm.tool_host import ToolHost
from repeating import failed_again
from schedule import DurationRecorder, LongestFirst, early_first, longest_first, read_durations
from selection import is_chosen, is_collected, left_out
from summary import SUMMARY


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("barnabas")
    group.addoption("--short", action="store_true", help="ten minutes: see tests/selection.py")
    group.addoption("--rest", action="store_true", help="all tests that --short leaves out")
    failed_again.add_option(group)
    group.addoption("--nightly", action="store_true", help="all tests: see tests/selection.py")
    group.addoption(
        "--store-durations", action="store_true", help="measure the files for tests/durations.txt"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUMMARY] = []
    if _runs_chosen_paths(config):
        # Workers get the options as they are now.
        config.option.nightly = True
    failed_again.register(config)
    if config.option.store_durations and not _is_worker(config):
        config.pluginmanager.register(DurationRecorder())
    if os.environ.get("CI") == "true" and not _is_worker(config):
        config.pluginmanager.register(FailuresAtOnce(config))
    # How long an example takes is a matter of the machine.
    slow = [HealthCheck.too_slow]
    settings.register_profile("untimed", deadline=None, suppress_health_check=slow)
    settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    # A shell starts what runs in its background without SIGINT, and children inherit that. A loop
    # that a test has run and closed leaves its own handler, which does nothing.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _runs_chosen_paths(config: pytest.Config) -> bool:
    """Return whether a run includes nightly tests because the user named its paths."""
    if _is_worker(config) or config.option.store_durations:
        return False
    return config.args_source is not pytest.Config.ArgsSource.TESTPATHS


def _is_worker(config: pytest.Config) -> bool:
    """Return whether this is a process that `pytest -n` started."""
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst:
    """Decide how `-n` shares the tests out."""
    return LongestFirst(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what `--short` or `--rest` does not run."""
    return None if is_collected(config.option, collection_path) else True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[is_chosen(config.option, item)].append(item)
    config.hook.pytest_deselected(items=chosen[False])
    items[:] = chosen[True]
    early_first(items)
    if _is_worker(config):
        longest_first(items, read_durations())


def pytest_collection_finish() -> None:
    """Keep the items of all tests out of garbage collections: each would take half a second."""
    gc.collect()
    gc.freeze()


def _skipped(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return 0 if reporter is None else len(reporter.stats.get("skipped", []))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CI") == "true" and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["summary"] = session.config.stash[SUMMARY]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the summary of a process that ended."""
    node.config.stash[SUMMARY] += getattr(node, "workeroutput", {}).get("summary", [])


class FailuresAtOnce:
    """A plugin that prints failures when they occur: a run that is ended by force shows them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the name of a failed test and the last lines of its message."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            shown = "\n".join((lines or report.longreprtext.splitlines())[-5:])
            reporter.write_line(f"\n{report.when} failed: {report.nodeid}\n{shown[:1000]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash[SUMMARY]:
        terminalreporter.write_line(line)
    if terminalreporter.config.option.short:
        for line in left_out():
            terminalreporter.write_line(line)
    terminalreporter.write_line(f"skipped: {_skipped(terminalreporter.config)}")


@pytest.fixture(scope="session")
def kafka_jars() -> Callable[[str], str]:
    """The class path of a folder of tests/jvm: "kafka" (4.4.0), "kafka-tools" (4.3.1)."""
    class_path("kafka")
    return class_path


@pytest.fixture(scope="session")
def tool_host(kafka_jars: Callable[[str], str]) -> Iterator[ToolHost]:
    """One Java process for all of Kafka's shell tools."""
    with ToolHost() as host:
        yield host


@pytest.fixture(scope="session")
def kafka_tools(
    tool_host: ToolHost,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a class of Kafka's shell tools: kafka_tools("DumpLogSegments", "--files", path)."""
    return tool_host.run


@pytest.fixture(scope="session")
def reference_broker(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaProcess]:
    """One running Apache Kafka 4.4.0 for the whole session; tests use topics of their own."""
    process = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running Apicurio Registry; tests use subjects of their own."""
    with SchemaRegistryProcess(tmp_path_factory.mktemp("registry")) as process:
        yield process.url


@pytest.fixture(scope="session", params=["barnabas", "apicurio"])
def registry_url(request: pytest.FixtureRequest) -> str:
    """The URL of a running schema registry of each kind; tests use subjects of their own."""
    if request.param == "barnabas":
        return str(request.getfixturevalue("schema_registry").url)
    return str(request.getfixturevalue("apicurio"))


@pytest.fixture
def make_kafka(
    kafka_jars: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., KafkaProcess]]:
    """Makes Kafkas with settings (and jars) of their own, not yet started; all are ended after."""
    made: list[KafkaProcess] = []

    def make(settings: Mapping[str, str] | None = None, jars: str = "kafka") -> KafkaProcess:
        process = KafkaProcess(tmp_path / f"kafka-{len(made)}", settings, jars)
        made.append(process)
        return process

    yield make
    for process in made:
        process.close()
