"""The documents equal the output of the tools, and every command shows examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from unit.cli.leaf_commands import LEAVES

ROOT = Path(__file__).parents[3]
DOCUMENTS = [
    ("configuration.md", ["document_configs", "--print"]),
    ("cli.md", ["document_commands", "--print"]),
    ("troubles.md", ["document_troubles", "--print"]),
    ("spark.md", ["document_spark_options", "--print", "spark.md"]),
    ("tables.md", ["document_spark_options", "--print", "tables.md"]),
    ("requests.md", ["document_requests", "--print"]),
]


@pytest.mark.parametrize(("name", "command"), DOCUMENTS, ids=[name for name, _ in DOCUMENTS])
def test_the_document_is_up_to_date(name: str, command: list[str]) -> None:
    # A process of its own: click remembers in a command how it was first called.
    tool, *options = command
    words = [sys.executable, "-m", f"tools.{tool}", *options]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / name).read_text() == printed, f"run: python -m tools.{tool}"


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[path for path, _ in LEAVES])
def test_every_command_shows_examples_that_parse(path: str, command: click.Command) -> None:
    examples = re.findall(rf"^ *{path}\b(.*)$", command.epilog or "", re.MULTILINE)
    assert examples, "no example in the help"
    for example in examples:
        if any(mark in example for mark in "|<>$'\"("):
            continue  # a shell would read it
        words = re.split(r"  +", example.strip(), maxsplit=1)[0].split()
        command.make_context(path, words, resilient_parsing=True)
        known = {option for parameter in command.params for option in parameter.opts}
        known |= {option for parameter in command.params for option in parameter.secondary_opts}
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, (example, word)
