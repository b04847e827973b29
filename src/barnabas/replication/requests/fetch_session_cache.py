"""All fetch sessions of a broker, with limits (KIP-227, Kafka's FetchSessionCache)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from barnabas.replication.requests.fetch_session import (
    FetchContext,
    FetchSession,
    FullContext,
    IncrementalContext,
    PartitionRequest,
    RefusedContext,
    SessionlessContext,
    size_of,
)
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.requests.idle_partitions import IdlePartitionRegistry
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng
    from barnabas.storage.topic_partition import TopicIdPartition


_SESSION_ID_MAX = 0x7FFF_FFFF
# Limit of all sessions together, in units of about 0.5 KB. Most partitions take one unit.
SIZE_MAX = 500_000
# Limit of partitions in one session, in addition to the partition count of the cluster. It allows
# for partitions that do not exist.
UNKNOWN_MAX = 1_000
# Sessions of consumers with more partitions skip idle ones.
CHECKED_MAX = 1_000


class SessionRequest(msgspec.Struct, frozen=True):
    """The session fields and partitions of a fetch request."""

    session_id: int
    epoch: int
    requested: list[PartitionRequest]
    forgotten: list[TopicIdPartition]
    is_from_follower: bool
    # Whether the version of the request is 13 or above.
    uses_topic_ids: bool
    # Broker id and broker epoch of the follower. -1 from consumers.
    replica_id: int = -1
    replica_epoch: int = -1


class FetchSessionCache:
    """Fetch sessions by id.

    A new session in a full cache evicts the least recently used session if that was idle for
    `eviction_ms`. Otherwise it evicts the session with the lowest priority, if the new session has
    a higher priority. Followers' sessions have a higher priority than consumers' sessions. Between
    sessions of one kind, the larger one has the higher priority. A session younger than
    `eviction_ms` is evicted only by a session of a higher kind.

    The partitions of one session and of all sessions are also limited, since a request may name
    partitions that do not exist. A session that would exceed a limit is closed. Then its client
    sends a full request. If that exceeds a limit too, it is served without a session.
    """

    def __init__(
        self,
        slots_max: int,
        eviction_ms: int,
        clock: Clock,
        rng: Rng,
        idle: IdlePartitionRegistry | None = None,
        partition_count: Callable[[], int] | None = None,
    ) -> None:
        """Create an empty cache.

        Args:
            slots_max: the limit on the number of sessions.
            eviction_ms: the idle time after which any new session may evict a session, in ms.
            clock: gives the times of use.
            rng: draws the session ids.
            idle: registry of idle partitions. None: fetches of all sessions check all partitions.
            partition_count: returns the cluster's partition count. None: no limit per session.
        """
        self._partition_count = partition_count
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._clock = clock
        self._rng = rng
        self._idle = idle
        # Sessions by id, least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        # Sum of the sizes of all sessions.
        self._size = 0
        # Number of evicted sessions since the start.
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session) for session in self._sessions.values())

    def open(
        self, request: SessionRequest, topic_name: Callable[[bytes], str | None]
    ) -> FetchContext:
        """Return the fetch context for a request.

        Args:
            request: the session fields and partitions of the request.
            topic_name: returns the name of a topic by id, for partitions that were added without a
                name.
        """
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._close(request.session_id)
            if request.epoch == FINAL_EPOCH:
                return SessionlessContext(request.requested)
            return FullContext(request.requested, partial(self._make_session, request))
        session = self._session_of(request)
        if isinstance(session, ErrorCode):
            return RefusedContext(session)
        return self._continue_session(session, request, topic_name)

    def _session_of(self, request: SessionRequest) -> FetchSession | ErrorCode:
        """Return the session that a request continues, or the error of the request."""
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != request.uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def open_in_steps(
        self, request: SessionRequest, topic_name: Callable[[bytes], str | None]
    ) -> Generator[None, None, FetchContext]:
        """Open like `open`, for a request that names many partitions.

        The partitions are applied in steps. The request fails if another one changes the session in
        between.
        """
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self.open(request, topic_name)
        for requested, forgotten in (
            *((part, []) for part in in_parts(request.requested)),
            *(([], part) for part in in_parts(request.forgotten)),
        ):
            session = self._session_of(request)
            if isinstance(session, ErrorCode):
                break
            self._update(session, requested, forgotten)
            yield
        context = self.open(replace(request, requested=[], forgotten=[]), topic_name)
        if isinstance(context, SessionlessContext):
            return SessionlessContext(request.requested)
        if context.error is not ErrorCode.NONE or self._check_growth(context.session_id):
            return context
        return RefusedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _update(
        self,
        session: FetchSession,
        requested: list[PartitionRequest],
        forgotten: list[TopicIdPartition],
    ) -> bool:
        """Apply the partitions of a request. Return whether the session is larger than before."""
        size = session.size
        session.update(requested, forgotten)
        growth = session.size - size
        self._size += growth
        return growth > 0

    def _check_growth(self, session_id: int) -> bool:
        """Close a session that exceeds a limit. Return whether it is still open."""
        session = self._sessions[session_id]
        if not self._has_room_for(session.size, self._size):
            self._close(session_id)
            return False
        if session.idle is None and self._idle is not None and len(session) > CHECKED_MAX:
            session.skip_idle(self._idle.open_for_consumer)
        return True

    def _continue_session(
        self,
        session: FetchSession,
        request: SessionRequest,
        topic_name: Callable[[bytes], str | None],
    ) -> FetchContext:
        is_larger = self._update(session, request.requested, request.forgotten)
        if is_larger and not self._check_growth(session.id):
            return RefusedContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not len(session):
            # All partitions are forgotten: end the session and serve this request without one.
            self._close(session.id)
            return SessionlessContext(request.requested)
        session.begin_fetch(self._clock.monotonic_ms(), request.replica_epoch)
        unresolved = session.unresolved()
        if unresolved:
            names = ((topic_id, topic_name(topic_id)) for topic_id in unresolved)
            session.resolve({topic_id: name for topic_id, name in names if name is not None})
        self._sessions[session.id] = self._sessions.pop(session.id)
        return IncrementalContext(session, request.epoch)

    def _make_session(self, request: SessionRequest) -> Generator[None, None, FetchSession | None]:
        """Create a session in steps; return None if there is no room for it."""
        session = self._admit(request)
        if session is None:
            return None
        for part in in_parts(request.requested):
            self._update(session, part, [])
            if not self._check_growth(session.id):
                return None
            yield
            if session.id not in self._sessions:
                # Another session took its place.
                return None
        return session

    def _admit(self, request: SessionRequest) -> FetchSession | None:
        """Return a new session without partitions. None if the cache has no room for it."""
        now_ms = self._clock.monotonic_ms()
        requested = request.requested
        size = sum(size_of(where) for where, _ in requested)
        if not self._has_room_for(size, size):
            return None
        while len(self._sessions) >= self._slots_max or self._size + size > SIZE_MAX:
            if not self._make_room(request.is_from_follower, len(requested), now_ms):
                return None
        session_id = self._rng.randint(1, _SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._rng.randint(1, _SESSION_ID_MAX)
        session = FetchSession(session_id, request.is_from_follower, request.uses_topic_ids, now_ms)
        if self._idle is not None and request.is_from_follower:
            session.skip_idle(partial(self._idle.open, request.replica_id, request.replica_epoch))
        self._sessions[session_id] = session
        return session

    def _has_room_for(self, size: int, total: int) -> bool:
        """Whether a session's size and the total size of all sessions are within limits."""
        if total > SIZE_MAX:
            return False
        return self._partition_count is None or size <= self._partition_count() + UNKNOWN_MAX

    def _make_room(self, is_privileged: bool, size: int, now_ms: float) -> bool:
        """Evict one session if the new session may. Return whether a session was evicted."""
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
