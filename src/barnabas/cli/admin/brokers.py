"""`barnabas brokers`: list and unregister brokers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common import confirming
from barnabas.cli.common.output import EXIT_FAILED, client_options, connected, echo_json, problem
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table, good, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas brokers list
  barnabas brokers list --json
  barnabas brokers unregister 3
"""
_FENCED = "fenced"


@click.group(epilog=EXAMPLES)
def brokers() -> None:
    """List and unregister brokers."""


@brokers.command(
    "list",
    epilog="\b\nExamples:\n  barnabas brokers list\n\n"
    "A fenced broker is registered but serves no clients: it is stopped, dead, or not ready yet.\n",
)
@client_options
def list_brokers(bootstrap: str, properties: Sequence[str], as_json: bool) -> None:
    """List the registered brokers with their addresses, racks and states."""
    with connected(bootstrap, properties) as client:
        found = client.describe_cluster()
    states = [(broker, "serves") for broker in found.brokers]
    states += [(broker, _FENCED) for broker in found.fenced]
    states.sort(key=lambda item: item[0].id)
    if as_json:
        listed: list[dict[str, Any]] = [
            {
                "broker": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "state": state,
            }
            for broker, state in states
        ]
        echo_json({"cluster_id": found.cluster_id, "brokers": listed})
        return
    rows = [
        (
            broker.id,
            broker.address,
            broker.rack,
            warn(state) if state == _FENCED else good(state),
        )
        for broker, state in states
    ]
    echo_table(("broker", "address", "rack", "state"), rows)


@brokers.command(
    "unregister",
    epilog="\b\nExamples:\n  barnabas brokers unregister 3 --yes\n\n"
    "Move its partitions to other brokers first: barnabas partitions reassign --help. "
    "A running broker registers itself again; --force unregisters it anyway.\n",
)
@click.argument("broker", type=click.IntRange(0), metavar="BROKER")
@click.option(
    "-f", "--force", is_flag=True, help="Unregister the broker even if it still serves clients."
)
@confirming.yes_option
@client_options
def unregister_broker(
    broker: int, force: bool, yes: bool, bootstrap: str, properties: Sequence[str], as_json: bool
) -> None:
    """Remove a broker from the cluster's metadata. Asks for confirmation on a terminal.

    Without a terminal, a broker that has replicas is only unregistered with --yes.
    """
    with connected(bootstrap, properties) as client:
        serving = [each.id for each in client.describe_cluster().brokers]
        if broker in serving and not force:
            problem(
                f"broker {broker} still serves clients: stop it first, or give --force (it would "
                f"register itself again)"
            )
            sys.exit(EXIT_FAILED)
        replicas = _replicas_text(client, broker)
        if replicas and not (yes or confirming.has_terminal()):
            problem(f"broker {broker} has {replicas}; to unregister it anyway, give --yes")
            sys.exit(EXIT_FAILED)
        detail = f" It has {replicas}." if replicas else ""
        confirming.confirm(f"Unregister broker {broker}?{detail}", yes=yes)
        client.admin.unregister_broker(broker)
        if as_json:
            echo_json({"unregistered": broker})
        else:
            echo(f"unregistered broker {broker}")


def _replicas_text(client: Client, broker: int) -> str:
    """Return how many replicas a broker has, in words; empty if it has none."""
    held = [
        partition
        for topic in client.describe_topics().values()
        for partition in topic.partitions.values()
        if broker in partition.replicas
    ]
    if not held:
        return ""
    alone = sum(len(partition.replicas) == 1 for partition in held)
    lost = f", {alone} of them without another replica" if alone else ""
    return f"{len(held)} replica{'' if len(held) == 1 else 's'}{lost}: move them first"
