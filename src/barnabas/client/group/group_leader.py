"""The leader of a classic group: its assignors, its assignment, and the topics that it watches.

Other members watch only the topics that they subscribe to. The leader rejoins when a topic of any
member has changed: its number of partitions, its racks (KIP-881), or whether it exists. The
assignors come from `partition.assignment.strategy`.

Members exchange payloads of the consumer protocol, versions 0 to 3: JoinGroup carries a
subscription and SyncGroup an assignment, which the broker does not interpret. Both begin with a
version. A reader uses the known part of a later version (KIP-429, KIP-881).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from barnabas.client.errors import ClientConfigError, ClientError, broker_error
from barnabas.client.group.assignor import (
    AssignablePartition,
    Assignment,
    Assignor,
    AssignorError,
    MemberSubscription,
    RebalanceProtocol,
)
from barnabas.client.topic_partition import TopicPartition, numbers_by_topic
from barnabas.client.user_code import UserCode
from barnabas.protocol.codec import decode_from, encode_bytes
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.groups import SyncGroupRequestAssignment
from barnabas.protocol.records.classic_groups import (
    ConsumerProtocolSubscription,
    TopicPartition as OwnedTopic,
)
from barnabas.protocol.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition as AssignedTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.client.connections.cluster import Cluster
    from barnabas.protocol.messages.groups import JoinGroupResponse
    from barnabas.runtime.clock import Cancellable


__all__ = [
    "BUILT_IN",
    "PROTOCOL_TYPE",
    "VERSION_MAX",
    "GroupLeader",
    "common_protocol",
    "read_assignment",
    "read_subscription",
    "resolve_assignors",
    "write_assignment",
    "write_subscription",
]

# The protocol type of groups with these payloads.
PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3
_VERSION_BYTES = 2


def write_subscription(subscription: MemberSubscription, version: int = VERSION_MAX) -> bytes:
    """Serialize a subscription for JoinGroup; older versions omit fields that they lack."""
    owned = [
        OwnedTopic(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(subscription.owned_partitions).items()
    ]
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def read_subscription(payload: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Parse a member's subscription.

    Args:
        payload: The serialized subscription.
        instance_id: The id of a static member, which is a separate field of JoinGroup.

    Raises:
        ProtocolError: The payload is malformed.
    """
    version = _version(payload)
    found, _ = decode_from(ConsumerProtocolSubscription, version, payload, _VERSION_BYTES)
    owned = [TopicPartition(t.topic, n) for t in found.owned_partitions for n in t.partitions]
    return MemberSubscription(
        found.topics, owned, found.user_data, found.generation_id, found.rack_id, instance_id
    )


def write_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Serialize an assignment for SyncGroup."""
    topics = [
        AssignedTopic(topic=topic, partitions=numbers)
        for topic, numbers in numbers_by_topic(assignment.partitions).items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=assignment.user_data)
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def read_assignment(payload: bytes) -> Assignment:
    """Parse an assignment; an empty payload means no partitions.

    Brokers send an empty payload for a member without an assignment. Duplicate partitions count
    once.

    Raises:
        ProtocolError: The payload is malformed.
    """
    if not payload:
        return Assignment(())
    version = _version(payload)
    found, _ = decode_from(ConsumerProtocolAssignment, version, payload, _VERSION_BYTES)
    partitions = dict.fromkeys(
        TopicPartition(t.topic, n) for t in found.assigned_partitions for n in t.partitions
    )
    for tp in partitions:
        if tp.partition < 0:
            raise ProtocolError(f"invalid partition {tp.partition} of topic {tp.topic}")
    return Assignment(list(partitions), found.user_data)


def _version(payload: bytes) -> int:
    if len(payload) < _VERSION_BYTES:
        raise ProtocolError(f"a payload of {len(payload)} bytes has no version")
    version = int.from_bytes(payload[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise ProtocolError(f"payload version {version}")
    return min(version, VERSION_MAX)


_KEY = "partition.assignment.strategy"
# Classes in `built_in_assignors`, by the name that members agree on.
BUILT_IN: Mapping[str, str] = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
# Java class names, as configurations for Java, kafka-python and librdkafka contain them.
_OTHER_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
# Called once with the assignments for SyncGroup, or with an error.
OnAssigned: TypeAlias = "Callable[[list[SyncGroupRequestAssignment], BaseException | None], None]"
Topics: TypeAlias = "dict[str, tuple[AssignablePartition, ...]]"
# This assignor never assigns a partition before its owner has given it up.
_CHECKS_ITSELF = "cooperative-sticky"


def resolve_assignors(given: Sequence[object]) -> dict[str, Assignor]:
    """Return new assignors by name, in the given order.

    Args:
        given: Names, classes (created without arguments) or objects.

    Raises:
        ClientConfigError: A name is unknown, an object is not an assignor, or a name occurs twice.
    """
    found: dict[str, Assignor] = {}
    for each in given:
        assignor = _resolve(each)
        if assignor.name in found:
            raise ClientConfigError(f"{_KEY} has {assignor.name} twice")
        found[assignor.name] = assignor
    if not found:
        raise ClientConfigError(f"{_KEY} is empty: name an assignor")
    return found


def common_protocol(assignors: Mapping[str, Assignor]) -> RebalanceProtocol:
    """Return the most advanced rebalance protocol that all assignors support.

    Raises:
        ClientConfigError: The assignors have no common protocol.
    """
    common = set(RebalanceProtocol)
    for assignor in assignors.values():
        common &= set(assignor.protocols)
    if not common:
        names = ", ".join(assignors)
        raise ClientConfigError(f"{_KEY}: {names} have no rebalance protocol in common")
    return max(common)


def _resolve(given: object) -> Assignor:
    if isinstance(given, str):
        name = _OTHER_NAMES.get(given, given)
        if name not in BUILT_IN:
            known = ", ".join(BUILT_IN)
            raise ClientConfigError(f"{_KEY}: {given} is neither a class nor one of {known}")
        # Only members of classic groups need them.
        from barnabas.client.group import built_in_assignors

        given = getattr(built_in_assignors, BUILT_IN[name])
    made = given() if isinstance(given, type) else given
    if not isinstance(getattr(made, "name", None), str) or not hasattr(made, "assign"):
        raise ClientConfigError(f"{_KEY}: {given!r} has no `name` or no `assign`: extend Assignor")
    return cast("Assignor", made)


class GroupLeader:
    """Assigns partitions and watches the topics, between `assign` and `resign`.

    Args:
        cluster: The cluster; its metadata is the basis of assignments.
        assignors: This member's assignors, by name.
        protocol: The rebalance protocol of the group.
        on_change: Called after each refresh of the assigned topics' metadata.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignors: Mapping[str, Assignor],
        protocol: RebalanceProtocol,
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._assignors = assignors
        self._protocol = protocol
        self._on_change = on_change
        # The topics as of the last assignment; None while this member is not the leader.
        self._assigned: Topics | None = None
        # `MetadataCache.generation` at the last comparison.
        self._compared = -1
        # Names of all topics that members subscribe to or were assigned.
        self._names: set[str] = set()
        self._refresh_timer: Cancellable | None = None
        # Incremented by `resign`; responses for an earlier assignment are ignored.
        self._era = 0

    def assign(self, joined: JoinGroupResponse, on_assigned: OnAssigned) -> None:
        """Assign partitions to all members; first request metadata of unknown topics.

        Args:
            joined: The leader's JoinGroup response; it may request to skip the assignment
                (KIP-814).
            on_assigned: Called with the result, possibly before this method returns.
        """
        self.resign()
        era = self._era
        try:
            members = {
                member.member_id: read_subscription(member.metadata, member.group_instance_id)
                for member in joined.members
            }
        except ProtocolError as error:
            on_assigned([], ClientError(f"a member's subscription cannot be read: {error}"))
            return
        self._names = {topic for member in members.values() for topic in member.topics}

        def on_refreshed(_none: None, error: ClientError | None) -> None:
            if era != self._era:
                return
            if error is not None:
                on_assigned([], error)
            else:
                self._assign(joined, members, on_assigned)

        if self._names - self._cluster.metadata.topics.keys():
            self._cluster.refresh(self._names, on_refreshed)
        else:
            self._assign(joined, members, on_assigned)

    def resign(self) -> None:
        """Stop watching the topics, because this member is no longer the leader or rejoins."""
        self._era += 1
        self._assigned = None
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
            self._refresh_timer = None

    def is_outdated(self) -> bool:
        """Return whether the topics have changed since the assignment; True only once."""
        metadata = self._cluster.metadata
        if self._assigned is None or self._compared == metadata.generation:
            return False
        self._compared = metadata.generation
        if self._seen(self._topics()) == self._seen(self._assigned):
            return False
        self.resign()
        return True

    def _assign(
        self,
        joined: JoinGroupResponse,
        members: Mapping[str, MemberSubscription],
        on_assigned: OnAssigned,
    ) -> None:
        topics = self._topics()
        decided: dict[str, Assignment] = {}
        if not joined.skip_assignment:
            with UserCode() as code:
                decided = self._decide(joined.protocol_name, topics, members)
            if code.error is not None:
                on_assigned([], code.error)
                return
            self._names |= {tp.topic for each in decided.values() for tp in each.partitions}
        self._assigned = self._topics()
        self._compared = self._cluster.metadata.generation
        self._refresh_later()
        on_assigned(
            [
                SyncGroupRequestAssignment(member_id=name, assignment=write_assignment(assignment))
                for name, assignment in decided.items()
            ],
            None,
        )

    def _decide(
        self, protocol_name: str | None, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> dict[str, Assignment]:
        assignor = self._assignors.get(protocol_name or "")
        if assignor is None:
            words = (
                f"the group chose {protocol_name}, which is not in partition.assignment.strategy"
            )
            raise broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, words)
        found = assignor.assign(topics, members)
        decided = {name: found.get(name, Assignment(())) for name in members}
        if self._protocol is RebalanceProtocol.COOPERATIVE and assignor.name != _CHECKS_ITSELF:
            _check_nothing_owned_is_added(members, decided)
        return decided

    def _topics(self) -> Topics:
        """Return the group's topics as of the current metadata."""
        nodes = self._cluster.metadata.nodes
        found: Topics = {}
        for name in sorted(self._names):
            topic = self._cluster.metadata.topics.get(name)
            if topic is not None:
                found[name] = tuple(
                    AssignablePartition(number, tuple(_rack(nodes, each) for each in info.replicas))
                    for number, info in sorted(topic.partitions.items())
                )
        return found

    def _seen(self, topics: Topics) -> dict[str, Any]:
        """Return the properties of topics that trigger a rebalance when they change.

        Racks count only if client.rack is set.
        """
        if self._cluster.config.client_rack:
            return {
                name: [frozenset(each.racks) for each in partitions]
                for name, partitions in topics.items()
            }
        return {name: len(partitions) for name, partitions in topics.items()}

    def _refresh_later(self) -> None:
        """Schedule a metadata refresh of the group's topics after metadata.max.age.ms.

        If a topic does not exist yet, the refresh follows after at most retry.backoff.max.ms.
        """
        config = self._cluster.config
        age_ms = max(1, config.metadata_max_age_ms)
        if self._names - self._cluster.metadata.topics.keys():
            age_ms = max(1, min(age_ms, config.retry_backoff_max_ms))
        timer = self._cluster.runtime.timer
        self._refresh_timer = timer.call_later(age_ms, self._refresh)

    def _refresh(self) -> None:
        era = self._era

        def on_refreshed(_none: None, _error: ClientError | None) -> None:
            if era == self._era:
                self._refresh_later()
                self._on_change()

        self._cluster.refresh(self._names, on_refreshed)


def _rack(nodes: Mapping[int, Any], node_id: int) -> str | None:
    node = nodes.get(node_id)
    return None if node is None else node.rack


def _check_nothing_owned_is_added(
    members: Mapping[str, MemberSubscription], decided: Mapping[str, Assignment]
) -> None:
    """Check that no partition moves to another member before its owner gave it up (KIP-429).

    Raises:
        AssignorError: A partition moves although its owner still has it.
    """
    owner = {tp: name for name, member in members.items() for tp in member.owned_partitions}
    moved: list[TopicPartition] = [
        tp
        for name, assignment in decided.items()
        for tp in assignment.partitions
        if owner.get(tp, name) != name
    ]
    if moved:
        raise AssignorError(
            f"the assignor gave {_words(moved)} to another member while their owners have them: "
            f"under the cooperative protocol it must omit them for one rebalance"
        )


def _words(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(str(tp) for tp in sorted(partitions))
