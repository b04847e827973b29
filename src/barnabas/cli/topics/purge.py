"""`barnabas topics purge`: delete the records before an offset or a time (DeleteRecords)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.confirming import confirm, yes_option
from barnabas.cli.common.output import (
    EXIT_FAILED,
    client_options,
    connected,
    echo_json,
    moment_ms,
    problem,
)
from barnabas.cli.common.partition_specs import partitions_of
from barnabas.cli.common.tables import echo_table
from barnabas.cli.common.topic_names import topic_arguments
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

EXAMPLES = """\b
Examples:
  barnabas topics purge flights --all --yes
  barnabas topics purge flights:0,2 --before-offset 5000
  barnabas topics purge flights --before-time 2026-01-31T12:00
"""


@click.command("purge", epilog=EXAMPLES)
@topic_arguments("specs", "TOPIC[:PARTITION,...]...")
@click.option("--all", "is_all", is_flag=True, help="Delete all records.")
@click.option(
    "--before-offset", type=click.IntRange(0), metavar="N", help="Delete records below this offset."
)
@click.option(
    "--before-time",
    metavar="ISO|MS",
    help="Delete records before the first one at or after this time.",
)
@yes_option
@client_options
def purge_topics(
    specs: Sequence[str],
    is_all: bool,
    before_offset: int | None,
    before_time: str | None,
    yes: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Delete the oldest records of partitions permanently. Asks for confirmation on a terminal."""
    if (is_all, before_offset is not None, before_time is not None).count(True) != 1:
        raise click.UsageError("give one of --all, --before-offset and --before-time")
    moment = moment_ms(before_time, "--before-time") if before_time is not None else None
    confirm(f"Delete records of {', '.join(specs)}?", yes=yes)
    with connected(bootstrap, properties) as client:
        wanted = partitions_of(client, specs)
        limit = -1 if before_offset is None else before_offset
        offsets = dict.fromkeys(wanted, limit) if moment is None else _at(client, wanted, moment)
        _show(client.admin.delete_records(offsets, raise_errors=False), as_json=as_json)


def _at(client: Client, wanted: Sequence[TopicPartition], moment: int) -> dict[TopicPartition, int]:
    """Return the first offset at or after a time; -1 (all records) if there is no such offset."""
    found = client.list_offsets(dict.fromkeys(wanted, moment))
    return {tp: each.offset for tp, each in found.items()}


def _show(found: dict[TopicPartition, int | ClientError], *, as_json: bool) -> None:
    rows = []
    for tp, start in sorted(found.items(), key=lambda item: item[0]):
        error = start if isinstance(start, ClientError) else None
        if as_json:
            echo_json(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "start_offset": None if error else start,
                    "error": str(error) if error else None,
                }
            )
        elif error is not None:
            problem(str(error))
        else:
            rows.append((tp.topic, tp.partition, start))
    if rows:
        echo_table(("topic", "partition", "starts at"), rows)
    if any(isinstance(start, ClientError) for start in found.values()):
        sys.exit(EXIT_FAILED)
