"""Idle partitions of a consumer's fetch session with many partitions.

A partition is idle if its log end offset, high watermark and last stable offset equal the fetch
offset: each request of a session may have another isolation level. Each append, new leader epoch
and deletion makes the partition active. Retention moves log start offsets without a notification,
so each fetch compares some of them.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from barnabas.protocol.schema import ZERO_UUID
from barnabas.replication.partition.fetch_params import NO_EPOCH
from barnabas.replication.requests.idle_partition_set import IdlePartitionSet

if TYPE_CHECKING:
    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.requests.session_partition import SessionPartition

# Number of log start offsets that each fetch compares.
_COMPARED = 1_000


class ConsumerIdlePartitions(IdlePartitionSet):
    """The idle partitions of one consumer's session."""

    __slots__ = ()

    def begin_fetch(self, now_ms: float, replica_epoch: int) -> None:
        """Make partitions active if their log start offset has moved."""
        partitions, find = self._partitions, self._registry.online.get
        for key in list(islice(partitions, _COMPARED)):
            partition = find(key)
            if partition is None or (
                partition.log.log_start_offset != partitions[key].log_start_offset
            ):
                self.activate(key)
            else:
                # Move the partition to the end, so that the next fetch compares others.
                partitions[key] = partitions.pop(key)
        self._registry.count_fetches(self._counts)

    def _is_idle(self, entry: SessionPartition, partition: Partition, leader: LeaderRole) -> bool:
        log, requested = partition.log, entry.requested
        end = requested.fetch_offset
        return (
            entry.where.topic_id in (ZERO_UUID, partition.topic_id)
            and end == log.log_end_offset == log.high_watermark == log.last_stable_offset
            and end == entry.high_watermark
            and requested.current_leader_epoch in (NO_EPOCH, leader.leader_epoch)
            and requested.last_fetched_epoch == NO_EPOCH
        )
