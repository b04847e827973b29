"""A group of commands of which one runs where none is named: `partitions orders` shows."""

from __future__ import annotations

import click

__all__ = ["ShowByDefault"]

_DEFAULT = "show"


class ShowByDefault(click.Group):
    """Words that begin with no subcommand are those of `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `show` in front, unless a subcommand or help is asked for."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)
