"""A click group with a default command: `partitions orders` means `partitions show orders`."""

from __future__ import annotations

import click

__all__ = ["ShowByDefault"]

_DEFAULT = "show"


class ShowByDefault(click.Group):
    """A group whose default command is `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `show`, unless the arguments start with a subcommand or a help option."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)
