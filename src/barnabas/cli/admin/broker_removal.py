"""`barnabas brokers check`: whether brokers may stop, or be removed, without loss.

A broker may stop if each partition keeps a replica that is in sync, and enough of them for
acks=all. It may be removed for good if it has no replicas any more: `barnabas rebalance
--exclude-broker` moves them to other brokers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.named_brokers import broker_ids, brokers_on, named_brokers
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
)
from barnabas.cli.common.printable import counted, echo, some
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client

MIN_ISR = "min.insync.replicas"


class Dependence(NamedTuple):
    """What depends on some brokers. Each field has names such as `orders-0`."""

    # Partitions whose in-sync replicas are all on the brokers.
    offline: list[str]
    # Partitions that would have fewer in-sync replicas than min.insync.replicas.
    below_min_isr: list[str]
    # Partitions with a replica on the brokers.
    held: list[str]

    def may_stop(self) -> bool:
        """Return whether all partitions stay writable without the brokers."""
        return not self.offline and not self.below_min_isr


def dependence(
    topics: Mapping[str, TopicInfo], minima: Mapping[str, int], brokers: Collection[int]
) -> Dependence:
    """Return the partitions that depend on brokers.

    Args:
        topics: All topics.
        minima: min.insync.replicas by topic.
        brokers: Ids of the brokers.
    """
    found = Dependence([], [], [])
    for topic, info in sorted(topics.items()):
        for number, partition in sorted(info.partitions.items()):
            name = f"{topic}-{number}"
            if set(partition.replicas).isdisjoint(brokers):
                continue
            found.held.append(name)
            if not partition.isr:
                # The last replicas in sync are down, and only they have all records (KIP-966).
                found.offline.append(name)
                continue
            if set(partition.isr).isdisjoint(brokers):
                continue
            left = len(set(partition.isr).difference(brokers))
            if not left:
                found.offline.append(name)
            elif left < min(minima.get(topic, 1), len(partition.replicas)):
                found.below_min_isr.append(name)
    return found


def minimum_isrs(
    client: Client, names: Iterable[str], errors: list[ClientError] | None = None
) -> dict[str, int]:
    """Return min.insync.replicas of topics; topics that may not be described are left out.

    Args:
        client: The client.
        names: The topics.
        errors: Gets the errors of the topics that are left out.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = {}
    for resource, entries in client.admin.describe_configs(resources, keys=[MIN_ISR]).items():
        if isinstance(entries, ClientError):
            if errors is not None:
                errors.append(entries)
            continue
        for entry in entries:
            if entry.name == MIN_ISR and entry.value is not None:
                found[resource.name] = int(entry.value)
    return found


@click.command(
    "check",
    epilog="\b\nExamples:\n  barnabas brokers check 3\n  barnabas brokers check 10,11 --remove\n"
    "  barnabas brokers check --machine host1\n\n"
    "The exit status is 1 if the brokers may not stop, or with --remove, if they have replicas. "
    "`barnabas rebalance --exclude-broker 3` moves replicas to other brokers.\n",
)
@click.argument("brokers", metavar="[ID,...]", required=False)
@click.option("--machine", metavar="HOST", help="Check all brokers of this host.")
@click.option("--remove", is_flag=True, help="Check whether the brokers may be removed for good.")
@client_options
def check_brokers(
    brokers: str | None, machine: str | None, remove: bool, options: ClientOptions
) -> None:
    """Check whether brokers may stop at the same time, or be removed, without loss."""
    if (brokers is None) == (machine is None):
        raise click.UsageError("give either ids of brokers or --machine")
    with connected(options) as client:
        cluster = client.describe_cluster()
        known = {node.id: node for node in (*cluster.brokers, *cluster.fenced)}
        if machine is not None:
            ids = brokers_on(machine, known.values())
        else:
            ids = broker_ids(brokers or "", known, "brokers check")
        topics = client.describe_topics()
        found = dependence(topics, minimum_isrs(client, topics), ids)
    may_be_removed = not found.held
    if options.as_json:
        echo_json(_as_json(ids, found))
    else:
        _echo(ids, found, is_removal=remove)
    if not (may_be_removed if remove else found.may_stop()):
        sys.exit(EXIT_FAILED)


def _as_json(ids: Sequence[int], found: Dependence) -> dict[str, Any]:
    return {
        "brokers": list(ids),
        "may_stop": found.may_stop(),
        "may_be_removed": not found.held,
        "offline": found.offline,
        "below_min_isr": found.below_min_isr,
        "replicas": found.held,
    }


def _echo(ids: Sequence[int], found: Dependence, *, is_removal: bool) -> None:
    names = named_brokers(ids)
    if found.offline:
        echo(
            f"{counted(len(found.offline), 'partition')} without another in-sync replica: "
            f"{some(found.offline)}"
        )
    if found.below_min_isr:
        echo(
            f"{counted(len(found.below_min_isr), 'partition')} would reject acks=all: "
            f"{some(found.below_min_isr)}"
        )
    if is_removal and found.held:
        ids_text = ",".join(map(str, ids))
        echo(
            f"{names} may not be removed: {counted(len(found.held), 'partition')} with replicas "
            f"there ({some(found.held)}); `barnabas rebalance --exclude-broker {ids_text}` moves "
            "them"
        )
    elif is_removal:
        echo(f"{names} may be removed: no replica is there")
    elif found.may_stop():
        echo(f"{names} may stop: every partition stays writable")
    else:
        echo(
            f"{names} may not stop: `barnabas partitions show --unwell` shows the replicas that "
            "are not in sync"
        )


def refusal_to_unregister(topics: Mapping[str, TopicInfo], broker: int) -> str | None:
    """Return why a broker must stay registered; None if no partition loses its last replica."""
    lost = dependence(topics, {}, [broker]).offline
    if not lost:
        return None
    return (
        f"broker {broker} has the only in-sync replica of {counted(len(lost), 'partition')}: "
        f"{some(lost)}; start it, and move them with `barnabas rebalance --exclude-broker "
        f"{broker}`; `barnabas brokers check {broker} --remove` tells when no replica is left"
    )
