"""The client's side of an incremental fetch session with one node (KIP-227).

The first request contains every partition. Later requests of the session contain only added,
changed and removed partitions. After any error the next request is a full one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["FetchPosition", "FetchSession", "SessionRequest"]

NO_SESSION = 0
# Epoch of a full request: it asks for a new session and closes the session that it names.
INITIAL_EPOCH = 0
# Epoch of a request outside any session.
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF


class FetchPosition(NamedTuple):
    """The fetch parameters of one partition; the session remembers those last sent."""

    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: bytes


class SessionRequest(NamedTuple):
    """The session part of one fetch request."""

    session_id: int
    session_epoch: int
    partitions: dict[TopicPartition, FetchPosition]
    forgotten: dict[TopicPartition, FetchPosition]

    @property
    def is_full(self) -> bool:
        """Whether the request contains all partitions rather than changes."""
        return self.session_epoch <= INITIAL_EPOCH


class FetchSession:
    """Id and epoch of the session with one node, and the partitions that the node remembers."""

    __slots__ = ("_epoch", "_id", "_partitions", "_uses_ids")

    def __init__(self) -> None:
        self._id = NO_SESSION
        # Epoch of the next request; INITIAL_EPOCH asks for a new session.
        self._epoch = INITIAL_EPOCH
        # The partitions of the last request. The node holds the same ones if it accepted the
        # request.
        self._partitions: dict[TopicPartition, FetchPosition] = {}
        self._uses_ids = False

    @property
    def session_id(self) -> int:
        """Id that the node assigned; 0 without a session."""
        return self._id

    @property
    def partitions(self) -> dict[TopicPartition, FetchPosition]:
        """The partitions that the node fetches for the last built request."""
        return self._partitions

    def build(
        self, wanted: dict[TopicPartition, FetchPosition], *, uses_ids: bool
    ) -> SessionRequest:
        """Return the next request for `wanted`; the caller sends it and reports the response.

        Args:
            wanted: All partitions to fetch.
            uses_ids: Whether the request identifies topics by id; after a change the request is
                full.
        """
        if uses_ids != self._uses_ids:
            self._uses_ids = uses_ids
            self.reset()
        before, self._partitions = self._partitions, wanted
        if self._epoch == INITIAL_EPOCH:
            return SessionRequest(self._id, INITIAL_EPOCH, wanted, {})
        changed = {tp: position for tp, position in wanted.items() if before.get(tp) != position}
        forgotten = {
            tp: position
            for tp, position in before.items()
            if tp not in wanted or wanted[tp].topic_id != position.topic_id
        }
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    def build_final(self) -> SessionRequest | None:
        """Return the request that ends the session; None without a session."""
        if self._id == NO_SESSION:
            return None
        return SessionRequest(self._id, FINAL_EPOCH, {}, {})

    def on_answer(self, error_code: int, session_id: int) -> None:
        """Handle the error code and the session id of a response."""
        if error_code:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.reset()
        elif session_id == NO_SESSION:
            self._id = NO_SESSION
            self.reset()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def reset(self) -> None:
        """Make the next request a full one, which also closes the current session."""
        self._epoch = INITIAL_EPOCH
