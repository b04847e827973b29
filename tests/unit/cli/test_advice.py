"""The commands that `doctor` and `why` advise: the table, and the parser of the command line."""

from __future__ import annotations

import ast
import re
import shlex
import string
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.cli.common.advice import Advice, connection_options
from barnabas.cli.group import COMMANDS, group

CLI = Path(__file__).parents[3] / "src/barnabas/cli"
SOURCES = [path for folder in ("doctor", "why") for path in sorted((CLI / folder).rglob("*.py"))]
VALUES: dict[str, object] = {
    "address": "127.0.0.1:9092",
    "broker": 3,
    "brokers": "1,2,3",
    "client_id": "loader",
    "directory": str(CLI),
    "feature": "share.version",
    "group": "billing",
    "key": "follower.replication.throttled.rate",
    "level": 1,
    "link": "prod",
    "mechanism": "SCRAM-SHA-512",
    "offset": 40,
    "partition": 0,
    "replicas": 2,
    "topic": "orders",
    "transactional_id": "pay",
}


def placeholders(advice: Advice) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(advice.value) if name}


def text(advice: Advice, **more: object) -> str:
    values = {**VALUES, **more}
    return advice.text(**{name: values[name] for name in placeholders(advice)})


def parse(command: str) -> list[click.Context]:
    """Parse a command with the command line's parser; return the contexts of its groups."""
    _, *words = shlex.split(command)
    context = group.make_context("barnabas", words)
    found = [context]
    while isinstance(context.command, click.Group):
        words = [*context._protected_args, *context.args]
        name, below, rest = context.command.resolve_command(context, words)
        assert below is not None
        context = below.make_context(name, rest, parent=context)
        found.append(context)
    return found


@pytest.mark.parametrize("advice", Advice)
def test_the_command_line_accepts_every_advised_command(advice: Advice) -> None:
    parse(text(advice))


@pytest.mark.parametrize("advice", [each for each in Advice if " -- " in each.value])
def test_names_that_begin_with_a_dash_or_have_spaces_are_quoted(advice: Advice) -> None:
    odd = {"group": "-my group", "topic": "-x", "transactional_id": "-pay 'em"}
    context = parse(text(advice, **odd))[-1]
    given = [str(each) for value in context.params.values() for each in flat(value)]
    for name in placeholders(advice) & set(odd):
        assert any(odd[name] in each for each in given), (name, given)


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def test_advised_commands_reach_the_cluster_that_was_examined() -> None:
    with connection_options(bootstrap="h:1", config_file="my client.properties", profile=None):
        assert Advice.VERIFY_LOG.text(directory="/data") == "barnabas log verify /data"
        command = Advice.DELETE_GROUP.text(group="billing")
    assert command.startswith("barnabas groups delete billing --bootstrap h:1 --config-file ")
    parse(command)
    assert Advice.DELETE_GROUP.text(group="billing") == "barnabas groups delete billing"


# The table


def test_every_command_of_the_table_is_advised_somewhere() -> None:
    code = "".join(path.read_text() for path in SOURCES)
    assert [each for each in Advice if f"Advice.{each.name}" not in code] == []


def test_no_command_is_advised_outside_of_the_table() -> None:
    command = re.compile(rf"barnabas ({'|'.join(COMMANDS)})\b")
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        help_texts = {ast.get_docstring(tree, clean=False)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXAMPLES":
                help_texts.add(ast.literal_eval(node.value))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value not in help_texts:
                assert not command.search(str(node.value)), (path.name, node.lineno, node.value)


def test_every_command_that_a_message_names_exists() -> None:
    named = re.compile(r"`barnabas ([a-z][^`]*)`")
    found = 0
    for path in sorted(CLI.parent.rglob("*.py")):
        code = path.read_text()
        for node in ast.walk(ast.parse(code)) if named.search(code) else ():
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            for text in named.findall(node.value):
                found += 1
                assert exists(text.split()), (path.name, node.lineno, text)
    assert found > 20


def exists(words: list[str]) -> bool:
    """Return whether the first words name a command, and its subcommand if they name one."""
    command: click.Command | None = group
    for word in words:
        if not isinstance(command, click.Group) or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        command = command.get_command(click.Context(command), word)
    return command is not None
