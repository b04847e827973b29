"""The follower's side of an incremental fetch session with one leader (KIP-227).

The first request names every partition. Later requests of the session name only partitions that
were added, changed, replaced (a new topic id) or removed. After any error the next request is a
full one. Kafka: FetchSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.requests.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.storage.topic_partition import TopicPartition

NO_TOPIC_ID = bytes(16)


class AskedPartition(NamedTuple):
    """The fetch parameters of one partition. The leader caches the last ones it received."""

    topic_id: bytes
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerRequest(NamedTuple):
    """The contents of one fetch request."""

    session_id: int
    session_epoch: int
    # All partitions that the leader reads: named in the request or cached in its session.
    partitions: dict[TopicPartition, AskedPartition]
    to_send: dict[TopicPartition, AskedPartition]
    # Topic id by partition.
    to_forget: dict[TopicPartition, bytes]
    # Whether every topic has an id. If not, the request version must be at most 12.
    uses_topic_ids: bool

    @property
    def is_empty(self) -> bool:
        """Whether the request has no partitions to fetch and none to forget."""
        return not self.partitions and not self.to_forget


class FollowerSession:
    """The session id and epoch, and the partitions that the leader caches."""

    __slots__ = ("_epoch", "_partitions", "_topic_names", "_uses_topic_ids", "id")

    def __init__(self) -> None:
        # Session id from the leader, or NO_SESSION.
        self.id = NO_SESSION
        # Epoch of the next request. INITIAL_EPOCH requests a new session.
        self._epoch = INITIAL_EPOCH
        # The leader's cached partitions after it has processed the last request.
        self._partitions: dict[TopicPartition, AskedPartition] = {}
        self._uses_topic_ids = True
        # Topic names by id, of all topics requested since the last full request.
        self._topic_names: dict[bytes, str] = {}

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic in a response, or None if it was not requested."""
        return self._topic_names.get(topic_id)

    def needs_all(self, looked_at: Mapping[TopicPartition, AskedPartition | None]) -> bool:
        """Whether the next request must be built from all partitions.

        Args:
            looked_at: the possibly changed partitions, with their new parameters.
        """
        if self._epoch == INITIAL_EPOCH or not self._uses_topic_ids:
            return True
        return any(each and each.topic_id == NO_TOPIC_ID for each in looked_at.values())

    def build(self, looked_at: Mapping[TopicPartition, AskedPartition | None]) -> FollowerRequest:
        """Return the next request. The caller sends it, unless it is empty.

        Args:
            looked_at: new parameters of possibly changed partitions. If `needs_all` returned True,
                it has all partitions in their order. None: do not fetch the partition now.
        """
        if self.needs_all(looked_at):
            uses_topic_ids = all(
                each.topic_id != NO_TOPIC_ID for each in looked_at.values() if each
            )
            if uses_topic_ids != self._uses_topic_ids:
                self._uses_topic_ids = uses_topic_ids
                self.reset()
        if self._epoch == INITIAL_EPOCH:
            wanted = {key: asked for key, asked in looked_at.items() if asked}
            self._partitions = wanted
            self._topic_names = {each.topic_id: key.topic for key, each in wanted.items()}
            return FollowerRequest(self.id, self._epoch, wanted, wanted, {}, self._uses_topic_ids)
        return self._build_incremental(looked_at)

    def _build_incremental(
        self, looked_at: Mapping[TopicPartition, AskedPartition | None]
    ) -> FollowerRequest:
        known = self._partitions
        to_send: dict[TopicPartition, AskedPartition] = {}
        to_forget: dict[TopicPartition, bytes] = {}
        for key, asked in looked_at.items():
            before = known.get(key)
            if before == asked:
                continue
            if before is not None and (asked is None or asked.topic_id != before.topic_id):
                to_forget[key] = before.topic_id
            if asked is None:
                del known[key]
                continue
            known[key] = to_send[key] = asked
            self._topic_names[asked.topic_id] = key.topic
        return FollowerRequest(
            self.id, self._epoch, known, to_send, to_forget, self._uses_topic_ids
        )

    def take_answer(
        self, error: ErrorCode, session_id: int, answered: Iterable[TopicPartition]
    ) -> bool:
        """Process a response. Return whether it is valid.

        Args:
            error: the error code of the whole response.
            session_id: the session id of the response.
            answered: the partitions of the response. A response to a full request must have all
                requested partitions. No response may have other partitions.
        """
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.reset()
            return False
        known = self._partitions.keys()
        if self._epoch == INITIAL_EPOCH:
            is_whole = set(answered) == known
            self.id = session_id if is_whole else NO_SESSION
        else:
            is_whole = all(each in known for each in answered)
            if is_whole:
                self.id = session_id
        if not is_whole or session_id == NO_SESSION:
            self.reset()
        else:
            self._epoch = next_epoch(self._epoch)
        return is_whole

    def reset(self) -> None:
        """Make the next request a full one. That request also closes the current session."""
        self._epoch = INITIAL_EPOCH
