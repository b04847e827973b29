"""Share sessions of members, and the limited cache of a broker's sessions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.storage.topic_partition import TopicIdPartition


# Epoch of the request that begins a session, and of the request that ends it.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFF_FFFF


class ShareSessionKey(NamedTuple):
    """A member of a group. It has one session with each broker."""

    group_id: str
    member_id: str


class SessionPartition(msgspec.Struct):
    """One partition of a session."""

    where: TopicIdPartition
    # Whether the next response includes the partition even without records.
    must_respond: bool


class ShareSession:
    """The partitions of a session, and the epoch of its next request."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(
        self, key: ShareSessionKey, partitions: Iterable[TopicIdPartition], connection: object
    ) -> None:
        self.key = key
        # The connection that began the session, which ends with it.
        self.connection = connection
        # Epoch of the next request. Incremented by each accepted request.
        self.epoch = next_epoch(INITIAL_EPOCH)
        # By topic id and number. Partitions whose records were sent move to the end.
        self.partitions = {
            (each.topic_id, each.partition): SessionPartition(each, False) for each in partitions
        }

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[tuple[bytes, int]]
    ) -> None:
        """Add and remove partitions."""
        for where in added:
            key = (where.topic_id, where.partition)
            if key not in self.partitions:
                self.partitions[key] = SessionPartition(where, True)
        for key in forgotten:
            self.partitions.pop(key, None)

    def note_sent(self, where: TopicIdPartition, has_error: bool, has_records: bool) -> bool:
        """Record a result that is about to be sent. Return whether the response includes it.

        A partition without records or errors is omitted, except directly after an error.
        """
        key = (where.topic_id, where.partition)
        known = self.partitions.get(key)
        if known is None:
            return True
        is_included = known.must_respond or has_error or has_records
        known.must_respond = has_error
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        return is_included


def next_epoch(epoch: int) -> int:
    """Return the epoch of the following request. After the largest one comes 1."""
    return 1 if epoch >= _EPOCH_MAX else epoch + 1


# A session may have this many partitions more than the cluster, for unknown partitions.
UNKNOWN_MAX = 1_000


class ShareSessionCache:
    """Sessions by group and member. A session ends with its connection.

    A broker refuses new sessions at its limit. It never evicts the session of a connected member.
    """

    def __init__(
        self,
        sessions_max: int,
        partition_count: Callable[[], int],
        on_gone: Callable[[ShareSession], None],
        on_group_empty: Callable[[str], None],
    ) -> None:
        """Create an empty cache.

        Args:
            sessions_max: limit on the number of sessions.
            partition_count: returns the number of partitions of the cluster.
            on_gone: called with a session whose connection has closed.
            on_group_empty: called after a connection has closed, with a group without sessions.
        """
        self._sessions_max = sessions_max
        self._partition_count = partition_count
        self._on_gone = on_gone
        self._on_group_empty = on_group_empty
        self._sessions: dict[ShareSessionKey, ShareSession] = {}
        # The sessions that were begun on each connection.
        self._connections: dict[object, dict[ShareSessionKey, None]] = {}
        # Number of sessions of each group.
        self._groups: dict[str, int] = {}
        # The group of the last session that was begun on each connection, also if that has ended.
        self._last_groups: dict[object, str] = {}
        # Number of sessions that ended with their connection.
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self, key: ShareSessionKey, partitions: Sequence[TopicIdPartition], connection: object
    ) -> ShareSession | ErrorCode:
        """Begin a session. It replaces the member's old one, whose records stay acquired."""
        self.remove(key)
        if len(set(partitions)) < len(partitions):
            # Kafka also fails if a partition is repeated in the first request of a session.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if len(self._sessions) >= self._sessions_max:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        if self.is_too_large(len(partitions)):
            return ErrorCode.INVALID_REQUEST
        session = self._sessions[key] = ShareSession(key, partitions, connection)
        self._connections.setdefault(connection, {})[key] = None
        self._last_groups[connection] = key.group_id
        self._groups[key.group_id] = self._groups.get(key.group_id, 0) + 1
        return session

    def advance(self, key: ShareSessionKey, epoch: int) -> ShareSession | ErrorCode:
        """Return the session of a request and expect the next epoch from then on.

        The last request of a session does not change it.
        """
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = next_epoch(epoch)
        return session

    def update(
        self,
        session: ShareSession,
        added: Sequence[TopicIdPartition],
        forgotten: Sequence[tuple[bytes, int]],
    ) -> ErrorCode:
        """Add and remove partitions of a session."""
        if added and self.is_too_large(len(session.partitions) + len(added)):
            return ErrorCode.INVALID_REQUEST
        session.update(added, forgotten)
        return ErrorCode.NONE

    def is_too_large(self, count: int) -> bool:
        """Whether a session may not have this number of partitions."""
        return count > UNKNOWN_MAX and count > UNKNOWN_MAX + self._partition_count()

    def remove(self, key: ShareSessionKey) -> ShareSession | None:
        """End a session and return it; None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._connections[session.connection]
            del keys[key]
            if not keys:
                del self._connections[session.connection]
            self._groups[key.group_id] -= 1
            if not self._groups[key.group_id]:
                del self._groups[key.group_id]
        return session

    def has_group(self, group_id: str) -> bool:
        """Whether the group has a session."""
        return group_id in self._groups

    def clear(self) -> None:
        """End all sessions."""
        self._sessions.clear()
        self._connections.clear()
        self._groups.clear()

    def on_disconnected(self, connection: object) -> None:
        """End the sessions that were begun on a connection."""
        last = self._last_groups.pop(connection, None)
        if last is None:
            return
        groups = {last: None}
        for key in list(self._connections.get(connection, ())):
            session = self.remove(key)
            assert session is not None, f"{key} has a session"
            self.evictions += 1
            groups[key.group_id] = None
            self._on_gone(session)
        for group_id in groups:
            if not self.has_group(group_id):
                self._on_group_empty(group_id)
