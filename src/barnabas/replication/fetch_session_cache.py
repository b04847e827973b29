"""All fetch sessions of a broker, limited in number (KIP-227, Kafka's FetchSessionCache)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetch_context import (
    FetchContext,
    FullContext,
    IncrementalContext,
    RefusedContext,
    SessionlessContext,
)
from barnabas.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    Asked,
    FetchSession,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.quiet_partitions import QuietPartitions
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng
    from barnabas.storage.topic_partition import TopicIdPartition

_SESSION_ID_MAX = 0x7FFF_FFFF
# Of all sessions together, in units of about half a kilobyte, most of them a partition.
SIZE_MAX = 500_000
# Partitions of one session that the cluster does not have, beside as many as it has.
UNKNOWN_MAX = 1_000


class SessionRequest(msgspec.Struct, frozen=True):
    """What a fetch request says about its session."""

    session_id: int
    epoch: int
    asked: list[Asked]
    forgotten: list[TopicIdPartition]
    is_from_follower: bool
    # Fetch versions from 13 on.
    uses_topic_ids: bool
    # Of the follower, and the epoch of its registration; -1 from consumers.
    replica_id: int = -1
    replica_epoch: int = -1


class FetchSessionCache:
    """Sessions by id.

    When it is full, a new session takes the place of the one used longest ago if that was not used
    for `eviction_ms`; else of the least worthy one, if the new one is worthier: a follower's before
    a consumer's, then the larger one. A session younger than `eviction_ms` gives way only to a
    worthier kind.

    The partitions of all sessions together are limited too, and so are those of one: a request may
    name partitions that do not exist. A session that would grow beyond is forgotten, which has its
    fetcher ask for all partitions again; if there is no room for these either, it does so without a
    session.
    """

    def __init__(
        self,
        slots_max: int,
        eviction_ms: int,
        clock: Clock,
        rng: Rng,
        quiet: QuietPartitions | None = None,
        partition_count: Callable[[], int] | None = None,
    ) -> None:
        """Args:
        partition_count: of the cluster; None: a session may have as many as all have room for.
        """
        self._partition_count = partition_count
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._clock = clock
        self._rng = rng
        # None: followers' sessions look at all their partitions each time, as consumers' do.
        self._quiet = quiet
        # In the order of their last use.
        self._sessions: dict[int, FetchSession] = {}
        # The sum of their sizes.
        self._size = 0
        # Sessions that had to give way since the start.
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions of all sessions together."""
        return sum(len(session) for session in self._sessions.values())

    def open(
        self, request: SessionRequest, topic_name: Callable[[bytes], str | None]
    ) -> FetchContext:
        """The context of one request.

        Args:
            topic_name: name of a topic by id, for partitions that had none when they were added.
        """
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._close(request.session_id)
            if request.epoch == FINAL_EPOCH:
                return SessionlessContext(request.asked)
            return FullContext(request.asked, lambda asked: self._make_session(request, asked))
        session = self._sessions.get(request.session_id)
        if session is None:
            return RefusedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.epoch:
            return RefusedContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != request.uses_topic_ids:
            return RefusedContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._go_on(session, request, topic_name)

    def _go_on(
        self,
        session: FetchSession,
        request: SessionRequest,
        topic_name: Callable[[bytes], str | None],
    ) -> FetchContext:
        self._size -= session.size
        session.update(request.asked, request.forgotten)
        self._size += session.size
        if request.asked and not self._has_room_for(session.size, self._size):
            self._close(session.id)
            return RefusedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not len(session):
            # The last partition is forgotten: the session ends, and the request stands for itself.
            self._close(session.id)
            return SessionlessContext(request.asked)
        session.begin_fetch(self._clock.monotonic_ms(), request.replica_epoch)
        unresolved = session.unresolved()
        if unresolved:
            names = ((topic_id, topic_name(topic_id)) for topic_id in unresolved)
            session.resolve({topic_id: name for topic_id, name in names if name is not None})
        self._sessions[session.id] = self._sessions.pop(session.id)
        return IncrementalContext(session, request.epoch)

    def _make_session(self, request: SessionRequest, asked: list[Asked]) -> FetchSession | None:
        now_ms = self._clock.monotonic_ms()
        size = sum(size_of(where) for where, _ in asked)
        if not self._has_room_for(size, size):
            return None
        while len(self._sessions) >= self._slots_max or self._size + size > SIZE_MAX:
            if not self._make_room(request.is_from_follower, len(asked), now_ms):
                return None
        session_id = self._rng.randint(1, _SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _SESSION_ID_MAX)
        session = FetchSession(session_id, request.is_from_follower, request.uses_topic_ids, now_ms)
        if self._quiet is not None and request.is_from_follower:
            session.follow(self._quiet, request.replica_id, request.replica_epoch)
        session.update(asked, ())
        self._sessions[session_id] = session
        self._size += session.size
        return session

    def _has_room_for(self, size: int, total: int) -> bool:
        """Whether a session may have that size, and all may have that size together."""
        if total > SIZE_MAX:
            return False
        return self._partition_count is None or size <= self._partition_count() + UNKNOWN_MAX

    def _make_room(self, is_privileged: bool, size: int, now_ms: float) -> bool:
        """Have one session give way, if it may; returns whether one did."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            return self._evict(oldest)
        candidates = [
            session
            for session in self._sessions.values()
            if (is_privileged and not session.is_privileged)
            or now_ms - session.created_ms > self._eviction_ms
        ]
        if not candidates:
            return False
        least = min(candidates, key=lambda each: (each.is_privileged, len(each), each.id))
        if (is_privileged, size) > (least.is_privileged, len(least)):
            return self._evict(least)
        return False

    def _evict(self, session: FetchSession) -> bool:
        self._close(session.id)
        self.evictions += 1
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._size -= session.size
            session.close()
