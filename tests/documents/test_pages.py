"""Every code block of the pages runs as it is written and prints what the page says.

The rules for writers of pages are in CONTRIBUTING.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from barnabas.testing.broker_process import BrokerProcess
from documents.blocks import PYTHON, ROOT, Section, sections_of
from documents.page_run import PageRun
from documents.surroundings import Surroundings
from jvm.java import java_command
from jvm.kafka_process import KafkaProcess, quick_machine
from jvm.maven import need
from spark.class_archive import VARIABLE, quick_java
from summary import SUMMARY

pytestmark = pytest.mark.conformance

# Written whole by a tool, and compared with what the tool writes by the test named here.
GENERATED = {
    "docs/cli.md": "tests/unit/cli/test_docs.py",
    "docs/configuration.md": "tests/unit/cli/test_docs.py",
}
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
SECTIONS = [section for page in PAGES if page not in GENERATED for section in sections_of(page)]
BLOCKS = list(dict.fromkeys(block for section in SECTIONS for block in section.blocks))
NOT_RUN_MAX = 12

# Brokers that pages take as running.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    # Members of share groups learn their assignments at once.
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
}
# The classes that Kafka's scripts run, and the jars that have them. There are no tools of 4.4.
KAFKA_SCRIPTS = {
    "kafka-storage.sh": ("kafka", "kafka.tools.StorageTool"),
    "kafka-server-start.sh": ("kafka", "kafka.Kafka"),
    "kafka-features.sh": ("kafka-tools", "org.apache.kafka.tools.FeatureCommand"),
    "kafka-topics.sh": ("kafka-tools", "org.apache.kafka.tools.TopicCommand"),
}
# Programs whose Python is checked as users see the installed package, by its `py.typed`.
TYPED = ("README.md", "docs/migrate-client.md", "docs/share-consumer.md")
PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}


def runs() -> Iterator[tuple[Section, str | None]]:
    """Each section that has something to run, once for each kind of broker that it takes."""
    for section in SECTIONS:
        if all(block.not_run or block.checked_by or block.file for block in section.blocks):
            continue
        for broker in section.brokers or (None,):
            yield section, broker


def name_of(run: object) -> str:
    return run.title if isinstance(run, Section) else str(run or "own broker")


def kafka_scripts(section: Section) -> dict[str, list[str]]:
    if "kafka" not in section.needs:
        return {}
    return {
        name: [*java_command(jars, machine=quick_machine(jars)), main]
        for name, (jars, main) in KAFKA_SCRIPTS.items()
    }


@contextmanager
def running_broker(kind: str | None, directory: Path) -> Iterator[str | None]:
    """The address of a broker that the page takes as running; None if it starts its own."""
    if kind is None:
        yield None
        return
    is_kafka = kind == "kafka"
    broker: KafkaProcess | BrokerProcess = (
        KafkaProcess(directory, SETTINGS) if is_kafka else BrokerProcess(directory, SETTINGS)
    )
    try:
        yield broker.start().bootstrap
    finally:
        broker.kill()


@pytest.mark.parametrize(("section", "broker"), list(runs()), ids=name_of)
def test_the_output_of_the_blocks_equals_the_page(
    tmp_path: Path, section: Section, broker: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(*(each for each in section.needs if each != "kafka"))
    if section.page == "docs/spark.md":
        monkeypatch.setenv(VARIABLE, quick_java())
    commands = kafka_scripts(section)
    with running_broker(broker, tmp_path / "broker") as bootstrap:
        surroundings = Surroundings(tmp_path / "page", sys.executable, commands, bootstrap)
        with PageRun(surroundings, on_kafka=broker == "kafka") as run:
            run.run(section)


def test_blocks_that_are_not_run_are_few(pytestconfig: pytest.Config) -> None:
    not_run = [block for block in BLOCKS if block.not_run]
    pytestconfig.stash[SUMMARY] += [f"not run: {each.where}: {each.not_run}" for each in not_run]
    assert len(not_run) <= NOT_RUN_MAX, [each.where for each in not_run]


def test_blocks_checked_by_another_test_are_used_there() -> None:
    checked = {(block.page, str(block.checked_by)) for block in BLOCKS if block.checked_by}
    for page, test in [*checked, *GENERATED.items()]:
        assert Path(page).name in (ROOT / test).read_text(), (page, test)


def test_data_can_be_parsed() -> None:
    for block in BLOCKS:
        if block.kind in PARSERS:
            assert PARSERS[block.kind](block.text), block.where


def test_mypy_has_no_complaint_about_programs_for_the_client(tmp_path: Path) -> None:
    programs = [each for each in BLOCKS if each.kind == PYTHON and each.page in TYPED]
    assert len(programs) >= 10
    paths = []
    for number, program in enumerate(programs):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program.text)
        paths.append(str(path))
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from barnabas import Consumer\nConsumer(bootstrap_servers=1).poll('1')\n")
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(config), *paths, str(wrong)],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in checked.stdout.splitlines() if "error:" in line]
    # The two mistakes show that mypy sees the types at all.
    assert len(complaints) == 2, checked.stdout + checked.stderr
    assert all(line.startswith("wrong.py") for line in complaints), checked.stdout
