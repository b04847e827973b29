"""One fetch request with or without a session: what to read, and what of it to answer (KIP-227).

`FetchSessionCache.open` gives the context. If its `error` is set, it is the whole answer. Else read
`partitions()` and answer what `answer(results)` leaves, with `session_id` and `error` as they are
after that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetch_session import NO_SESSION, Answered, Asked, FetchSession, next_epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.quiet_session import QuietSession


class FetchContext(Protocol):
    """One request."""

    # NONE, or FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
    # FETCH_SESSION_TOPIC_ID_ERROR.
    error: ErrorCode
    # Of the answer; 0: no session.
    session_id: int

    @property
    def quiet(self) -> QuietSession | None:
        """Partitions that are asked too, but need not be read; None without any."""
        ...

    def partitions(self) -> list[Asked]:
        """All that is to be read, in order; the name of a topic with an unknown id is ""."""
        ...

    def answer(self, results: list[Answered]) -> list[Answered]:
        """What of the results goes into the answer; the session is brought up to date."""
        ...


class RefusedContext:
    """The session that the request names cannot be used."""

    quiet = None

    __slots__ = ("error", "session_id")

    def __init__(self, error: ErrorCode) -> None:
        self.error = error
        self.session_id = NO_SESSION

    def partitions(self) -> list[Asked]:
        """Nothing."""
        return []

    def answer(self, results: list[Answered]) -> list[Answered]:
        """Nothing."""
        assert not results
        return []


class SessionlessContext:
    """A request that is complete in itself and makes no session."""

    quiet = None

    __slots__ = ("_asked", "error", "session_id")

    def __init__(self, asked: list[Asked]) -> None:
        self._asked = asked
        self.error = ErrorCode.NONE
        self.session_id = NO_SESSION

    def partitions(self) -> list[Asked]:
        """What the request names."""
        return self._asked

    def answer(self, results: list[Answered]) -> list[Answered]:
        """All."""
        return results


class FullContext:
    """A request that is complete in itself and begins a session if there is room for one."""

    quiet = None

    __slots__ = ("_asked", "_make_session", "error", "session_id")

    def __init__(
        self, asked: list[Asked], make_session: Callable[[list[Asked]], FetchSession | None]
    ) -> None:
        self._asked = asked
        self._make_session = make_session
        self.error = ErrorCode.NONE
        self.session_id = NO_SESSION

    def partitions(self) -> list[Asked]:
        """What the request names."""
        return self._asked

    def answer(self, results: list[Answered]) -> list[Answered]:
        """All; from here on the session knows what was answered."""
        session = self._make_session(self._asked)
        if session is not None:
            session.note_all(results)
            self.session_id = session.id
        return results


class IncrementalContext:
    """A request that goes on with a session."""

    __slots__ = ("_request_epoch", "_session", "error", "session_id")

    def __init__(self, session: FetchSession, request_epoch: int) -> None:
        self._session = session
        self._request_epoch = request_epoch
        self.error = ErrorCode.NONE
        self.session_id = session.id

    @property
    def quiet(self) -> QuietSession | None:
        """Partitions of the session of which there is nothing to be said now."""
        return self._session.quiet

    def partitions(self) -> list[Asked]:
        """All of the session's partitions but for the quiet ones."""
        return self._session.partitions()

    def answer(self, results: list[Answered]) -> list[Answered]:
        """What has news; nothing, and an error, if a later request overtook this one meanwhile."""
        if self._session.epoch != next_epoch(self._request_epoch):
            self.error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return []
        return self._session.keep_news(results)
