"""The share coordinator over a real log in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
from barnabas.coordinator.share.config import ShareCoordinatorConfig
from barnabas.coordinator.share.share_coordinator import (
    SHARE_GROUP_TOPIC,
    ShareCoordinator,
    ShareDependencies,
)
from barnabas.coordinator.share.share_partition_state import SharePartitionKey
from barnabas.coordinator.share.state_api import INITIALIZE, READ, READ_SUMMARY, WRITE, StateApi
from barnabas.protocol.messages import (
    initialize_share_group_state as initialize,
    read_share_group_state as read,
    read_share_group_state_summary as summary,
    write_share_group_state as write,
)
from barnabas.protocol.records.topics import PartitionRecord, TopicRecord
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices
from unit.replication.replica_set import LEADER, ReplicaSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.share.share_shard import ShareStateShard
    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.requests.delayed_writes import DeleteRecordsResult
    from barnabas.storage.log.log import Log

GROUP, TOPIC_ID = "g", b"the topic's id.."
KEY = SharePartitionKey(GROUP, TOPIC_ID, 0)
STATE_PARTITION = TopicPartition(SHARE_GROUP_TOPIC, 0)
PRUNE_MS, COLD_MS = 2_000, 10_000
CONFIG = ShareCoordinatorConfig(
    share_coordinator_snapshot_update_records_per_snapshot=3,
    share_coordinator_state_topic_prune_interval_ms=PRUNE_MS,
    share_coordinator_cold_partition_snapshot_interval_ms=COLD_MS,
)
# Partitions that each topic has.
PARTITIONS = 5_000


class ShareWorld:
    """One broker that leads the only partition of `__share_group_state`."""

    def __init__(self, replicas: tuple[int, ...] = (LEADER,)) -> None:
        self.replicas = ReplicaSet()
        self.replicas.replay(
            TopicRecord(name=SHARE_GROUP_TOPIC, topic_id=b"share-state-id.."),
            PartitionRecord(
                partition_id=0,
                topic_id=b"share-state-id..",
                replicas=list(replicas),
                isr=list(replicas),
                removing_replicas=[],
                adding_replicas=[],
                leader=LEADER,
                leader_epoch=0,
                partition_epoch=0,
                directories=[],
            ),
        )
        self.is_enabled = True
        # Topics that do not exist any more.
        self.deleted: set[bytes] = set()
        self._launch(0)

    def start(self, leader_epoch: int) -> None:
        """Stop; begin with an empty memory, as another broker does, and load the log."""
        self.coordinator.runtime.shutdown()
        self._launch(leader_epoch)

    def _launch(self, leader_epoch: int) -> None:
        runtime = self.replicas.runtime
        self.coordinator = ShareCoordinator(
            CONFIG,
            RuntimeDependencies(
                log=self.replicas.manager,
                clock=runtime.clock,
                timer=runtime.timer,
                wheel=self.replicas.wheel,
                executor=runtime.executor,
            ),
            ShareDependencies(self._has_partition, lambda: self.is_enabled, self._delete_records),
        )
        self.coordinator.runtime.partition_count = 1
        self.coordinator.runtime.on_elected(0, leader_epoch)
        self.run_for(50)

    def _has_partition(self, topic_id: bytes, partition: int) -> bool:
        return topic_id not in self.deleted and partition < PARTITIONS

    def _delete_records(
        self, key: TopicPartition, offset: int, on_done: Callable[[ErrorCode], None]
    ) -> None:
        def done(results: dict[TopicPartition, DeleteRecordsResult]) -> None:
            on_done(results[key].error)

        self.replicas.manager.delete_records(1_000, {key: offset}, done)

    def run_for(self, ms: float) -> None:
        self.replicas.world.run_for(ms)

    @property
    def log(self) -> Log:
        """The log of the state partition."""
        log: Log = self.replicas.manager.partition(STATE_PARTITION).log  # type: ignore[union-attr]
        return log

    @property
    def shard(self) -> ShareStateShard:
        (shard,) = self.coordinator.runtime.shards()
        return shard

    def ask(self, api: StateApi, *partitions: Any, topic_id: bytes = TOPIC_ID) -> list[Any]:
        """Send a request for partitions of one topic; return the results."""
        found: list[Any] = []

        def run() -> None:
            runtime = self.replicas.runtime
            run_in_slices(request.steps(), runtime.clock, runtime.timer.call_soon, done)

        def done(response: Any) -> None:
            if response is not None:
                found.append(response)

        message = api.make_request(GROUP, {topic_id: list(partitions)})
        request = self.coordinator.request(api, message, run)
        run()
        for _ in range(100):
            if not found:
                self.run_for(10)
        (response,) = found
        (topic,) = response.results
        results: list[Any] = topic.partitions
        return results

    def initialize(
        self,
        state_epoch: int = 0,
        start_offset: int = 0,
        *partitions: int,
        topic_id: bytes = TOPIC_ID,
    ) -> list[Any]:
        made = [
            initialize.PartitionData(
                partition=each, state_epoch=state_epoch, start_offset=start_offset
            )
            for each in partitions or (0,)
        ]
        return self.ask(INITIALIZE, *made, topic_id=topic_id)

    def write(
        self, *batches: tuple[int, int, int, int], start_offset: int = -1, partition: int = 0
    ) -> Any:
        made = [
            write.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ]
        data = write.PartitionData(
            partition=partition,
            state_epoch=0,
            leader_epoch=0,
            start_offset=start_offset,
            state_batches=made,
        )
        (result,) = self.ask(WRITE, data)
        return result

    def read(self, leader_epoch: int = 0) -> Any:
        (result,) = self.ask(READ, read.PartitionData(partition=0, leader_epoch=leader_epoch))
        return result

    def summarize(self, *partitions: int) -> list[Any]:
        made = [summary.PartitionData(partition=each, leader_epoch=0) for each in partitions]
        return self.ask(READ_SUMMARY, *made)
