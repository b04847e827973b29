"""The partitions of a fetch request and of its response, with or without a session (KIP-227).

`FetchSessionCache.open` returns the context. If its `error` is set, the response consists of this
error. Otherwise read `partitions()` and pass the results to `update`. Send its return value with
the `session_id` and `error` that the context has after that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import NO_SESSION, next_epoch
from barnabas.replication.partition.fetch_params import (
    UNKNOWN,
    FetchPartitionData,
    SessionKey,
    SessionPartition,
)
from barnabas.storage.topic_partition import TopicIdPartition
from barnabas.waiting.steps import in_parts, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.requests.idle_partitions import IdlePartitionSet


PartitionRequest = tuple[TopicIdPartition, FetchPartitionData]
PartitionResult = tuple[TopicIdPartition, "FetchResult"]


def size_of(where: TopicIdPartition) -> int:
    """Return the size of a session's partition, in units of about 0.5 KB.

    An invalid topic name may be 32 KB long.
    """
    return 1 + (len(where.topic) >> 8)


class FetchSession:
    """The partitions of one session, in the order in which they are read next."""

    __slots__ = (
        "_active",
        "_partitions",
        "created_ms",
        "epoch",
        "id",
        "idle",
        "is_privileged",
        "last_used_ms",
        "size",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, is_privileged: bool, uses_topic_ids: bool, now_ms: float
    ) -> None:
        self.id = session_id
        # Whether this is a follower's session, which is evicted last.
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        # The epoch that the next request must carry.
        self.epoch = 1
        self._partitions: dict[SessionKey, SessionPartition] = {}
        # Size of the partitions, in units of about 0.5 KB.
        self.size = 0
        # Partitions that each fetch checks: all, except the idle ones.
        self._active = self._partitions
        self.idle: IdlePartitionSet | None = None

    def skip_idle(
        self, open_set: Callable[[dict[SessionKey, SessionPartition]], IdlePartitionSet | None]
    ) -> None:
        """Keep idle partitions apart from now on. All partitions are active at first.

        Args:
            open_set: returns the idle part of the session, given the active partitions. None if the
                session must check all partitions.
        """
        active = dict(self._partitions)
        self.idle = open_set(active)
        if self.idle is not None:
            self._active = active

    def close(self) -> None:
        """Release the idle partitions at the end of the session."""
        if self.idle is not None:
            self.idle.close()

    def __len__(self) -> int:
        return len(self._partitions)

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Start a request of the session. `update` has applied the partitions of the request."""
        self.epoch = next_epoch(self.epoch)
        self.last_used_ms = now_ms
        if self.idle is not None:
            self.idle.begin_fetch(now_ms, replica_epoch)

    def _key(self, where: TopicIdPartition) -> SessionKey:
        return (where.topic_id if self.uses_topic_ids else where.topic, where.partition)

    def update(
        self, requested: Iterable[PartitionRequest], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and change the requested partitions, then remove the forgotten ones."""
        for where, data in requested:
            key = self._key(where)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = self._active[key] = SessionPartition(key, where, data)
                self.size += size_of(where)
            else:
                if self.idle is not None:
                    self.idle.touch(known)
                if known.requested.current_leader_epoch != data.current_leader_epoch:
                    # The follower drops the data that it requested in an earlier leader epoch.
                    known.high_watermark = UNKNOWN
                if where != known.where:
                    self.size += size_of(where) - size_of(known.where)
                    known.where = where
                known.requested = data
        for where in forgotten:
            key = self._key(where)
            removed = self._partitions.pop(key, None)
            if removed is None:
                continue
            self.size -= size_of(removed.where)
            if self.idle is not None:
                self.idle.touch(removed)
                del self._active[key]

    def partitions(self) -> list[PartitionRequest]:
        """Return the partitions to check, in order."""
        return [(each.where, each.requested) for each in self._active.values()]

    def resolve(self, names: dict[bytes, str]) -> None:
        """Set the topic names of partitions whose topic id was unknown before."""
        for each in self._active.values():
            if not each.where.topic and each.where.topic_id in names:
                # The size does not change, since names of existing topics are short.
                each.where = TopicIdPartition(
                    each.where.topic_id, names[each.where.topic_id], each.where.partition
                )

    def unresolved(self) -> list[bytes]:
        """Return the ids of topics whose name is not known."""
        missing = [each.where.topic_id for each in self._active.values() if not each.where.topic]
        return list(dict.fromkeys(missing)) if missing and self.uses_topic_ids else []

    def note_all(self, results: Iterable[PartitionResult]) -> None:
        """Record the results of a full response."""
        for where, result in results:
            partition = self._partitions.get(self._key(where))
            if partition is not None:
                partition.note(result)
                if self.idle is not None:
                    self.idle.maybe_mark_idle(partition, result)

    def keep_changed(self, results: Iterable[PartitionResult]) -> list[PartitionResult]:
        """Return the changed results for an incremental response.

        Partitions with records move to the end of the order. Thus a busy partition does not starve
        the later ones under the byte limit of the response.
        """
        changed: list[PartitionResult] = []
        for where, result in results:
            key = self._key(where)
            partition = self._active.get(key)
            if partition is None:
                continue
            if partition.has_changes(result):
                partition.note(result)
                changed.append((where, result))
                if len(result.records) > 0:
                    self._active[key] = self._active.pop(key)
                    continue
            if self.idle is not None:
                self.idle.maybe_mark_idle(partition, result)
        return changed


# Cached member: access to an enum member costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class FetchContext(Protocol):
    """The partitions to read for one request, and the results to send."""

    # NONE, or FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
    # FETCH_SESSION_TOPIC_ID_ERROR.
    error: ErrorCode
    # Session id of the response. 0: no session.
    session_id: int

    @property
    def idle(self) -> IdlePartitionSet | None:
        """Requested partitions that need no read. None if there are none."""
        ...

    def partitions(self) -> list[PartitionRequest]:
        """Return the partitions to read, in order. A topic with an unknown id has the name ""."""
        ...

    def update(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Update the session and return the results for the response."""
        ...


class RefusedContext:
    """A request whose session cannot be used."""

    idle = None

    __slots__ = ("error", "session_id")

    def __init__(self, error: ErrorCode) -> None:
        self.error = error
        self.session_id = NO_SESSION

    def partitions(self) -> list[PartitionRequest]:
        """Return an empty list."""
        return []

    def update(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return an empty list."""
        assert not results
        return []


class SessionlessContext:
    """A full request that creates no session."""

    idle = None

    __slots__ = ("_requested", "error", "session_id")

    def __init__(self, requested: list[PartitionRequest]) -> None:
        self._requested = requested
        self.error = _NONE
        self.session_id = NO_SESSION

    def partitions(self) -> list[PartitionRequest]:
        """Return the partitions of the request."""
        return self._requested

    def update(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return all results."""
        return results


class FullContext:
    """A full request that creates a session if the cache has room."""

    idle = None

    __slots__ = ("_is_created", "_make_session", "_requested", "_session", "error", "session_id")

    def __init__(
        self,
        requested: list[PartitionRequest],
        make_session: Callable[[], Generator[None, None, FetchSession | None]],
    ) -> None:
        self._requested = requested
        self._make_session = make_session
        # The session, and whether it was created. It may be None then, too.
        self._session: FetchSession | None = None
        self._is_created = False
        self.error = _NONE
        self.session_id = NO_SESSION

    def partitions(self) -> list[PartitionRequest]:
        """Return the partitions of the request."""
        return self._requested

    def create_session(self) -> Generator[None, None, None]:
        """Create the session in steps, if there is room for it."""
        self._session = yield from self._make_session()
        self._is_created = True

    def update(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Record all results in the session, and return them."""
        if not self._is_created:
            run_to_end(self.create_session())
        if self._session is not None:
            self._session.note_all(results)
            self.session_id = self._session.id
        return results


class IncrementalContext:
    """A request of an existing session."""

    __slots__ = ("_request_epoch", "_session", "error", "session_id")

    def __init__(self, session: FetchSession, request_epoch: int) -> None:
        self._session = session
        self._request_epoch = request_epoch
        self.error = _NONE
        self.session_id = session.id

    @property
    def idle(self) -> IdlePartitionSet | None:
        """The idle partitions of the session."""
        return self._session.idle

    def partitions(self) -> list[PartitionRequest]:
        """Return the session's partitions, without the idle ones."""
        return self._session.partitions()

    def update(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return the changed results. If a later request overtook this one, set `error` instead."""
        if self._session.epoch != next_epoch(self._request_epoch):
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return []
        return self._session.keep_changed(results)


def answer_in_steps(
    context: FetchContext, results: list[PartitionResult]
) -> Generator[None, None, list[PartitionResult]]:
    """Do the same as `FetchContext.update` for many results."""
    if isinstance(context, FullContext):
        yield from context.create_session()
    changed = list(context.update([]))
    for part in in_parts(results):
        changed += context.update(part)
        if context.error is not _NONE:
            return []
        yield
    return changed
