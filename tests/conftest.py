"""What all tests share beside `barnabas.testing`: Apache Kafka, its tools and its jars.

Where Java or Maven is missing, tests that ask for these are skipped, with CI=true they fail. The
number of skipped tests is printed, and any is a failure with CI=true.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from jvm.kafka_process import KafkaProcess
from jvm.maven import class_path
from jvm.tool_host import ToolHost
from summary import SUMMARY

# These folders take as long as all others together.
_FIRST_HALF = {"conformance", "deploy"}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUMMARY] = []
    # How long an example takes is a matter of the machine.
    slow = [HealthCheck.too_slow]
    settings.register_profile("untimed", deadline=None, suppress_health_check=slow)
    settings.load_profile("untimed")
    # A shell starts what runs in its background without SIGINT, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Halves(LoadScopeScheduling):
    """Runs two halves that take about as long side by side, each in its order (`pytest -n 2`)."""

    def _split_scope(self, nodeid: str) -> str:
        return "first" if nodeid.split("/")[1] in _FIRST_HALF else "others"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Halves:
    """How `-n` shares the tests out."""
    return Halves(config, log)


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
    """A process that ran a half has ended."""
    node.config.stash[SUMMARY] += getattr(node, "workeroutput", {}).get("summary", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash[SUMMARY]:
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
