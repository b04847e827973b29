"""The complete command line: every command of the table, and its common options."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.group import COMMANDS, group
from barnabas.version import __version__

# They print addresses, or a script: there is nothing to put into JSON.
WITHOUT_JSON = {"start", "cluster start", "completion", "console", "registry"}


def leaves(command: click.Command, words: tuple[str, ...], above: click.Context | None) -> Iterator:
    context = click.Context(command, parent=above, info_name=words[-1] if words else "barnabas")
    if not isinstance(command, click.Group):
        yield " ".join(words), command, context
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None, name
        yield from leaves(child, (*words, name), context)


ALL = list(leaves(group, (), None))


def test_all_commands_of_the_table_exist() -> None:
    assert {words.split()[0] for words, *_ in ALL} == set(COMMANDS)


@pytest.mark.parametrize(("words", "command", "context"), ALL, ids=[each[0] for each in ALL])
def test_a_command_has_examples_and_json(
    words: str, command: click.Command, context: click.Context
) -> None:
    text = command.get_help(context)
    assert "Examples:" in text
    assert f"barnabas {words}" in text.partition("Examples:")[2]
    options = {option for parameter in command.params for option in parameter.opts}
    assert ("--json" in options) == (words not in WITHOUT_JSON)
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["-C", "-P", "-L", "-Q", "-G"])
def test_a_mode_of_kcat_names_the_command_to_use(mode: str) -> None:
    done = CliRunner().invoke(group, [mode, "-t", "flights"])
    assert done.exit_code == 2
    (named,) = re.findall(rf"{mode} is an option of kcat: use barnabas (\w+)", done.output)
    assert named in COMMANDS


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("topic", "No such command 'topic'. Did you mean 'topics'?"),
        ("nothing-like-it", "No such command 'nothing-like-it'.\n"),
    ],
)
def test_a_misspelt_command_suggests_the_correct_command(word: str, answer: str) -> None:
    done = CliRunner().invoke(group, [word, "list"])
    assert done.exit_code == 2
    assert answer in done.output


def test_the_version_is_an_option_and_the_package_runs_as_a_module() -> None:
    words = [sys.executable, "-m", "barnabas", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"barnabas {__version__}\n"
    assert done.stdout.split()[1] == metadata.version("barnabas")
