"""Members of classic groups with their pending responses, and data that consumers embed.

The coordinator of a classic group does not interpret the embedded assignments (ConsumerProtocol).
It reads them when the group becomes a consumer group, and writes them for members of the classic
protocol in a consumer group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from barnabas.coordinator.group.group_base import TOPIC_NAMES_MAX, member_bytes
from barnabas.protocol.codec import decode, decode_from
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.record_frame import encode_coordinator_value, read_prefix
from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription
from barnabas.protocol.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from barnabas.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse


NO_ASSIGNMENT = b""


class MemberTimes(msgspec.Struct, frozen=True):
    """A member's timeouts, in ms."""

    # Maximum time between two heartbeats.
    session_timeout_ms: int
    # Maximum time to rejoin during a rebalance, and then to send SyncGroup.
    rebalance_timeout_ms: int


class MemberIdentity(msgspec.Struct, frozen=True):
    """The identity of a member, constant while it is a member."""

    member_id: str
    # Set if the member is static (KIP-345).
    group_instance_id: str | None
    client_id: str
    # Starts with a slash, as Java prints addresses.
    client_host: str
    protocol_type: str

    @property
    def length(self) -> int:
        """The total length of its names."""
        return (
            len(self.member_id)
            + len(self.group_instance_id or "")
            + len(self.client_id)
            + len(self.client_host)
        )


R = TypeVar("R")


class PendingResponse(Generic[R]):
    """The response to a JoinGroup or SyncGroup. It is sent once.

    It may need the request of another client or a timer first: a JoinGroup has its response when
    all members have joined.
    """

    __slots__ = ("_has_failed", "_send")

    def __init__(self, send: Callable[[R], None]) -> None:
        # Sends the response. None after it was sent.
        self._send: Callable[[R], None] | None = send
        # Whether the response was sent because its write failed.
        self._has_failed = False

    @property
    def is_sent(self) -> bool:
        """Whether the response was sent."""
        return self._send is None

    def complete(self, response: R) -> None:
        """Send the response.

        If the write of the request has failed, the client already has an error: ignore the late
        response.
        """
        if self._has_failed:
            return
        send, self._send = self._send, None
        assert send is not None, f"EveryRequestAnsweredOnce: second response {response!r}"
        send(response)

    def on_written(self, error: ErrorCode, failed: Callable[[ErrorCode], R]) -> None:
        """Send a failure if the write of the request failed and the response is not yet sent.

        Args:
            error: the result of the write.
            failed: returns the response with an error.
        """
        if error is not ErrorCode.NONE and not self.is_sent:
            self.complete(failed(error))
            self._has_failed = True


class ClassicMember:
    """One member, and its pending responses."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "held_bytes",
        "identity",
        "is_new",
        "protocols",
        "times",
    )

    def __init__(
        self,
        identity: MemberIdentity,
        times: MemberTimes,
        protocols: dict[str, bytes],
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.identity = identity
        self.times = times
        # Subscription by assignment protocol, in the member's order of preference.
        self.protocols = protocols
        # Memory accounting of this member. Excludes the assignment, which the size of its record
        # limits.
        self.held_bytes = member_bytes(identity.length, protocols)
        # The leader's assignment in this generation.
        self.assignment = assignment
        # Whether the member has not yet received a generation. It then cannot send heartbeats.
        self.is_new = False
        # Responses of the pending JoinGroup and SyncGroup. None if no request is pending. The
        # group sets and completes them.
        self.awaiting_join: PendingResponse[JoinGroupResponse] | None = None
        self.awaiting_sync: PendingResponse[SyncGroupResponse] | None = None

    @property
    def id(self) -> str:
        """The member id."""
        return self.identity.member_id

    @property
    def is_static(self) -> bool:
        """Whether the member is static and keeps its identity over a restart."""
        return self.identity.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        """Whether its JoinGroup is pending."""
        return self.awaiting_join is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a missing heartbeat is no failure, since the member waits for a response.

        New members do not count: their pending JoinGroup has a time limit, since the coordinator
        does not notice if the client has gone.
        """
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Whether the member supports exactly these protocols, in this order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred protocol among `candidates`."""
        return next(name for name in self.protocols if name in candidates)


# Newer versions only add fields at the end.
_VERSION_MAX = 3
_PREFIX_BYTES = 2
# Size of the number of topics, which follows the version.
_COUNT_BYTES = 4
# Limit of a subscription with its user data and owned partitions. The record of a group must fit
# into a batch of `__consumer_offsets`, which has at most 1 MB by default.
_SUBSCRIPTION_BYTES_MAX = 4 << 20


def read_version(data: bytes) -> int:
    """Return the version of embedded data, at most the latest known one. Raises ProtocolError."""
    version = read_prefix(data)
    if version < 0:
        raise ProtocolError(f"the version of the embedded consumer protocol is {version}")
    return min(version, _VERSION_MAX)


def subscribed_topics(data: bytes) -> list[str]:
    """Return the topics of a consumer's subscription. Raises ProtocolError.

    Each version begins like version 0. The version in the data is ignored, as in Kafka: some
    clients write a version whose fields they omit.
    """
    _check_size(data)
    return decode(ConsumerProtocolSubscription, 0, data, _PREFIX_BYTES).topics


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return a consumer's subscription. Raises ProtocolError."""
    _check_size(data)
    found, _ = decode_from(ConsumerProtocolSubscription, read_version(data), data, _PREFIX_BYTES)
    return found


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a consumer's assignment. Raises ProtocolError."""
    found, _ = decode_from(ConsumerProtocolAssignment, read_version(data), data, _PREFIX_BYTES)
    return found


def _check_size(data: bytes) -> None:
    """Refuse a subscription whose decoding would hold the event loop. Raises ProtocolError."""
    count = int.from_bytes(data[_PREFIX_BYTES : _PREFIX_BYTES + _COUNT_BYTES], signed=True)
    if count > TOPIC_NAMES_MAX or len(data) > _SUBSCRIPTION_BYTES_MAX:
        raise ProtocolError(
            f"a subscription has {count} topics and {len(data)} bytes; at most {TOPIC_NAMES_MAX} "
            f"topics and {_SUBSCRIPTION_BYTES_MAX} bytes are read"
        )


def encode_assignment(partitions: Mapping[str, Collection[int]], version: int) -> bytes:
    """Return a consumer's assignment (partitions by topic name) in a version of the protocol."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(indexes))
            for topic, indexes in sorted(partitions.items())
        ]
    )
    return encode_coordinator_value(assignment, version)
