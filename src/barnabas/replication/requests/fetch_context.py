"""The partitions of one fetch request and of its response, with or without a session (KIP-227).

`FetchSessionCache.open` returns the context. If its `error` is set, the response consists of this
error. Otherwise read `partitions()` and pass the results to `answer`. Send its return value with
the `session_id` and `error` that the context has after that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import NO_SESSION, next_epoch
from barnabas.waiting.steps import in_parts, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.requests.fetch_session import (
        FetchSession,
        PartitionRequest,
        PartitionResult,
    )
    from barnabas.replication.requests.idle_partition_set import IdlePartitionSet

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

    def answer(self, results: list[PartitionResult]) -> list[PartitionResult]:
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

    def answer(self, results: list[PartitionResult]) -> list[PartitionResult]:
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

    def answer(self, results: list[PartitionResult]) -> list[PartitionResult]:
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

    def answer(self, results: list[PartitionResult]) -> list[PartitionResult]:
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

    def answer(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return the changed results. If a later request overtook this one, set `error` instead."""
        if self._session.epoch != next_epoch(self._request_epoch):
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return []
        return self._session.keep_changed(results)


def answer_in_steps(
    context: FetchContext, results: list[PartitionResult]
) -> Generator[None, None, list[PartitionResult]]:
    """Do the same as `FetchContext.answer` for many results."""
    if isinstance(context, FullContext):
        yield from context.create_session()
    changed = list(context.answer([]))
    for part in in_parts(results):
        changed += context.answer(part)
        if context.error is not _NONE:
            return []
        yield
    return changed
