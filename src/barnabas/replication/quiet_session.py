"""Partitions of a follower's fetch session of which there is no news (KIP-227, made cheap).

In Kafka a fetch of a session looks at all of its partitions. Here one that is *quiet* is not looked
at: the follower is in the ISR and has all that there is, and was told so. Whatever changes about it
wakes those who wait for it, and makes it *loud* again; so does a request that names it. What a look
would have noted, that the follower fetched from the log end at this time, `fetched_ms` says for all
quiet ones together.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from barnabas.replication.replica import NEVER_MS, NO_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.replication.delayed_fetch import DelayedFetch
    from barnabas.replication.partition import Partition
    from barnabas.replication.results import FetchResult
    from barnabas.replication.session_partition import SessionKey, SessionPartition
    from barnabas.storage.topic_partition import TopicPartition

# So often so many quiet ones are looked at all the same: a log start that retention has moved wakes
# nobody.
_SWEEP_MS = 450.0
_SWEEP_PARTITIONS = 64


class Registry(Protocol):
    """Who is told when a partition changes, and what sessions need to know."""

    # Partitions that can be used.
    online: Mapping[TopicPartition, Partition]

    def watch(self, key: TopicPartition, session: QuietSession) -> None:
        """It is quiet in one more session."""
        ...

    def forget(self, key: TopicPartition, session: QuietSession) -> None:
        """It is quiet no more in a session."""
        ...

    def broker_epoch(self, broker_id: int) -> int | None:
        """Epoch of its registration."""
        ...

    def count_fetches(self, counts: Mapping[str, int]) -> None:
        """So many partitions of each topic were fetched."""
        ...

    def let_wait_for(self, operation: DelayedFetch, entry: SessionPartition) -> None:
        """A fetch that waits has to look at one more partition."""
        ...


class QuietSession:
    """The quiet ones of one session."""

    __slots__ = (
        "_counts",
        "_loud",
        "_partitions",
        "_registry",
        "_replica_epoch",
        "_swept_ms",
        "fetched_ms",
        "operation",
        "replica_id",
    )

    def __init__(
        self,
        registry: Registry,
        replica: tuple[int, int],
        loud: dict[SessionKey, SessionPartition],
    ) -> None:
        """Args:
        replica: the follower's broker id and the epoch of its registration.
        loud: the session's other partitions; all of them at first.
        """
        self._registry = registry
        self.replica_id, self._replica_epoch = replica
        self._loud = loud
        # Least recently looked at first. Disjoint from `loud`.
        self._partitions: dict[TopicPartition, SessionPartition] = {}
        # How many of each topic there are, for the meters of fetches.
        self._counts: dict[str, int] = {}
        # When the follower fetched last, monotonic ms: from the log end of all that are quiet.
        self.fetched_ms = NEVER_MS
        self._swept_ms = NEVER_MS
        # The session's fetch that waits for data.
        self.operation: DelayedFetch | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """The follower fetches; who has been named in the request is loud already."""
        known_epoch = self._registry.broker_epoch(self.replica_id)
        is_outdated = known_epoch is not None and NO_BROKER_EPOCH < replica_epoch < known_epoch
        if is_outdated or replica_epoch != self._replica_epoch:
            # Of another life of that broker: that is for each of them to judge.
            self._replica_epoch = replica_epoch
            self._disturb_first(len(self._partitions))
        elif now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            self._disturb_first(_SWEEP_PARTITIONS)
        self.fetched_ms = now_ms
        self._registry.count_fetches(self._counts)

    def maybe_hush(self, entry: SessionPartition, result: FetchResult) -> bool:
        """`result` is answered: whether nothing is to be said of the partition until it changes."""
        key = entry.where.topic_partition
        if result.position is None or len(result.records) > 0 or key in self._partitions:
            return False
        partition = self._registry.online.get(key)
        if (
            partition is None
            or partition.topic_id != entry.where.topic_id
            or not partition.has_nothing_for(self.replica_id, entry.asked, entry.high_watermark)
            or partition.log.log_start_offset != entry.log_start_offset
        ):
            return False
        entry.position = result.position
        del self._loud[entry.key]
        self._partitions[key] = entry
        self._counts[key.topic] = self._counts.get(key.topic, 0) + 1
        self._registry.watch(key, self)
        partition.remote_replicas[self.replica_id].pulse = self
        return True

    def touch(self, entry: SessionPartition) -> None:
        """A request names it."""
        key = entry.where.topic_partition
        if self._partitions.get(key) is entry:
            self.disturb(key)

    def disturb(self, key: TopicPartition) -> None:
        """Something about the partition has changed: the next fetch looks at it, and the one that
        waits has to."""
        entry = self._leave(key)
        self._loud[entry.key] = entry
        if self.operation is not None:
            self._registry.let_wait_for(self.operation, entry)

    def close(self) -> None:
        """The session is over."""
        for key in list(self._partitions):
            self._leave(key)

    def _disturb_first(self, count: int) -> None:
        for key in list(islice(self._partitions, count)):
            self.disturb(key)

    def _leave(self, key: TopicPartition) -> SessionPartition:
        entry = self._partitions.pop(key)
        left = self._counts[key.topic] - 1
        if left:
            self._counts[key.topic] = left
        else:
            del self._counts[key.topic]
        self._registry.forget(key, self)
        partition = self._registry.online.get(key)
        replica = None if partition is None else partition.remote_replicas.get(self.replica_id)
        if replica is not None and replica.pulse is self:
            replica.settle()
        return entry
