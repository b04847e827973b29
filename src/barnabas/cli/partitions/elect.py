"""`barnabas partitions elect`: elect leaders of partitions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.confirming import confirm
from barnabas.cli.common.output import EXIT_FAILED, client_options, connected, echo_json, problem
from barnabas.cli.common.printable import echo
from barnabas.cli.common.topic_names import topic_arguments
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.errors import BrokerError
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["elect_leaders"]

EXAMPLES = """\b
Examples:
  barnabas partitions elect                       all partitions without their preferred leader
  barnabas partitions elect orders payments:0,3
  barnabas partitions elect orders:0 --unclean --yes
"""


@click.command("elect", epilog=EXAMPLES)
@topic_arguments("specs", "TOPIC[:PARTITION,...]...", required=False)
@click.option(
    "--unclean",
    is_flag=True,
    help="If necessary, elect a replica that may lack committed records.",
)
@click.option("-y", "--yes", is_flag=True, help="With --unclean: do not ask for confirmation.")
@client_options
def elect_leaders(
    specs: Sequence[str],
    unclean: bool,
    yes: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Elect the preferred replicas; with --unclean, any live replica if necessary.

    Committed records that an unclean leader lacks are lost permanently. Partitions that need no
    election do not change.
    """
    from barnabas.cli.common.partition_specs import partitions_of
    from barnabas.client.admin.partitions import ElectionType

    if unclean and not specs:
        raise click.UsageError("name the partitions for --unclean")
    if unclean:
        confirm(f"Committed records of {' '.join(specs)} may be lost. Elect?", yes=yes)
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with connected(bootstrap, properties) as client:
        wanted = partitions_of(client, specs) if specs else None
        results = client.admin.elect_leaders(kind, wanted, raise_errors=False)
        _report(client, results, as_json=as_json)


def _report(
    client: Client, results: Mapping[TopicPartition, BrokerError | None], *, as_json: bool
) -> None:
    elected = [tp for tp, error in results.items() if error is None]
    topics = client.describe_topics({tp.topic for tp in elected}, may_be_new=False)
    failed = False
    for tp, error in sorted(results.items()):
        needless = error is not None and error.error_code == ErrorCode.ELECTION_NOT_NEEDED
        failed = failed or (error is not None and not needless)
        leader = topics[tp.topic].partitions[tp.partition].leader if error is None else None
        if as_json:
            echo_json(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "leader": leader,
                    "error": None if error is None else error.error_code.name,
                    "message": None if error is None else error.detail,
                }
            )
        elif error is None:
            echo(f"{tp}: {leader} leads")
        elif needless:
            echo(f"{tp}: no election needed")
        else:
            problem(str(error))
    if not results and not as_json:
        echo("all partitions are led by their preferred replicas")
    if failed:
        sys.exit(EXIT_FAILED)
