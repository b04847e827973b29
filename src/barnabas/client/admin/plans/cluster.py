"""The cluster: brokers, controllers, the metadata quorum, features, log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import cluster_info, features, log_dirs, quorum, registrations
from barnabas.client.admin.results import raise_failed
from barnabas.client.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.topic_partition import K, as_partition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.topic_partition import TopicPartition


def describe_cluster(sender: AdminSender) -> Plan[cluster_info.ClusterDescription]:
    """The cluster's id, its controller and its brokers."""
    return sender.send(ANY_NODE, cluster_info.describe_cluster())


def broker_ids(sender: AdminSender) -> Plan[list[int]]:
    """Ids of the brokers that serve clients."""
    described = yield from describe_cluster(sender)
    return [broker.id for broker in described.brokers]


def know(sender: AdminSender, node: int) -> Plan[None]:
    """Have metadata name a broker; an id that it does not name is the user's mistake."""
    if node == ANY_NODE or node in sender.cluster.metadata.nodes:
        return
    known = yield from broker_ids(sender)
    if node not in known:
        brokers = ", ".join(map(str, sorted(known)))
        raise BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}", f"the brokers are: {brokers}"
        )
    yield from sender.refresh()


def describe_versions(sender: AdminSender, node: int = ANY_NODE) -> Plan[cluster_info.Versions]:
    """APIs and features of a broker."""
    yield from know(sender, node)
    return (yield from sender.send(node, cluster_info.describe_versions()))


def update_features(
    sender: AdminSender,
    levels: Mapping[str, int],
    *,
    kind: features.UpgradeType = features.UpgradeType.UPGRADE,
    validate_only: bool = False,
) -> Plan[None]:
    """Finalise levels of features, 0 to take one away (KIP-584).

    Raises:
        BrokerError: FEATURE_UPDATE_FAILED, INVALID_UPDATE_VERSION: none of them was changed.
    """
    call = features.update_features(levels, kind, sender.timeout_ms, validate_only=validate_only)
    yield from sender.send(CONTROLLER, call)


def unregister_broker(sender: AdminSender, node: int) -> Plan[None]:
    """Forget a broker that is gone for good."""
    yield from sender.send(CONTROLLER, registrations.unregister_broker(node))


def unregister_controller(sender: AdminSender, node: int) -> Plan[None]:
    """Forget a controller that is gone for good."""
    yield from sender.send(CONTROLLER, registrations.unregister_controller(node))


def describe_quorum(sender: AdminSender, *, once: bool = False) -> Plan[quorum.QuorumDescription]:
    """The metadata quorum; `once` makes one attempt."""
    return sender.send(ANY_NODE, quorum.describe_quorum(), once=once)


def add_voter(
    sender: AdminSender, node: int, directory_id: bytes, endpoints: Sequence[quorum.VoterEndpoint]
) -> Plan[None]:
    """Make a controller that follows the metadata log a voter of the quorum."""
    call = quorum.add_voter(node, directory_id, endpoints, sender.timeout_ms)
    yield from sender.send(ANY_NODE, call)


def remove_voter(sender: AdminSender, node: int, directory_id: bytes) -> Plan[None]:
    """Take a voter out of the quorum."""
    yield from sender.send(ANY_NODE, quorum.remove_voter(node, directory_id))


def describe_log_dirs(
    sender: AdminSender, nodes: Iterable[int], *, once: bool = False
) -> Plan[dict[int, list[log_dirs.LogDirectory] | ClientError]]:
    """The log directories of brokers; with `once` in one attempt, of unknown ones an error."""
    wanted = list(nodes)
    if once:
        yield from sender.refresh()
    else:
        for node in wanted:
            yield from know(sender, node)
    call = log_dirs.describe_log_dirs()
    return (yield from sender.send_each(dict.fromkeys(wanted, call), once=once))


def describe_replica_log_dirs(
    sender: AdminSender, replicas: Iterable[tuple[int, tuple[str, int]]]
) -> Plan[dict[tuple[int, TopicPartition], log_dirs.ReplicaDirectories | ClientError]]:
    """For each (broker, partition) the directory of the replica, and where it is moving to."""
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
    """Move replicas of (broker, partition) to other log directories of the same broker (KIP-113).

    Returns:
        An error or None for each; a move that was begun goes on by itself.
    """
    by_node: dict[int, dict[TopicPartition, str]] = {}
    for (node, tp), path in targets.items():
        by_node.setdefault(node, {})[as_partition(tp)] = path
    for node in by_node:
        yield from know(sender, node)
    answers = yield from sender.send_each(
        {node: log_dirs.alter_replica_log_dirs(part) for node, part in by_node.items()}
    )
    found: dict[tuple[int, TopicPartition], BrokerError | ClientError | None] = {}
    for node, answer in answers.items():
        for moved in by_node[node]:
            found[node, moved] = answer if isinstance(answer, ClientError) else answer[moved]
    if raise_errors:
        raise_failed(found)
    return found
