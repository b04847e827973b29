"""All commands of the command line that have no subcommands."""

from __future__ import annotations

import click

from barnabas.cli.group import group


def leaves(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(" ".join(path), command)]
    context = click.Context(command)
    found = []
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        found += leaves(below, (*path, name))
    return found


LEAVES = leaves(group, ("barnabas",))
