"""Words and options of other tools are understood, or the error names the command to use."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.common import habits
from barnabas.cli.common.groups import DefaultGroup
from barnabas.cli.common.habits import action_first, options_last
from barnabas.cli.group import group


def command_of(words: str) -> click.Command | None:
    """Return the command that the first words name."""
    command: click.Command | None = group
    for word in words.split():
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        command = command.get_command(click.Context(command), word)
    if isinstance(command, DefaultGroup):
        return command.commands[command.default_command]
    return command


NAMED = [*habits.COMMANDS.values(), *habits.ELSEWHERE.values()]


@pytest.mark.parametrize("words", sorted(set(NAMED)))
def test_a_named_command_exists_with_its_options(words: str) -> None:
    command = command_of(words)
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    if not isinstance(command, click.Group):
        assert {word for word in words.split() if word.startswith("--")} <= options


@pytest.mark.parametrize("command", sorted({*habits.OPTIONS} - {""}))
def test_an_option_of_another_tool_is_no_option_of_the_command(command: str) -> None:
    found = command_of(command)
    commands = found.commands.values() if isinstance(found, click.Group) else [found]
    for each in commands:
        assert each is not None
        options = {option for parameter in each.params for option in parameter.opts}
        assert options.isdisjoint(habits.OPTIONS[command])


def test_options_of_the_client_may_stand_before_the_command() -> None:
    assert options_last(["-b", "h:1", "topics", "list"]) == ["topics", "list", "-b", "h:1"]
    assert options_last(["-b", "h:1", "-X", "a=b", "-J", "x"]) == [
        "x", "-b", "h:1", "-X", "a=b", "-J",
    ]  # fmt: skip
    assert options_last(["--bootstrap=h:1", "x", "--", "-y"]) == [
        "x", "--bootstrap=h:1", "--", "-y",
    ]  # fmt: skip
    for unchanged in ([], ["-b"], ["topics", "-b", "h:1"], ["--version"]):
        assert options_last(unchanged) == unchanged


def test_an_action_of_kafkas_scripts_may_stand_anywhere() -> None:
    names = ("list", "describe", "reset", "add", "set")
    assert action_first(["--list"], names) == ["list"]
    assert action_first(["--topic", "t", "--describe"], names) == ["describe", "--topic", "t"]
    assert action_first(["--bootstrap-server", "h:1", "--list"], names) == [
        "list", "--bootstrap-server", "h:1",
    ]  # fmt: skip
    assert action_first(["--reset-offsets", "--group", "g"], names) == ["reset", "--group", "g"]
    assert action_first(["--frob", "t"], names) == ["--frob", "t"]
    assert action_first(["list", "--add"], names) == ["list", "--add"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("-C -t flights", "-C is an option of kcat. Use `barnabas consume --from beginning`."),
        ("-b h:9092 -P -t flights", "Use `barnabas produce`."),
        ("-Q -t flights:0:1700000000000", "Use `barnabas consume --timestamp`."),
        ("-G report flights", "Use `barnabas consume --group`."),
        ("kafka-topics.sh --list", "Use `barnabas topics`."),
        ("kafka-console-consumer --topic flights", "Use `barnabas consume`."),
        ("kafka-consumer-groups.sh --list", "Use `barnabas groups`."),
        ("kafka-configs.bat --describe", "Use `barnabas configs`."),
        ("kafka-reassign-partitions.sh --verify", "Use `barnabas partitions reassign`."),
        ("topic list", "Use `barnabas topics`."),
        ("group describe report", "Use `barnabas groups`."),
        ("node ls", "Use `barnabas brokers`."),
        ("ls", "Use `barnabas topics list`."),
        ("info", "Use `barnabas metadata`."),
        ("health", "Use `barnabas doctor`."),
        ("acl list", "Use `barnabas acls`."),
        ("tail flights", "Use `barnabas consume`."),
        ("drain 3", "Use `barnabas rebalance --exclude-broker`."),
        ("topcis list", "Did you mean 'topics'?"),
        ("topics ls", "Use `barnabas topics list`."),
        ("topics rm flights", "Use `barnabas topics delete`."),
        ("topics add flights", "Use `barnabas topics create`."),
        ("topics consume flights", "Use `barnabas consume`."),
        ("topics produce flights", "Use `barnabas produce`."),
        ("topics trim-prefix flights", "Use `barnabas topics purge`."),
        ("topics add-partitions flights", "Use `barnabas topics alter`."),
        ("topics alter-config flights", "Use `barnabas topics alter`."),
        ("topics lst", "Did you mean 'list'?"),
        ("topics frob", "Subcommands: list, describe, create, delete, alter, purge, schema."),
        ("groups seek report", "Use `barnabas groups reset`."),
        ("groups lag report", "Use `barnabas groups describe`."),
        ("groups ls", "Use `barnabas groups list`."),
        ("acls create", "Use `barnabas acls add`."),
        ("users create ann", "Use `barnabas users add`."),
        ("users delete ann", "Use `barnabas users remove`."),
        ("configs alter topic flights", "Use `barnabas configs set TYPE NAME KEY=VALUE`."),
        ("configs get topic flights", "Use `barnabas configs describe`."),
        ("brokers decommission 3", "Use `barnabas rebalance --exclude-broker`."),
        ("transactions ls", "Use `barnabas transactions list`."),
        (
            "configs --describe --entity-type topics --entity-name flights",
            "Use `barnabas configs describe TYPE NAME`.",
        ),
        ("acls --add --allow-principal User:ann", "Use `barnabas acls add User:NAME`."),
        ("consume flights --max-messages 5", "Use --max-records."),
        ("consume flights --timeout-ms 5000", "Use --exit-at-end."),
        ("consume flights --formatter-property print.key=true", "Use --key, --headers"),
        ("consume flights -o stored", "use --group"),
        ("consume flights -o :end", "use --exit-at-end"),
        ("consume flights -o e@1700000000000", "use --to @1700000000000"),
        ("consume flights --property print.key=true", "use --key"),
        ("produce flights --property parse.key=true", "use --key-separator"),
        ("produce flights -l flights.txt", "Use FILE without -l"),
        ("produce flights --broker-list h:9092", "Use --bootstrap."),
        ("topics --describe --under-replicated-partitions", "Use `barnabas partitions --unwell`."),
        ("topics list --zookeeper h:2181", "Use --bootstrap."),
    ],
)
def test_a_habit_of_another_tool_gets_the_command_to_use(words: str, answer: str) -> None:
    done = CliRunner().invoke(group, words.split())
    assert done.exit_code == 2, done.output
    assert answer in done.output


@pytest.mark.parametrize("words", ["help topics create", "topics create --help"])
def test_the_help_of_a_command_is_shown_by_a_command_or_an_option(words: str) -> None:
    done = CliRunner().invoke(group, words.split())
    assert done.exit_code == 0
    assert "topics create [OPTIONS] [TOPIC...]" in done.output


@pytest.mark.parametrize("line", ["barnabas frob ", "barnabas topics frob ", "barnabas topics -"])
def test_completion_behind_unknown_words_prints_no_error(line: str) -> None:
    words = line.split(" ")
    environment = {
        "_BARNABAS_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = CliRunner().invoke(group, [], prog_name="barnabas", env=environment)
    assert (done.exit_code, done.exception, done.stderr) == (0, None, "")


def test_the_help_of_everything_is_a_command_too() -> None:
    assert "Commands:" in CliRunner().invoke(group, ["help"]).output
    done = CliRunner().invoke(group, ["help", "frobs"])
    assert (done.exit_code, "No such command 'frobs'" in done.output) == (2, True)
