"""The base of all groups: members in limited memory, counters, and refusals of requests.

A member sends a subscription for each of its protocols, and chooses their number and size. Kafka
limits only the size of a request and `group.max.size`. The record of a group has the subscriptions
of one protocol and all assignments, and must fit into `max.message.bytes` of `__consumer_offsets`
(1 MB). The limits here are far above that.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class RefusalError(Exception):
    """The request is refused, and its records are not written."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


# Member epochs with which a client leaves the group, or a static member leaves for a while.
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
# The member epoch with which a client joins the group.
JOIN_EPOCH = 0


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a consumer, share or streams group.

    A change creates a new object, and its record replaces the old one.
    """

    member_id: str
    # Epoch of the target assignment that the member has reached. -2 for a static member that has
    # left for a while.
    member_epoch: int = 0
    # The epoch before that. A client that missed the last response still sends it.
    previous_member_epoch: int = -1
    # None for dynamic members. Share groups have no others.
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    # Starts with a slash, as Java prints addresses.
    client_host: str = ""
    # Time in ms for giving up partitions or tasks. -1 until the client sends it, and in share
    # groups.
    rebalance_timeout_ms: int = -1

    @property
    def must_revoke(self) -> bool:
        """Whether the client must give up partitions or tasks before it gets a new epoch."""
        return False


M = TypeVar("M", bound=GroupMember)


def invalid_request(message: str) -> RefusalError:
    """Return the error for a request with invalid fields."""
    return RefusalError(ErrorCode.INVALID_REQUEST, message)


def check_ids(
    member_id: str | None, group_id: str, instance_id: str | None, rack_id: str | None
) -> None:
    """Check that no id in a heartbeat is blank. Raises RefusalError."""
    if member_id is not None and not member_id.strip():
        raise invalid_request("The member id is blank.")
    if not group_id.strip():
        raise invalid_request("The group id is blank.")
    if instance_id is not None and not instance_id.strip():
        raise invalid_request("The instance id is blank.")
    if rack_id is not None and not rack_id.strip():
        raise invalid_request("The rack id is blank.")


def check_static_leave(epoch: int, instance_id: str | None) -> None:
    """Check the fields of a heartbeat with an epoch below LEAVE_EPOCH. Raises RefusalError."""
    if epoch < STATIC_LEAVE_EPOCH:
        raise invalid_request(f"The member epoch {epoch} is below -2.")
    if instance_id is None:
        raise invalid_request(
            "Epoch -2 is only for static members, but the request has no instance id."
        )


def unknown_member(group: Group, member_id: str) -> RefusalError:
    """Return the error for a member id that the group does not have."""
    return RefusalError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )


def check_instance(known: M | None, member_id: str, instance_id: str) -> M:
    """Return the static member if it has that member id. Raises RefusalError."""
    if known is None:
        raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise RefusalError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance id {instance_id} now belongs to member {known.member_id}, which replaced "
            f"member {member_id}.",
        )
    return known


def unreleased_instance(known: GroupMember, member_id: str) -> RefusalError:
    """Return the error for a client that joins as a static member that has not left."""
    return RefusalError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Instance id {known.instance_id} still belongs to member {known.member_id}. Member "
        f"{member_id} can join when that member has left or its session has expired.",
    )


def fenced_epoch(member_id: str, received: int, known: int) -> RefusalError:
    """Return the error for a heartbeat whose member epoch is not that of the member."""
    return RefusalError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The heartbeat has epoch {received}, but member {member_id} has epoch {known}. Give up "
        "all partitions and tasks, and join again.",
    )


# Topic names of a subscription, and topics of which a member owns partitions. A heartbeat with so
# many takes about 15 ms. A regular expression may match more topics.
TOPIC_NAMES_MAX = 10_000
# Total length of the topic names of a subscription: enough for TOPIC_NAMES_MAX valid names.
NAMES_LENGTH_MAX = TOPIC_NAMES_MAX * 249


def check_topic_names(names: Collection[str] | None) -> None:
    """Check the number and length of topic names in a subscription. Raises RefusalError."""
    if names is not None and len(names) > TOPIC_NAMES_MAX:
        message = f"A member may subscribe to at most {TOPIC_NAMES_MAX} topics by name."
        raise invalid_request(message)
    if names is not None and sum(map(len, names)) > NAMES_LENGTH_MAX:
        message = f"Topic names of a member may have {NAMES_LENGTH_MAX} characters in total."
        raise invalid_request(message)


# Limit of one group.
GROUP_BYTES_MAX = 64 << 20
# Limit of all groups that this broker coordinates.
TOTAL_BYTES_MAX = 256 << 20
# Limit on the protocols of one member. Kafka has none. All known clients together have fewer than
# ten assignors. One turn of the event loop visits each protocol several times.
PROTOCOLS_MAX = 500
# Limit on the issued but unused member ids of one group.
PENDING_IDS_MAX = 1_000
# Estimated overhead of a member and of each of its protocols.
_MEMBER_BYTES = 1_000
_PROTOCOL_BYTES = 100


class GroupMemory:
    """Memory accounting for the members of all groups of this broker."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        # Sum of `Group.held_bytes`. The groups update it.
        self.held_bytes = 0

    def check(self, group_bytes: int, growth: int) -> ErrorCode:
        """Return whether a group may grow.

        Args:
            group_bytes: the group's current size.
            growth: the requested growth.

        Returns:
            NONE; GROUP_MAX_SIZE_REACHED at the limit of the group; or COORDINATOR_NOT_AVAILABLE,
            which clients retry, at the limit of all groups.
        """
        if growth <= 0:
            return ErrorCode.NONE
        if group_bytes + growth > GROUP_BYTES_MAX:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if self.held_bytes + growth > TOTAL_BYTES_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE


class Group:
    """A group of any kind, with the memory that is accounted for it.

    It has no metaclass, since a request compares the class of its group.
    """

    # Kafka's name of the kind, in ListGroups and in errors.
    kind: ClassVar[str]
    # Whether the offsets of the group are committed to the group coordinator.
    commits_offsets: ClassVar[bool] = True

    __slots__ = ("group_id", "held_bytes", "memory")

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        self.group_id = group_id
        # Memory accounting of all groups of this broker.
        self.memory = memory
        # Bytes of the members of this group. Changed by `_resize` only, together with
        # `memory.held_bytes`. Invariant: 0 <= held_bytes <= memory.held_bytes.
        self.held_bytes = 0

    @property
    @abstractmethod
    def has_members(self) -> bool:
        """Whether the group has members."""

    @property
    def has_only_offsets(self) -> bool:
        """Whether the group never had members, and has no record of its own."""
        return False

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets are kept."""

    def end(self, now_ms: int, error: ErrorCode) -> None:
        """End a removed group: its pending requests fail with `error`."""

    # Memory.

    def release_memory(self) -> None:
        """Release the memory of a group that is removed with its members."""
        self._resize(-self.held_bytes)

    def reclaim_memory(self, held_bytes: int) -> None:
        """Account for a removed group that is brought back."""
        self._resize(held_bytes)

    def _resize(self, growth: int) -> None:
        self.held_bytes += growth
        self.memory.held_bytes += growth
        assert 0 <= self.held_bytes <= self.memory.held_bytes, (
            f"group={self.group_id} held_bytes={self.held_bytes} "
            f"held_bytes_of_all_groups={self.memory.held_bytes} growth={growth}"
        )


def member_bytes(names: int, protocols: Mapping[str, bytes]) -> int:
    """Return the estimated memory size of a member, in bytes.

    Args:
        names: total length of its ids and names.
        protocols: subscription by protocol.
    """
    size = _MEMBER_BYTES + names
    for name, data in protocols.items():
        size += len(name) + len(data) + _PROTOCOL_BYTES
    return size


def pending_id_bytes(member_id: str) -> int:
    """Return the estimated memory size of an issued member id, in bytes."""
    return _MEMBER_BYTES + len(member_id)


class GroupMetrics:
    """Counters of all shards together, since the start."""

    __slots__ = (
        "completed_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
        "share_rebalances",
        "streams_rebalances",
    )

    def __init__(self) -> None:
        # Rebalances whose assignments all members received.
        self.completed_rebalances = 0
        # Increases of the epochs of consumer groups.
        self.consumer_rebalances = 0
        # Increases of the epochs of share groups by heartbeats.
        self.share_rebalances = 0
        # Increases of the epochs of streams groups by heartbeats.
        self.streams_rebalances = 0
        # Number of offsets, not of requests.
        self.offset_commits = 0
        # Deletions by administrators, or with a group or topic.
        self.offset_deletions = 0
        self.offset_expirations = 0
