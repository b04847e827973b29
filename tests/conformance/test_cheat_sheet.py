"""The commands of docs/cheat-sheet.md for Barnabas and kcat run as written, in their order."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.registry_process import RegistryProcess
from conformance.cli_shell import SECONDS, Shell
from jvm.maven import need

pytestmark = pytest.mark.conformance

SHEET = Path(__file__).parents[2] / "docs" / "cheat-sheet.md"
TOOLS = {"barnabas": 5, "kcat": 2}
# Commands that end only when they are interrupted.
ENDLESS = {"barnabas consume -t flights", "kcat -C -t flights -o end"}
# Commands that fail on a single broker, and text of their error messages.
REFUSED = {
    "barnabas brokers unregister 3 --yes": "BROKER_ID_NOT_REGISTERED",
    "barnabas rebalance --exclude-broker 2": "there is no broker 2",
    "barnabas transactions describe orders-1": "TRANSACTIONAL_ID_NOT_FOUND",
    "barnabas transactions abort flights:0 --start-offset 5 --yes": "there is no open transaction",
}
# Later sections need the topic again after this command.
DELETES_TOPIC = "barnabas topics delete -t flights --yes"


class Place(NamedTuple):
    """Where the commands run: a directory with their files, and a broker."""

    directory: Path
    environment: dict[str, str]

    def run(self, command: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        # Run the command in a shell, and interrupt it after this time.
        words = ["timeout", "-s", "INT", str(seconds), "bash", "-c", f"exec {command}"]
        return subprocess.run(
            words, cwd=self.directory, env=self.environment, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=SECONDS + seconds, check=False,
        )  # fmt: skip


def cells() -> list[list[str]]:
    """Return the rows of all tables, without the headings."""
    rows = [line for line in SHEET.read_text().splitlines() if line.startswith("| ")]
    # A pipe inside a command is written with a backslash.
    split = [re.split(r"(?<!\\)\|", row) for row in rows]
    return [row for row in split if row[1].strip() != "task"]


def commands(tool: str) -> list[str]:
    """Return the commands of a tool, in their order."""
    found = []
    for row in cells():
        named = re.findall(rf"`({tool} [^`]+)`", row[TOOLS[tool]])
        found += [command.replace("\\|", "|") for command in named]
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
    with (
        BrokerProcess(tmp_path / "broker", settings) as broker,
        RegistryProcess(broker.bootstrap) as registry,
    ):
        shell = Shell(broker.bootstrap)
        directory = tmp_path / "work"
        directory.mkdir()
        (directory / "data").symlink_to(broker.data_directory)
        (directory / "flights.txt").write_text("JFK:42\nLGA:7\nEWR:19\n")
        (directory / "empty.txt").write_text("JFK:\n")
        (directory / "flight.avsc").write_text('{"type": "record", "name": "F", "fields": []}')
        (directory / "kcat.conf").write_text(f"metadata.broker.list={broker.bootstrap}\n")
        programs = directory / "bin"
        programs.mkdir()
        (programs / "barnabas").write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m barnabas.cli.main "$@"\n'
        )
        (programs / "barnabas").chmod(0o755)
        shell.ok("produce", "counts", "-s", "value=long", stdin="7\n")
        environment = {
            **shell.environment,
            "BARNABAS_REGISTRY": registry.url,
            "XDG_CONFIG_HOME": str(directory),
            "KCAT_CONFIG": str(directory / "kcat.conf"),
            "PATH": f"{programs}:{shell.environment['PATH']}",
        }
        yield Place(directory, environment)


def check(place: Place, command: str) -> str:
    """Run a command, check its exit status, and return its output."""
    if command in ENDLESS:
        done = place.run(command, seconds=4)
        assert done.returncode == 124, (command, done.stderr)
        return done.stdout
    done = place.run(command)
    message = REFUSED.get(command)
    if message is not None:
        assert done.returncode == 1, command
        assert message in done.stderr, (command, done.stderr)
    else:
        assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def test_every_row_has_a_barnabas_command_and_no_cell_is_empty() -> None:
    rows = cells()
    assert len(rows) > 50
    assert len(commands("barnabas")) == len(rows)
    for row in rows:
        assert len(row) == 7, row
        assert all(cell.strip() for cell in row[1:6]), row
    # Every exception of this test is a command of the sheet.
    listed = {*commands("barnabas"), *commands("kcat")}
    assert listed >= ENDLESS | REFUSED.keys() | {DELETES_TOPIC}


@pytest.mark.nightly
def test_the_commands_of_barnabas_run_as_written(place: Place) -> None:
    printed = {}
    for command in commands("barnabas"):
        printed[command] = check(place, command)
        if command == DELETES_TOPIC:
            for again in commands("barnabas")[:2]:
                check(place, again)
            # Create the group of the next section.
            check(place, "barnabas consume -t flights -g report -o beginning -e")
    lines = printed["barnabas consume -t flights -o beginning -e"].splitlines()
    assert sorted(lines) == sorted(
        ["JFK:42", "LGA:7", "EWR:19", "42", "7", "19", "", "JFK:42", "LGA:7", "EWR:19"]
    )
    assert printed["barnabas consume -t counts -o beginning -e -s value=long"] == "7\n"
    keyed = printed["barnabas consume -t flights -o beginning -e --grep-key '^JFK$'"]
    assert sorted(keyed.splitlines()) == ["", "42"]
    assert "request.timeout.ms=5000" in printed["barnabas profile show staging"]


@pytest.mark.nightly
def test_the_commands_of_kcat_run_as_written(place: Place) -> None:
    need("kcat")
    assert shutil.which("kcat")
    check(place, "barnabas topics create -t flights -p 2")
    for command in commands("kcat"):
        check(place, command)
