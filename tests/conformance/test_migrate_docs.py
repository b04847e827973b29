"""The programs of docs/migrate-client.md and of the README run as written, and please mypy."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pytest

import barnabas
from barnabas.client.config import ClientConfig
from barnabas.client.producer.delivery import Delivery
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:9092"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
# Beside the keys of ClientConfig: what take_parts of the two clients take.
PARTS = {
    "key_serializer", "value_serializer", "key_deserializer", "value_deserializer", "partitioner",
}  # fmt: skip
# The faces that the table names.
FACES = {
    "Admin": barnabas.Admin,
    "Consumer": barnabas.Consumer,
    "Delivery": Delivery,
    "Producer": barnabas.Producer,
}


class Program(NamedTuple):
    """A block of Python and what the block behind it says that it prints."""

    title: str
    only_on_kafka: bool
    code: str
    printed: str


def programs(document: str) -> list[Program]:
    found = []
    for section in re.split(r"^## ", (ROOT / document).read_text(), flags=re.MULTILINE)[1:]:
        pattern = r"(<!-- on: kafka -->\n)?```python\n(.*?)```\n(?:\n```text\n(.*?)```)?"
        for mark, code, printed in re.findall(pattern, section, re.DOTALL):
            found.append(Program(section.partition("\n")[0], bool(mark), code, printed))
    return found


def run(program: Program, bootstrap: str) -> str:
    output = io.StringIO()
    code = compile(program.code.replace(ADDRESS, bootstrap), program.title, "exec")
    with contextlib.redirect_stdout(output):
        exec(code, {"__name__": "__main__"})
    return output.getvalue()


def run_to_its_end(program: Program, bootstrap: str) -> str:
    """What it prints; one that ends when nothing comes may have ended before all has come."""
    output = run(program, bootstrap)
    if "consumer_timeout_ms" in program.code:
        while output != program.printed and program.printed.startswith(output):
            output += run(program, bootstrap)
    return output


MIGRATION = programs("docs/migrate-client.md")
README = [each for each in programs("README.md") if "import" in each.code]


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    """Of this module alone: the programs name their topics, and build on one another."""
    kind = KafkaProcess if request.param == "kafka" else BrokerProcess
    made = kind(tmp_path_factory.mktemp(request.param), SETTINGS)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def test_the_documents_have_programs() -> None:
    assert len(MIGRATION) >= 10
    assert len(README) >= 2


@pytest.mark.parametrize("document", ["docs/migrate-client.md", "README.md"])
def test_every_program_prints_what_the_document_says(
    broker: BrokerProcess | KafkaProcess, document: str
) -> None:
    for program in MIGRATION if document != "README.md" else README:
        if not (program.only_on_kafka and isinstance(broker, BrokerProcess)):
            assert run_to_its_end(program, broker.bootstrap) == program.printed, program.title


def test_mypy_has_no_complaint_about_any_of_them(tmp_path: Path) -> None:
    """As users see the installed package: by its `py.typed`, not by our own configuration."""
    paths = []
    for number, program in enumerate(MIGRATION + README):
        path = tmp_path / f"program_{number}.py"
        path.write_text(program.code)
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
    # That types are seen at all is shown by the wrong one.
    assert len(complaints) == 2, checked.stdout + checked.stderr
    assert all(line.startswith("wrong.py") for line in complaints), checked.stdout


def rows(title: str) -> list[list[str]]:
    text = (ROOT / "docs/migrate-client.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_method_in_the_table_exists() -> None:
    named = [row[3].strip("`") for row in rows("Methods")]
    assert len(named) > 25
    for name in named:
        face, _, method = name.partition(".")
        assert callable(getattr(FACES[face], method, None)), name


def test_every_key_in_the_table_exists() -> None:
    known = {field.name for field in fields(ClientConfig)} | PARTS
    named = [row[2].strip("`") for row in rows("Configuration")]
    assert len(named) > 30
    assert set(named) <= known
