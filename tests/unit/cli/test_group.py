"""The complete command line: every command of the table, and its common options."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.group import COMMANDS, LazyGroup, group
from barnabas.version import __version__

# They print addresses, or a script: there is nothing to put into JSON.
WITHOUT_JSON = {"start", "cluster start", "completion", "console", "help", "registry"}


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


class Stubborn(LazyGroup):
    """The command line, whose commands all raise an exception."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(name="barnabas")
        self.error = error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return click.Command(cmd_name, callback=self.fail_now)

    def fail_now(self) -> None:
        raise self.error


def test_an_interrupt_ends_a_command_in_silence() -> None:
    done = CliRunner().invoke(Stubborn(KeyboardInterrupt()), ["version"])
    assert (done.exit_code, done.output) == (130, "")


# Letters with several meanings: those of kcat for records, those of rpk for topics and groups.
SHORT_OPTIONS = {
    "-F": {"--config-file", "--config"},
    "-J": {"--json", "--kcat-json"},
    "-K": {"--key-separator", "--key-delimiter"},
    "-Z": {"--empty-is-null", "--show-null"},
    "-c": {"--config", "--max-records", "--controllers", "--catalog-property"},
    "-e": {"--exit-at-end", "--endpoint"},
    "-f": {"--format", "--file", "--force"},
    "-n": {"--max-records", "--records", "--max-batches", "--brokers"},
    "-p": {"--partition", "--partitions", "--project", "--base-port"},
    "-r": {"--replication-factor", "--replicas", "--records"},
    "-s": {"--as", "--sources", "--record-size"},
}


def test_a_short_option_has_one_meaning_in_all_commands() -> None:
    meanings: dict[str, set[str]] = {}
    for _, command, _ in ALL:
        for parameter in command.params:
            letters = [option for option in parameter.opts if len(option) == 2]
            names = [option for option in parameter.opts if option.startswith("--")]
            for letter in letters:
                meanings.setdefault(letter, set()).update(names[:1])
    several = {letter: names for letter, names in meanings.items() if len(names) > 1}
    assert several == SHORT_OPTIONS


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("topcs", "No such command 'topcs'. Did you mean 'topics'?"),
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
