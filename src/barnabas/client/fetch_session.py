"""The client's side of an incremental fetch session with one node (KIP-227).

The first request names every partition; while the session holds, later ones name only what was
added or changed and what is no longer wanted. Whatever goes wrong, the next request is a full one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["FetchPosition", "FetchSession", "SessionRequest"]

NO_SESSION = 0
# Epoch of a request that asks for a new session, closing the one it names.
INITIAL_EPOCH = 0
# Epoch of a request outside any session.
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF


class FetchPosition(NamedTuple):
    """What is asked of one partition; the session remembers it as it was last sent."""

    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: bytes


class SessionRequest(NamedTuple):
    """What one fetch request has to say."""

    session_id: int
    session_epoch: int
    partitions: dict[TopicPartition, FetchPosition]
    forgotten: dict[TopicPartition, FetchPosition]

    @property
    def is_full(self) -> bool:
        """Whether it names all partitions rather than changes."""
        return self.session_epoch <= INITIAL_EPOCH


class FetchSession:
    """Session id and epoch with one node, and what that node remembers of our partitions."""

    __slots__ = ("_epoch", "_id", "_partitions", "_uses_ids")

    def __init__(self) -> None:
        self._id = NO_SESSION
        # Of the next request; INITIAL_EPOCH asks for a new session.
        self._epoch = INITIAL_EPOCH
        # The partitions of the last request that was sent, which the node holds if it held.
        self._partitions: dict[TopicPartition, FetchPosition] = {}
        self._uses_ids = False

    @property
    def session_id(self) -> int:
        """Id that the node gave, 0 without a session."""
        return self._id

    @property
    def partitions(self) -> dict[TopicPartition, FetchPosition]:
        """What the node fetches for us with the request last built."""
        return self._partitions

    def build(
        self, wanted: dict[TopicPartition, FetchPosition], *, uses_ids: bool
    ) -> SessionRequest:
        """The next request for `wanted`; the caller sends it, then tells how it ended."""
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
        """The request that ends the session, None if there is none."""
        if self._id == NO_SESSION:
            return None
        return SessionRequest(self._id, FINAL_EPOCH, {}, {})

    def on_answer(self, error_code: int, session_id: int) -> None:
        """An answer came, with this error code for the whole request and this session id."""
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
        """Make the next request a full one that closes the present session, if there is one."""
        self._epoch = INITIAL_EPOCH
