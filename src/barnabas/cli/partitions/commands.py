"""The group `barnabas partitions` with its subcommands."""

from __future__ import annotations

import click

from barnabas.cli.partitions.default_group import ShowByDefault
from barnabas.cli.partitions.elect import elect_leaders
from barnabas.cli.partitions.reassign import reassign_partitions
from barnabas.cli.partitions.show import show_partitions

EXAMPLES = """\b
Examples:
  barnabas partitions                                   all partitions, once
  barnabas partitions orders --live
  barnabas partitions show --unwell
  barnabas partitions reassign orders --brokers 1,2,3   show the plan
  barnabas partitions elect orders
"""


@click.group(cls=ShowByDefault, epilog=EXAMPLES)
def partitions() -> None:
    """Show partitions and their replicas, move replicas, elect leaders.

    The default subcommand is `show`. For a topic named like a subcommand, use `show NAME`.
    """


partitions.add_command(show_partitions)
partitions.add_command(reassign_partitions)
partitions.add_command(elect_leaders)
