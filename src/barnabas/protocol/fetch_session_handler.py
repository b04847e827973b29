"""The client's side of an incremental fetch session with one broker (KIP-227).

Followers and consumers use it (Kafka: FetchSessionHandler). The first request names every
partition. Later requests name only partitions that were added, changed, replaced (a new topic id)
or removed. After any error the next request is a full one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Session id of a request or response without a session.
NO_SESSION = 0
# Epoch of a full request. It requests a new session, and closes the session whose id it carries.
INITIAL_EPOCH = 0
# Epoch of a request that closes its session, or that uses no session.
FINAL_EPOCH = -1

_EPOCH_MAX = 0x7FFF_FFFF

# Topic id of topics without an id. Their partitions can only be fetched by topic name.
NO_TOPIC_ID = bytes(16)


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`. Epochs run from 1 to 2^31 - 1 and wrap around to 1."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class FetchParameters(Protocol):
    """The fetch parameters of one partition. The broker caches those of the last request."""

    @property
    def topic_id(self) -> bytes:
        """The topic id; `NO_TOPIC_ID` without one."""
        ...


# A partition: topic name and number.
K = TypeVar("K", bound=tuple[str, int])
P = TypeVar("P", bound=FetchParameters)


class FetchSessionRequest(NamedTuple, Generic[K, P]):
    """The session part of one fetch request."""

    session_id: int
    session_epoch: int
    # All partitions that the broker reads: named in the request or cached in its session. The next
    # `build` changes this mapping.
    partitions: Mapping[K, P]
    # The partitions that the request names.
    to_send: Mapping[K, P]
    # Topic ids of the partitions that the broker removes from its session.
    to_forget: Mapping[K, bytes]
    # Whether every topic has an id. If not, the request version must be at most 12 (KIP-516).
    uses_topic_ids: bool

    @property
    def is_empty(self) -> bool:
        """Whether the request has no partitions to fetch and none to forget."""
        return not self.partitions and not self.to_forget

    @property
    def is_full(self) -> bool:
        """Whether the request names all partitions rather than changes."""
        return self.session_epoch <= INITIAL_EPOCH


class FetchSessionHandler(Generic[K, P]):
    """Id and epoch of the session with one broker, and the partitions that the broker caches.

    At most one request is in flight: `build`, then `on_response` or `reset`, then `build` again.
    """

    __slots__ = ("_epoch", "_id", "_partitions", "_topic_names", "_uses_topic_ids")

    def __init__(self) -> None:
        # Session id that the broker assigned, or NO_SESSION. Moved by `on_response`.
        self._id = NO_SESSION
        # Epoch of the next request; INITIAL_EPOCH makes it a full one. Moved by `on_response` and
        # `reset`. Invariant: INITIAL_EPOCH while there is no session.
        self._epoch = INITIAL_EPOCH
        # The broker's cached partitions after it has processed the last built request.
        self._partitions: dict[K, P] = {}
        # Whether the last request identified topics by id.
        self._uses_topic_ids = True
        # Topic names by id, of all topics requested since the last full request.
        self._topic_names: dict[bytes, str] = {}

    @property
    def session_id(self) -> int:
        """Id that the broker assigned; NO_SESSION without a session."""
        return self._id

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic in a response, or None if it was not requested."""
        return self._topic_names.get(topic_id)

    def needs_all(self, changes: Mapping[K, P | None]) -> bool:
        """Return whether the next request must be built from all partitions.

        Args:
            changes: The possibly changed partitions, with their new parameters.
        """
        if self._epoch == INITIAL_EPOCH or not self._uses_topic_ids:
            return True
        topic_ids = [each.topic_id for each in changes.values() if each]
        return NO_TOPIC_ID in topic_ids

    def build_all(self, partitions: Mapping[K, P]) -> FetchSessionRequest[K, P]:
        """Return the next request, after which the broker reads exactly `partitions`."""
        if self._epoch != INITIAL_EPOCH:
            removed = [key for key in self._partitions if key not in partitions]
            if removed:
                return self.build({**dict.fromkeys(removed), **partitions})
        return self.build(partitions)

    def build(self, changes: Mapping[K, P | None]) -> FetchSessionRequest[K, P]:
        """Return the next request. The caller sends it, unless it is empty.

        Args:
            changes: New parameters of possibly changed partitions; None removes the partition. If
                `needs_all` returned True, these are all partitions in their order.
        """
        if self.needs_all(changes):
            uses_topic_ids = all(each.topic_id != NO_TOPIC_ID for each in changes.values() if each)
            if uses_topic_ids != self._uses_topic_ids:
                self._uses_topic_ids = uses_topic_ids
                self.reset()
        if self._epoch == INITIAL_EPOCH:
            requested = {key: each for key, each in changes.items() if each}
            self._partitions = requested
            self._topic_names = {each.topic_id: key[0] for key, each in requested.items()}
            return self._request(requested, {})
        return self._build_incremental(changes)

    def _build_incremental(self, changes: Mapping[K, P | None]) -> FetchSessionRequest[K, P]:
        cached = self._partitions
        to_send: dict[K, P] = {}
        to_forget: dict[K, bytes] = {}
        for key, each in changes.items():
            before = cached.get(key)
            if before == each:
                continue
            if before is not None and (each is None or each.topic_id != before.topic_id):
                to_forget[key] = before.topic_id
            if each is None:
                del cached[key]
                continue
            cached[key] = to_send[key] = each
            self._topic_names[each.topic_id] = key[0]
        return self._request(to_send, to_forget)

    def _request(
        self, to_send: Mapping[K, P], to_forget: Mapping[K, bytes]
    ) -> FetchSessionRequest[K, P]:
        is_full = self._epoch == INITIAL_EPOCH
        assert is_full or self._id != NO_SESSION, (self._id, self._epoch)
        return FetchSessionRequest(
            self._id, self._epoch, self._partitions, to_send, to_forget, self._uses_topic_ids
        )

    def build_final(self) -> FetchSessionRequest[K, P] | None:
        """Return the request that closes the session; None without a session."""
        if self._id == NO_SESSION:
            return None
        return FetchSessionRequest(self._id, FINAL_EPOCH, {}, {}, {}, self._uses_topic_ids)

    def on_response(
        self, error: ErrorCode, session_id: int, received: Iterable[K] | None = None
    ) -> bool:
        """Handle a response. Return whether it is valid.

        Args:
            error: The error code of the whole response.
            session_id: The session id of the response.
            received: The partitions of the response. A response to a full request must have all
                requested partitions. No response may have other partitions. None: do not check.
        """
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.reset()
            return False
        is_full = self._epoch == INITIAL_EPOCH
        if not self._is_permitted(received, is_full):
            if is_full:
                self._id = NO_SESSION
            self.reset()
            return False
        self._id = session_id
        self._epoch = INITIAL_EPOCH if session_id == NO_SESSION else next_epoch(self._epoch)
        return True

    def _is_permitted(self, received: Iterable[K] | None, is_full: bool) -> bool:
        if received is None:
            return True
        requested = self._partitions.keys()
        return set(received) == requested if is_full else all(key in requested for key in received)

    def reset(self) -> None:
        """Make the next request a full one. That request also closes the current session."""
        self._epoch = INITIAL_EPOCH
