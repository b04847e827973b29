"""Check of a running cluster before its nodes move: levels, configs, topics and replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import counted
from barnabas.cli.doctor.machines import examine_racks_of_machines, examine_replica_machines
from barnabas.cli.migrate.node_files import check_keys
from barnabas.cli.migrate.remote_tiers import (
    TIERED_TOPIC_KEY,
    is_local_tier,
    report_tiered_topics,
)
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.metadata.metadata_version import METADATA_VERSION
from barnabas.server.startup.features import FEATURES_TOOL, unsupported_levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.admin.cluster import ClusterDescription
    from barnabas.client.admin.topics import TopicState
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client

_STATIC = "static broker"
_TOPICS_PER_REQUEST = 500
# Followers fetch several times a second.
_VOTER_LAG_MS_MAX = 5_000


def check_cluster(client: Client, found: Diagnosis) -> None:
    """Check what the brokers say of themselves. Files that only a node has are not examined."""
    cluster = client.admin.describe_cluster()
    if not _check_levels(client, found):
        return
    _check_quorum(client, found)
    carries_over = [_check_configs(client, node, found) for node in cluster.brokers]
    names = client.admin.list_topics()
    _check_topics(client, sorted(names), found, carries_over=all(carries_over))
    _check_replicas(client, cluster, sorted(names), found)
    examine_racks_of_machines(cluster, found)
    _count(client, found)
    found.unexamined(
        "values of secret keys, and data directories",
        "run `barnabas migrate check server.properties` on each node",
    )


def _check_levels(client: Client, found: Diagnosis) -> bool:
    """Report feature levels that Barnabas does not have. Return whether the cluster has KRaft."""
    levels = client.admin.describe_versions().finalized_features
    if METADATA_VERSION not in levels:
        found.wrong(
            "the cluster has no metadata.version: it uses ZooKeeper, or a version before 3.3",
            "move the cluster to KRaft first, with the tools of Apache Kafka 3.9",
        )
        return False
    unsupported = unsupported_levels(levels)
    for each in unsupported:
        direction, to = each.change
        found.wrong(
            f"{each.name} has level {each.level}, and Barnabas has {each.lowest} to {each.highest}",
            f"{FEATURES_TOOL} {direction} --feature {each.name}={to}",
        )
    refused = {each.name for each in unsupported}
    carried = [f"{name} {level}" for name, level in sorted(levels.items()) if name not in refused]
    if carried:
        found.ok(f"feature levels: {', '.join(carried)}")
    return True


def _check_quorum(client: Client, found: Diagnosis) -> None:
    """Report voters that do not follow: if another voter stops, a majority may be missing."""
    try:
        quorum = client.admin.describe_quorum()
    except ClientError as error:
        found.unexamined(f"the metadata quorum: {error}", "run the check with more rights")
        return
    # The leader reports the current time as the time at which it had all records.
    times = {each.node_id: each.last_caught_up_timestamp for each in quorum.voters}
    now = times.get(quorum.leader_id, -1)
    late = sorted(node for node, time in times.items() if now - time > _VOTER_LAG_MS_MAX)
    if late:
        found.wrong(
            f"controllers {', '.join(map(str, late))} do not follow controller {quorum.leader_id}, "
            "the leader of the metadata quorum",
            "wait until `barnabas quorum describe` shows that they do, before each node",
        )
    else:
        found.ok(f"{counted(len(times), 'voter')} of the metadata quorum with all records")


def _check_configs(client: Client, node: NodeInfo, found: Diagnosis) -> bool:
    """Report the configs of a broker. Return whether Barnabas can read its remote segments."""
    resource = ConfigResource(ResourceType.BROKER, str(node.id))
    entries = client.admin.describe_configs([resource])[resource]
    if isinstance(entries, ClientError):
        found.unexamined(f"configs of broker {node.id}: {entries}")
        return False
    given = {
        each.name: each.value or ""
        for each in entries
        if each.source == _STATIC and not each.is_sensitive
    }
    check_keys(given, found, f"broker {node.id}", is_whole=False)
    return is_local_tier(given)


def _check_topics(
    client: Client, names: list[str], found: Diagnosis, *, carries_over: bool
) -> None:
    tiered = []
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        resources = [
            ConfigResource(ResourceType.TOPIC, name)
            for name in names[start : start + _TOPICS_PER_REQUEST]
        ]
        described = client.admin.describe_configs(resources, keys=[TIERED_TOPIC_KEY])
        tiered += [
            resource.name
            for resource, entries in described.items()
            if not isinstance(entries, ClientError)
            and any(each.value == "true" for each in entries)
        ]
    if tiered:
        report_tiered_topics(tiered, found, carries_over=carries_over)


def _check_replicas(
    client: Client, cluster: ClusterDescription, names: list[str], found: Diagnosis
) -> None:
    """Report replicas that are out of sync: a node may only stop when there are none."""
    behind, single, partitions = 0, 0, 0
    every: dict[str, TopicState] = {}
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        topics = client.admin.describe_topics(names[start : start + _TOPICS_PER_REQUEST])
        every |= topics
        for topic in topics.values():
            for each in topic.partitions.values():
                partitions += 1
                behind += len(each.isr) < len(each.replicas)
                single += len(each.replicas) == 1
    if behind:
        found.wrong(
            f"{counted(behind, 'partition')} with replicas that are not in sync",
            "wait until `barnabas partitions show --unwell` finds none, before each node",
        )
    else:
        found.ok(f"all replicas of {counted(partitions, 'partition')} are in sync")
    if single:
        found.note(
            f"{counted(single, 'partition')} with one replica: not served while its node moves",
            "a restart of Apache Kafka has the same effect",
        )
    examine_replica_machines(cluster, every, found)


def _count(client: Client, found: Diagnosis) -> None:
    """Report what carries over with the metadata log and the internal topics."""
    counts: list[tuple[str, Callable[[], int]]] = [
        ("group", lambda: len(client.admin.list_groups())),
        ("access control entry", lambda: len(client.admin.describe_acls())),
        ("user of SCRAM", lambda: len(client.admin.describe_scram_credentials())),
        ("delegation token", lambda: len(client.admin.describe_delegation_tokens())),
        ("quota", lambda: len(client.admin.describe_quotas({}))),
    ]
    carried = []
    for name, count in counts:
        try:
            number = count()
        except ClientError:
            # The cluster has no such thing, or this client may not see it.
            continue
        if number:
            carried.append(f"{name}: {number}")
    if carried:
        found.ok("carry over with the data: " + ", ".join(carried))
