"""The follower's side of an incremental fetch session with one leader (KIP-227).

The first request names every partition; while the session holds, later ones name only what was
added, changed, replaced (the topic has another id) or forgotten. Whatever goes wrong, the next
request is a full one. Kafka: FetchSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetch_session import INITIAL_EPOCH, NO_SESSION, next_epoch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.storage.topic_partition import TopicPartition

NO_TOPIC_ID = bytes(16)


class AskedPartition(NamedTuple):
    """What is asked of one partition; the leader remembers it as it was last sent."""

    topic_id: bytes
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerRequest(NamedTuple):
    """What one fetch request has to say."""

    session_id: int
    session_epoch: int
    # All that the leader will read for it, named in it or remembered.
    partitions: dict[TopicPartition, AskedPartition]
    to_send: dict[TopicPartition, AskedPartition]
    # Topic id by partition.
    to_forget: dict[TopicPartition, bytes]
    # Whether every topic has an id: else no version above 12 can be used.
    uses_topic_ids: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to fetch and nothing to forget."""
        return not self.partitions and not self.to_forget


class FollowerSession:
    """Session id and epoch with one leader, and what it remembers of our partitions."""

    __slots__ = ("_epoch", "_partitions", "_topic_names", "_uses_topic_ids", "id")

    def __init__(self) -> None:
        # That the leader gave; NO_SESSION without one.
        self.id = NO_SESSION
        # Of the next request; INITIAL_EPOCH asks for a new session.
        self._epoch = INITIAL_EPOCH
        # As the leader has them if it has taken our last request.
        self._partitions: dict[TopicPartition, AskedPartition] = {}
        self._uses_topic_ids = True
        # Names of the topics that were asked for since the last full request, by id.
        self._topic_names: dict[bytes, str] = {}

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic of that id in an answer; None if it was not asked for."""
        return self._topic_names.get(topic_id)

    def needs_all(self, looked_at: Mapping[TopicPartition, AskedPartition | None]) -> bool:
        """Whether the next request can only be built from all partitions.

        Args:
            looked_at: those that may have changed, and what is wanted of them.
        """
        if self._epoch == INITIAL_EPOCH or not self._uses_topic_ids:
            return True
        return any(each and each.topic_id == NO_TOPIC_ID for each in looked_at.values())

    def build(self, looked_at: Mapping[TopicPartition, AskedPartition | None]) -> FollowerRequest:
        """The next request; the caller sends it, unless it is empty.

        Args:
            looked_at: what is wanted of partitions that may have changed, or of all in their order
                if `needs_all` said so; None: nothing now.
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
        """An answer came; returns whether it can be used.

        Args:
            error: of the request as a whole.
            answered: the partitions of the answer. A full request must be answered in full; nobody
                may answer what was not asked.
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
        """Make the next request a full one, which closes the present session if there is one."""
        self._epoch = INITIAL_EPOCH
