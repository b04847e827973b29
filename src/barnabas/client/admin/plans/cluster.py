"""Plans for the cluster: brokers, controllers, metadata quorum, features, log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import cluster, log_dirs
from barnabas.client.admin.call import raise_failed
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.topic_partition import K, as_partition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.call import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.topic_partition import TopicPartition


def describe_cluster(sender: AdminSender) -> Plan[cluster.ClusterDescription]:
    """Describe the cluster: its id, its controller and its brokers."""
    return sender.send(ANY_NODE, cluster.describe_cluster())


def broker_ids(sender: AdminSender) -> Plan[list[int]]:
    """Return the ids of all brokers that are not fenced."""
    described = yield from describe_cluster(sender)
    return [broker.id for broker in described.brokers]


def require_broker(sender: AdminSender, node: int) -> Plan[None]:
    """Ensure that the cached metadata contains a broker.

    Raises:
        BrokerError: BROKER_NOT_AVAILABLE: the cluster has no broker with this id.
    """
    if node == ANY_NODE or node in sender.cluster.metadata.nodes:
        return
    known = yield from broker_ids(sender)
    if node not in known:
        brokers = ", ".join(map(str, sorted(known)))
        raise BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}", f"the brokers are: {brokers}"
        )
    yield from sender.refresh()


def describe_versions(sender: AdminSender, node: int = ANY_NODE) -> Plan[cluster.Versions]:
    """Return the API versions and feature levels of a broker; by default of any broker."""
    yield from require_broker(sender, node)
    return (yield from sender.send(node, cluster.describe_versions()))


def update_features(
    sender: AdminSender,
    levels: Mapping[str, int],
    *,
    kind: cluster.UpgradeType = cluster.UpgradeType.UPGRADE,
    validate_only: bool = False,
) -> Plan[None]:
    """Set finalized feature levels; a level of 0 removes the feature (KIP-584).

    Raises:
        BrokerError: FEATURE_UPDATE_FAILED or INVALID_UPDATE_VERSION; no feature was changed.
    """
    call = cluster.update_features(levels, kind, sender.timeout_ms, validate_only=validate_only)
    yield from sender.send(CONTROLLER, call)


def unregister_broker(sender: AdminSender, node: int) -> Plan[None]:
    """Remove a broker from the cluster metadata after it was shut down permanently."""
    yield from sender.send(CONTROLLER, cluster.unregister_broker(node))


def unregister_controller(sender: AdminSender, node: int) -> Plan[None]:
    """Remove a controller from the cluster metadata after it was shut down permanently."""
    yield from sender.send(CONTROLLER, cluster.unregister_controller(node))


def describe_quorum(sender: AdminSender, *, once: bool = False) -> Plan[cluster.QuorumDescription]:
    """Describe the metadata quorum; `once` makes one attempt only."""
    return sender.send(ANY_NODE, cluster.describe_quorum(), once=once)


def add_voter(
    sender: AdminSender, node: int, directory_id: bytes, endpoints: Sequence[cluster.VoterEndpoint]
) -> Plan[None]:
    """Make a controller that is an observer of the metadata log a voter of the quorum."""
    call = cluster.add_voter(node, directory_id, endpoints, sender.timeout_ms)
    yield from sender.send(ANY_NODE, call)


def remove_voter(sender: AdminSender, node: int, directory_id: bytes) -> Plan[None]:
    """Remove a voter from the metadata quorum."""
    yield from sender.send(ANY_NODE, cluster.remove_voter(node, directory_id))


def describe_log_dirs(
    sender: AdminSender, nodes: Iterable[int], *, once: bool = False
) -> Plan[dict[int, list[log_dirs.LogDirectory] | ClientError]]:
    """Describe the log directories of brokers.

    With `once` the plan makes one attempt, and an unknown broker gets an error in the result.

    Returns:
        The directories, or an error, for each broker id.

    Raises:
        BrokerError: BROKER_NOT_AVAILABLE: a broker is unknown; not raised with `once`.
    """
    wanted = list(nodes)
    if once:
        yield from sender.refresh()
    else:
        for node in wanted:
            yield from require_broker(sender, node)
    call = log_dirs.describe_log_dirs()
    return (yield from sender.send_each(dict.fromkeys(wanted, call), once=once))


def describe_replica_log_dirs(
    sender: AdminSender, replicas: Iterable[tuple[int, tuple[str, int]]]
) -> Plan[dict[tuple[int, TopicPartition], log_dirs.ReplicaDirectories | ClientError]]:
    """Find the log directory of each (broker, partition), and the target of an active move."""
    wanted = [(node, as_partition(tp)) for node, tp in replicas]
    by_node = yield from describe_log_dirs(sender, dict.fromkeys(node for node, _ in wanted))
    found: dict[tuple[int, TopicPartition], log_dirs.ReplicaDirectories | ClientError] = {}
    for node, tp in wanted:
        directories = by_node[node]
        if isinstance(directories, ClientError):
            found[node, tp] = directories
        else:
            found[node, tp] = log_dirs.directories_of(tp, directories)
    return found


def alter_replica_log_dirs(
    sender: AdminSender, targets: Mapping[tuple[int, K], str], *, raise_errors: bool = True
) -> Plan[dict[tuple[int, TopicPartition], BrokerError | ClientError | None]]:
    """Move replicas to other log directories (paths) of the same broker (KIP-113).

    The keys of `targets` are pairs (broker id, partition).

    Returns:
        An error or None for each key. An accepted move continues on the broker.

    Raises:
        AdminResultsError: a move was refused; not raised with `raise_errors=False`.
    """
    by_node: dict[int, dict[TopicPartition, str]] = {}
    for (node, tp), path in targets.items():
        by_node.setdefault(node, {})[as_partition(tp)] = path
    for node in by_node:
        yield from require_broker(sender, node)
    results = yield from sender.send_each(
        {node: log_dirs.alter_replica_log_dirs(part) for node, part in by_node.items()}
    )
    found: dict[tuple[int, TopicPartition], BrokerError | ClientError | None] = {}
    for node, result in results.items():
        for moved in by_node[node]:
            found[node, moved] = result if isinstance(result, ClientError) else result[moved]
    if raise_errors:
        raise_failed(found)
    return found
