"""Groups of commands that have a default command."""

from __future__ import annotations

from typing import Any

import click


class DefaultGroup(click.Group):
    """A group whose default command is called unless the first word names another command.

    Args:
        default_command: The name of the default command.
    """

    def __init__(self, *args: Any, default_command: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.default_command = default_command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default, unless the arguments start with a command or a help option."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)
