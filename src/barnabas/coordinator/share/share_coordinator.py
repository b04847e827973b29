"""The share coordinator of a broker (Kafka's ShareCoordinatorService, KIP-932).

The path of a request: handler or persister -> `StateRequest` -> runtime -> `ShareShard` -> response
and records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.share.share_metrics import ShareMetrics
from barnabas.coordinator.share.share_shard import ShareShard
from barnabas.coordinator.share.share_tasks import ShareTasks
from barnabas.coordinator.share.state_request import StateRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shards.shard_context import ShardContext
    from barnabas.coordinator.share.config import ShareCoordinatorConfig
    from barnabas.coordinator.share.share_shard import HasPartition
    from barnabas.coordinator.share.share_tasks import DeleteRecords
    from barnabas.coordinator.share.state_api import StateApi
    from barnabas.protocol.errors import ErrorCode

SHARE_GROUP_TOPIC = "__share_group_state"


class ShareSurroundings(msgspec.Struct, frozen=True):
    """Dependencies of the share coordinator besides those of its runtime."""

    # Returns whether the topic with this id has the partition.
    has_partition: HasPartition
    # Returns whether share groups are enabled: share.version is 1.
    is_enabled: Callable[[], bool]
    # Deletes the records of a state partition below an offset.
    delete_records: DeleteRecords


class ShareCoordinator:
    """The share partitions whose partition of `__share_group_state` this broker leads."""

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        dependencies: RuntimeDependencies,
        surroundings: ShareSurroundings,
    ) -> None:
        self.metrics = ShareMetrics()
        # Tasks of the state partitions by index, of the last leader epoch in which each was led.
        self.tasks: dict[int, ShareTasks] = {}

        def make_shard(context: ShardContext) -> ShareShard:
            tasks = ShareTasks(
                context, config, surroundings.is_enabled, surroundings.delete_records
            )
            self.tasks[context.topic_partition.partition] = tasks
            return ShareShard(
                config.share_coordinator_snapshot_update_records_per_snapshot,
                dependencies.clock,
                surroundings.has_partition,
                self.metrics,
                tasks.start,
            )

        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            SHARE_GROUP_TOPIC, dependencies, make_shard
        )

    def request(self, api: StateApi, request: Any, resume: Callable[[], None]) -> StateRequest:
        """Return a request that is ready to run, see `StateRequest`."""
        return StateRequest(self.runtime, self.metrics, api, request, resume)

    def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Delete the state of all share partitions of these topics."""
        for partition in self.runtime.active_partitions():
            self._forget(partition, topic_ids)

    def _forget(self, partition: int, topic_ids: Collection[bytes]) -> None:
        def on_done(has_more: bool | None, _error: ErrorCode) -> None:
            if has_more:
                self._forget(partition, topic_ids)

        self.runtime.write_to(partition, lambda shard: shard.forget_topics(topic_ids), on_done)
