"""A partition whose first offsets only the remote tier has, and fetches of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.record.reader import read_batches
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition
from unit.replication.remote.tiered_broker import TieredBroker
from unit.replication.replica_set import LEADER, TOPIC, TOPIC_ID

if TYPE_CHECKING:
    from barnabas.replication.partition.results import FetchResult

MIB = 1 << 20
MAX_WAIT_MS = 500
# Offsets 0 to 4 are only in the tier, each in a segment of its own. The log ends at 6.
TIERED = 5


def tiered_broker(replicas: tuple[int, ...] = (1,)) -> TieredBroker:
    """Return a broker whose partition has its first offsets only in the tier."""
    broker = TieredBroker(replicas, local_retention_bytes=1, segment_bytes=150)
    if len(replicas) > 1:
        broker.change(isr=[LEADER])
    broker.fill(TIERED + 1)
    broker.wait()
    broker.log.delete_old_segments(broker.runtime.clock.wall_ms())
    assert broker.log.local_log_start_offset == TIERED
    assert broker.log.log_start_offset == 0
    return broker


class Fetches:
    """Fetches of one client, and their results."""

    def __init__(self, broker: TieredBroker) -> None:
        self.broker = broker
        self.results: list[list[FetchResult]] = []

    def start(
        self,
        *partitions: tuple[int, int],
        max_bytes: int = MIB,
        max_response_bytes: int = 10 * MIB,
        max_wait_ms: int = 0,
        current_leader_epoch: int = -1,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        run: Any = None,
    ) -> Any:
        """Fetch from (partition, offset)."""
        params = FetchParams(
            version=17,
            replica_id=-1,
            replica_epoch=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_response_bytes,
            isolation=isolation,
        )
        requested = [
            (
                TopicIdPartition(TOPIC_ID, TOPIC, index),
                FetchPartitionData(offset, max_bytes, current_leader_epoch=current_leader_epoch),
            )
            for index, offset in partitions
        ]
        return self.broker.manager.fetch(params, requested, self._on_done, run=run)

    def _on_done(self, results: list[tuple[TopicIdPartition, FetchResult]]) -> None:
        self.results.append([result for _, result in results])

    def fetch(self, *partitions: tuple[int, int], **options: Any) -> list[FetchResult]:
        """Fetch, and wait for the response."""
        self.start(*partitions, **options)
        self.broker.world.run_for(MAX_WAIT_MS)
        return self.results[-1]


def offsets(result: FetchResult) -> list[int]:
    return [header.base_offset for header, _ in read_batches(result.records)]
