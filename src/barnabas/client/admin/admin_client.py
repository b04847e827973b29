"""The blocking face of all admin calls: `client.admin`.

Each method returns when it is done. Where many things are asked at once the result has a value or
an error for each; what is asked as a whole raises its `ClientError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import (
    cluster_info,
    configs,
    groups,
    log_dirs,
    offsets,
    partitions,
    quorum,
    quotas,
    reassignments,
    topic_partitions,
    topics,
    transactions,
)
from barnabas.client.admin.sender import AdminSender, CoordinatorOf
from barnabas.client.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, ClientError, UnsupportedVersionError
from barnabas.client.list_offsets import offset_spec
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.call import AdminCall
    from barnabas.client.admin.configs import ConfigResource, ResourceType
    from barnabas.client.admin.quotas import QuotaEntity
    from barnabas.client.cluster import Cluster
    from barnabas.client.coordinators import Coordinators
    from barnabas.client.list_offsets import ListedOffset
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.client.waiter import Waiter

__all__ = ["AdminClient"]


class AdminClient:
    """What administrators do to a cluster. Made by `Client`, over its connections."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators, waiter: Waiter) -> None:
        self._cluster = cluster
        self._sender = AdminSender(cluster, coordinators, waiter)

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.config.request_timeout_ms

    # Topics

    def create_topics(
        self, new: Sequence[topics.NewTopic], *, validate_only: bool = False
    ) -> dict[str, BrokerError | None]:
        """Create topics; an error or None for each. They may not have leaders yet."""
        call = topics.create_topics(new, self._timeout_ms, validate_only=validate_only)
        return self._sender.send(CONTROLLER, call)

    def delete_topics(self, names: Sequence[str]) -> dict[str, BrokerError | None]:
        """Delete topics; an error or None for each."""
        return self._sender.send(CONTROLLER, topics.delete_topics(names, self._timeout_ms))

    def create_partitions(self, counts: Mapping[str, int]) -> dict[str, BrokerError | None]:
        """Raise the number of partitions of topics to `counts`; an error or None for each."""
        return self._sender.send(CONTROLLER, topics.create_partitions(counts, self._timeout_ms))

    # Partitions

    def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | ClientError]:
        """Delete the records before an offset, all for -1.

        Returns:
            The offset that each partition now starts at.
        """

        def call_for(
            part: list[TopicPartition],
        ) -> AdminCall[dict[TopicPartition, int | ClientError]]:
            wanted = {tp: offsets[tp] for tp in part}
            return partitions.delete_records(wanted, self._timeout_ms)

        return self._sender.send_to_leaders(offsets, call_for)

    def elect_leaders(
        self,
        kind: partitions.ElectionType = partitions.ElectionType.PREFERRED,
        wanted: Sequence[TopicPartition] | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        """Have leaders elected, of all partitions that need it if none are named."""
        call = partitions.elect_leaders(kind, wanted, self._timeout_ms)
        return self._sender.send(CONTROLLER, call)

    def describe_producers(
        self, wanted: Iterable[TopicPartition], *, once: bool = False
    ) -> dict[TopicPartition, list[partitions.ActiveProducer] | ClientError]:
        """The producers that the partitions' leaders remember; `once` makes one attempt."""
        return self._sender.send_to_leaders(wanted, partitions.describe_producers, once=once)

    def describe_topic_partitions(
        self, names: Sequence[str] = ()
    ) -> dict[str, topic_partitions.TopicState | ClientError]:
        """Topics with their partitions as the controller has them, all topics if none is named."""
        found: dict[str, topic_partitions.TopicState | ClientError] = {}
        cursor: topic_partitions.Cursor | None = None
        while True:
            call = topic_partitions.describe_topic_partitions(names, cursor)
            try:
                page = self._sender.send(ANY_NODE, call)
            except UnsupportedVersionError:
                call = topic_partitions.describe_topics_by_metadata(names)
                return self._sender.send(ANY_NODE, call).topics
            for name, topic in page.topics.items():
                known = found.setdefault(name, topic)
                if known is not topic and not isinstance(known, ClientError):
                    # A topic that goes on from the page before.
                    assert not isinstance(topic, ClientError)
                    known.partitions.update(topic.partitions)
            cursor = page.next_cursor
            if cursor is None:
                return found

    def list_offsets(
        self, specs: Mapping[TopicPartition, str | int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | ClientError]:
        """Offsets that the leaders tell, in one attempt; a result or error for each.

        See `Client.list_offsets` for `specs`; that one tries until all are known.
        """

        def call_for(
            part: list[TopicPartition],
        ) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
            wanted = {tp: offset_spec(specs[tp]) for tp in part}
            return offsets.list_offsets(wanted, self._timeout_ms, read_committed=read_committed)

        return self._sender.send_to_leaders(specs, call_for, once=True)

    def list_replica_offsets(
        self, specs: Mapping[int, Mapping[TopicPartition, str | int]]
    ) -> dict[int, dict[TopicPartition, ListedOffset | ClientError] | ClientError]:
        """Offsets that replicas tell of their own logs, by node, in one attempt.

        "latest" is the log end offset, "earliest" the log start offset, of leaders and followers.
        """
        self._sender.refresh()
        calls = {
            node: offsets.list_offsets(
                {tp: offset_spec(spec) for tp, spec in wanted.items()},
                self._timeout_ms,
                replica_id=offsets.DEBUGGING_CONSUMER,
            )
            for node, wanted in specs.items()
        }
        return self._sender.send_each(calls, once=True)

    # Reassignments

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Begin reassignments to the given replicas, cancel those for None."""
        call = reassignments.alter_reassignments(targets, self._timeout_ms)
        return self._sender.send(CONTROLLER, call)

    def list_reassignments(
        self, wanted: Iterable[TopicPartition] | None = None, *, once: bool = False
    ) -> dict[TopicPartition, reassignments.Reassignment]:
        """The reassignments under way; `once` makes one attempt."""
        call = reassignments.list_reassignments(wanted, self._timeout_ms)
        return self._sender.send(CONTROLLER, call, once=once)

    # Configs

    def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[ConfigResource, list[configs.ConfigEntry] | ClientError]:
        """All configs in force of each resource."""
        by_node: dict[int, list[ConfigResource]] = {}
        for resource in resources:
            node = resource.node_id
            by_node.setdefault(ANY_NODE if node is None else node, []).append(resource)
        found: dict[ConfigResource, list[configs.ConfigEntry] | ClientError] = {}
        for node, part in by_node.items():
            self._know(node)
            call = configs.describe_configs(part, synonyms=synonyms, documentation=documentation)
            found.update(self._sender.send(node, call))
        return found

    def alter_configs(
        self,
        resource: ConfigResource,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set configs of a resource; None takes one back to its default."""
        node = resource.node_id
        call = configs.alter_configs(resource, changes, validate_only=validate_only)
        if node is not None:
            self._know(node)
        self._sender.send(CONTROLLER if node is None else node, call)

    def list_config_resources(self, types: Sequence[ResourceType] = ()) -> list[ConfigResource]:
        """Resources of these types that have configs of their own."""
        return self._sender.send(ANY_NODE, configs.list_config_resources(types))

    def _know(self, node: int) -> None:
        """Have metadata name a broker; an id that it does not name is the user's mistake."""
        if node == ANY_NODE or node in self._cluster.metadata.nodes:
            return
        known = [broker.id for broker in self.describe_cluster().brokers]
        if node not in known:
            brokers = ", ".join(map(str, sorted(known)))
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node}", f"the brokers are: {brokers}"
            )
        self._sender.refresh()

    # Groups

    def list_groups(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[groups.GroupListing]:
        """All groups of the cluster, by name; those in one of `states` and of one of `types`."""
        call = groups.list_groups(states, types)
        found: dict[str, groups.GroupListing] = {}
        for answer in self._sender.send_to_brokers(self._broker_ids, call).values():
            found.update((group.group_id, group) for group in answer)
        return [found[name] for name in sorted(found)]

    def _broker_ids(self) -> list[int]:
        return [broker.id for broker in self.describe_cluster().brokers]

    def describe_groups(
        self, names: Iterable[str], *, once: bool = False
    ) -> dict[str, groups.GroupDescription | ClientError]:
        """Groups with their members; one that is not there has the state Dead.

        With `once` there is one attempt, and what may pass (a coordinator that loads) is a result.
        """
        wanted = list(names)
        send = self._sender.send_to_coordinators
        found = send(wanted, groups.describe_consumer_groups, once=once)
        classic = [name for name in wanted if _is_classic(found[name])]
        found.update(send(classic, groups.describe_classic_groups, once=once))
        return found

    def coordinators(self, names: Iterable[str]) -> dict[str, int | ClientError]:
        """The node that coordinates each group."""
        return self._sender.coordinators(list(names))

    def delete_groups(self, names: Iterable[str]) -> dict[str, bool | ClientError]:
        """Delete groups that have no members; True or an error for each."""
        return self._sender.send_to_coordinators(names, groups.delete_groups)

    def delete_offsets(
        self, group: str, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerError | None]:
        """Delete committed offsets of partitions that no member of the group reads."""
        return self._sender.send(CoordinatorOf(group), groups.delete_offsets(group, wanted))

    # Quotas

    def describe_quotas(
        self, components: Mapping[str, str | None], *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by entity; see `quotas.describe_quotas`."""
        return self._sender.send(ANY_NODE, quotas.describe_quotas(components, strict=strict))

    def alter_quotas(
        self,
        entity: QuotaEntity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of an entity; None takes one away."""
        call = quotas.alter_quotas(entity, changes, validate_only=validate_only)
        self._sender.send(CONTROLLER, call)

    # The cluster

    def describe_cluster(self) -> cluster_info.ClusterDescription:
        """The cluster's id, its controller and its brokers."""
        return self._sender.send(ANY_NODE, cluster_info.describe_cluster())

    def describe_quorum(self, *, once: bool = False) -> quorum.QuorumDescription:
        """The metadata quorum; `once` makes one attempt."""
        return self._sender.send(ANY_NODE, quorum.describe_quorum(), once=once)

    def add_voter(
        self, node: int, directory_id: bytes, endpoints: Sequence[quorum.VoterEndpoint]
    ) -> None:
        """Make a controller that follows the metadata log a voter of the quorum."""
        call = quorum.add_voter(node, directory_id, endpoints, self._timeout_ms)
        self._sender.send(ANY_NODE, call)

    def remove_voter(self, node: int, directory_id: bytes) -> None:
        """Take a voter out of the quorum."""
        self._sender.send(ANY_NODE, quorum.remove_voter(node, directory_id))

    def describe_versions(self, node: int = ANY_NODE) -> cluster_info.Versions:
        """APIs and features of a broker."""
        self._know(node)
        return self._sender.send(node, cluster_info.describe_versions())

    def describe_log_dirs(
        self, nodes: Iterable[int], *, once: bool = False
    ) -> dict[int, list[log_dirs.LogDirectory] | ClientError]:
        """The log directories of brokers; with `once` in one attempt, of unknown ones an error."""
        wanted = list(nodes)
        if once:
            self._sender.refresh()
        else:
            for node in wanted:
                self._know(node)
        call = log_dirs.describe_log_dirs()
        return self._sender.send_each(dict.fromkeys(wanted, call), once=once)

    # Transactions

    def list_transactions(
        self, producer_ids: Sequence[int] = ()
    ) -> list[transactions.TransactionListing]:
        """Transactions of these producer ids, of all if none is given, in one attempt."""
        nodes = [broker.id for broker in self.describe_cluster().brokers]
        self._sender.refresh()
        call = transactions.list_transactions(producer_ids)
        found: list[transactions.TransactionListing] = []
        for answer in self._sender.send_each(dict.fromkeys(nodes, call), once=True).values():
            if not isinstance(answer, ClientError):
                found += answer
        return found


def _is_classic(found: object) -> bool:
    """Whether the answer says that the group is not one of the new protocol."""
    if isinstance(found, UnsupportedVersionError):
        return True
    return isinstance(found, BrokerError) and found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
