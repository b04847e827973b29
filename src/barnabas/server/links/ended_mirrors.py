"""Makes the logs of a promoted mirror usable for the clients of this cluster.

Two things in them belong to the source cluster:

- Open transactions, whose markers this cluster will never get. They would hold back the last stable
  offset for ever, so the leader aborts them.
- Producers. This cluster gives the same producer ids to its own producers. Their epochs and
  sequences begin anew, and the old states would fence them. So each replica forgets idle producers,
  and rolls the log, so that a recovery does not find them either.

While the mirror is in the state `promoting`, `end_slowly` does this again and again, in slices:
clients cannot write yet, and a leader that dies is replaced by one that goes on. `end_at_once` does
the rest when clients may write.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_record import TransactionEnding, build_end_marker
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.errors import StorageError
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)
# `SOURCE_REMAINS` shows when all in-sync replicas have the marker.
_ACKS_LEADER = 1
_TIMEOUT_MS = 30_000


class EndedMirrors:
    """Ends the mirrors of this broker."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    def end_at_once(self, image: ClusterImage, topics: Iterable[str]) -> None:
        """Abort open transactions and forget producers of topics that are not mirrors any more."""
        for partition in self._partitions(image, topics):
            if partition.leader is not None:
                for _ in self._abort_all(partition):
                    pass
            self._forget(partition)

    def end_slowly(self, image: ClusterImage, topics: Iterable[str]) -> Generator[None, None, None]:
        """Abort open transactions, and forget producers whose transactions have ended.

        A follower gets the markers from its leader. Yields after each step.
        """
        for partition in self._partitions(image, topics):
            yield
            if partition.leader is not None:
                yield from self._abort_all(partition)
            log = partition.log
            if log.high_watermark == log.log_end_offset:
                self._forget(partition)

    def _partitions(self, image: ClusterImage, topics: Iterable[str]) -> Iterator[Partition]:
        for name in topics:
            topic = image.topics.by_name(name)
            for index in () if topic is None else topic.partitions:
                partition = self._replicas.partition(TopicPartition(name, index))
                if not isinstance(partition, ErrorCode):
                    yield partition

    @staticmethod
    def _forget(partition: Partition) -> None:
        state = partition.log.producer_state
        if len(state.entries) == len(state.transactions.ongoing):
            return
        try:
            state.forget_idle()
            partition.log.roll()
        except StorageError as error:
            key = partition.topic_partition
            _log.error("Producers of a mirror are not forgotten: partition=%s error=%s", key, error)

    def _abort_all(self, partition: Partition) -> Generator[None, None, None]:
        """Append the abort markers of the open transactions. Yields after each one."""
        key, state = partition.topic_partition, partition.log.producer_state
        open_ones = list(state.transactions.ongoing.values())
        for producer_id in open_ones:
            if producer_id in state.transactions.ongoing.values():
                self._abort(partition, producer_id)
            yield
        if open_ones:
            _log.info(
                "Transactions of the source end with the mirror: partition=%s aborted=%d",
                *(key, len(open_ones)),
            )

    def _abort(self, partition: Partition, producer_id: int) -> None:
        entry = partition.log.producer_state.entries[producer_id]
        ending = TransactionEnding(
            producer_id,
            entry.producer_epoch,
            max(entry.coordinator_epoch, 0),
            is_commit=False,
            transaction_version=0,
        )
        key = partition.topic_partition
        marker = memoryview(build_end_marker(ending, self._clock.wall_ms()))

        def on_done(results: dict[TopicPartition, ProduceResult]) -> None:
            if results[key].error is not ErrorCode.NONE:
                _log.error(
                    "A transaction of the source is still open. If the promotion does not end, "
                    "abort it by `barnabas transactions abort`: partition=%s producer_id=%d "
                    "error=%s",
                    *(key, producer_id, results[key].error.name),
                )

        self._replicas.append_records(
            _TIMEOUT_MS, _ACKS_LEADER, {key: marker}, AppendOrigin.PROMOTION, on_done
        )
