"""The share coordinator of a broker (Kafka's ShareCoordinatorService, KIP-932).

The path of a request: handler or persister -> `StateRequest` -> runtime -> `ShareStateShard` ->
response and records. A `StateRequest` has a window of its share partitions at a time. Periodic
tasks write snapshots of cold share partitions, and delete old records. They run only while share
groups are enabled, as in Kafka.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.loader import load_time_families
from barnabas.coordinator.runtime.responses import client_error
from barnabas.coordinator.share.share_partition_state import SharePartitionKey
from barnabas.coordinator.share.share_shard import ShareMetrics, ShareStateShard
from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator

    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shard import ShardContext
    from barnabas.coordinator.share.config import ShareCoordinatorConfig
    from barnabas.coordinator.share.share_partition_state import StateOutcome
    from barnabas.coordinator.share.share_shard import HasPartition
    from barnabas.coordinator.share.state_api import StateApi
    from barnabas.protocol.schema import Message
    from barnabas.storage.topic_partition import TopicPartition

    # Deletes the records below an offset; calls its last argument once with the result.
    DeleteRecords = Callable[[TopicPartition, int, Callable[[ErrorCode], None]], None]

_log = logging.getLogger(__name__)


_INITIALIZE = ApiKey.INITIALIZE_SHARE_GROUP_STATE
# Maximum number of share partitions of a request that wait for a commit at the same time.
_WINDOW = 1_000


class StateRequest:
    """Applies a request to each of its share partitions, and collects the results."""

    __slots__ = (
        "_api",
        "_is_parked",
        "_latest",
        "_metrics",
        "_pending",
        "_results",
        "_resume",
        "_runtime",
        "_started_ms",
        "_work",
    )

    def __init__(
        self,
        runtime: CoordinatorRuntime[ShareStateShard],
        metrics: ShareMetrics,
        api: StateApi,
        request: Any,
        resume: Callable[[], None],
    ) -> None:
        """Create the request; `steps` begins it.

        Args:
            runtime: the shards.
            metrics: records the durations of writes.
            api: the API of the request.
            request: any of the messages of `StateApi`.
            resume: called when `steps` has returned None and can continue: call it again.
        """
        self._runtime = runtime
        self._metrics = metrics
        self._started_ms = runtime.now_ms()
        self._api = api
        self._resume = resume
        is_empty = not request.group_id or not all(topic.partitions for topic in request.topics)
        # Share partitions that are not submitted yet, with their parts of the request.
        self._work = iter(()) if is_empty else _parts(request)
        # Number of submitted share partitions without a result.
        self._pending = 0
        # Whether `steps` has returned None, and is not resumed yet.
        self._is_parked = False
        # Results by topic id and partition, and the number of the submission that each is of.
        self._results: dict[bytes, dict[int, Any]] = {}
        self._latest: dict[SharePartitionKey, int] = {}

    def steps(self) -> Generator[None, None, Message | None]:
        """Submit share partitions; return the response, or None if `resume` will be called."""
        for number, (key, requested) in self._work:
            self._submit(number, key, requested)
            yield
            if self._pending >= _WINDOW:
                break
        if self._pending:
            self._is_parked = True
            return None
        topics = {}
        for topic_id, results in self._results.items():
            topics[topic_id] = yield from gradually(results.values())
        if self._api.key is ApiKey.WRITE_SHARE_GROUP_STATE:
            now_ms = self._runtime.now_ms()
            self._metrics.write_times.record(now_ms - self._started_ms, now_ms)
        # The caller's function may refer to this object: end the cycle.
        self._resume = _nothing
        return self._api.make_response(topics.items())

    def _submit(self, number: int, key: SharePartitionKey, requested: Any) -> None:
        # A repeated share partition has the result of its last part, as in Kafka.
        self._latest[key] = number
        self._results.setdefault(key.topic_id, {}).setdefault(key.partition)
        self._pending += 1
        api = self._api

        def operation(shard: ShareStateShard) -> CoordinatorResult[StateOutcome]:
            return api.operation(shard, key, requested)

        on_done = partial(self._on_done, number, key)
        if api.key is _INITIALIZE:
            self._runtime.write_jointly(key.coordinator_key, operation, on_done)
        else:
            # Writes of states prepare their replay, which must follow at once.
            self._runtime.write(key.coordinator_key, operation, on_done)

    def _on_done(
        self, number: int, key: SharePartitionKey, outcome: StateOutcome | None, error: ErrorCode
    ) -> None:
        if self._latest[key] == number:
            found = self._results[key.topic_id]
            if outcome is not None:
                found[key.partition] = self._api.result(key.partition, outcome)
            else:
                refusal = client_error(error)
                message = f"cannot {self._api.action}: {refusal.message}"
                found[key.partition] = self._api.refuse(key.partition, refusal, message)
        self._pending -= 1
        if self._is_parked and not self._pending:
            self._is_parked = False
            self._resume()


def _nothing() -> None:
    """Do nothing: the request has its response."""


def _parts(request: Any) -> Iterator[tuple[int, tuple[SharePartitionKey, Any]]]:
    """Yield each share partition with its part of the request, numbered."""
    return enumerate(
        (SharePartitionKey(request.group_id, topic.topic_id, each.partition), each)
        for topic in request.topics
        for each in topic.partitions
    )


_PRUNE, _SNAPSHOT = "prune", "snapshot cold share partitions"
# Limits of one batch of snapshots: share partitions, and state batches beyond which none is added.
_SNAPSHOTS_MAX = 100
_STATE_BATCHES = 2_000
# Errors of a state partition that has moved to another broker.
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class ShareTasks:
    """The periodic tasks of one state partition, in one leader epoch."""

    __slots__ = (
        "_config",
        "_context",
        "_delete_records",
        "_is_enabled",
        "_remaining",
        "_shard",
        "pruned_offset",
    )

    _shard: ShareStateShard

    def __init__(
        self,
        context: ShardContext,
        config: ShareCoordinatorConfig,
        is_enabled: Callable[[], bool],
        delete_records: DeleteRecords,
    ) -> None:
        """Create the tasks. `start` schedules them.

        Args:
            context: the state partition and its timers.
            config: the intervals.
            is_enabled: returns whether share groups are enabled.
            delete_records: deletes records of the state partition.
        """
        self._context = context
        self._config = config
        self._is_enabled = is_enabled
        self._delete_records = delete_records
        # Share partitions that the current run of snapshots has not reached yet.
        self._remaining: list[SharePartitionKey] = []
        # Records below this offset are deleted; -1 before the first deletion. Only increases.
        self.pruned_offset = -1

    def start(self, shard: ShareStateShard) -> None:
        """Schedule the tasks of a loaded shard."""
        self._shard = shard
        self._schedule_prune()
        self._schedule_snapshots(self._interval_ms)

    # Deletion of redundant records.

    def _schedule_prune(self) -> None:
        delay_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        self._context.timers.schedule(_PRUNE, delay_ms, self._prune)

    def _prune(self) -> CoordinatorResult[None]:
        self._schedule_prune()
        end_offset = self._shard.redundant.end_offset
        if not self._is_enabled() or end_offset <= max(self.pruned_offset, 0):
            return CoordinatorResult(None)
        # The snapshots must be committed before the older records are deleted.
        return CoordinatorResult(None, on_appended=partial(self._on_prunable, end_offset))

    def _on_prunable(self, end_offset: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            key = self._context.topic_partition
            self._delete_records(key, end_offset, partial(self._on_pruned, end_offset))

    def _on_pruned(self, end_offset: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.pruned_offset = max(self.pruned_offset, end_offset)
        elif error not in _MOVED:
            _log.error(
                "Redundant records could not be deleted: partition=%s end_offset=%d error=%s",
                self._context.topic_partition,
                end_offset,
                error.name,
            )

    # Snapshots of cold share partitions.

    @property
    def _interval_ms(self) -> int:
        return self._config.share_coordinator_cold_partition_snapshot_interval_ms

    def _schedule_snapshots(self, delay_ms: float) -> None:
        self._context.timers.schedule(_SNAPSHOT, delay_ms, self._snapshot_cold)

    def _snapshot_cold(self) -> CoordinatorResult[None]:
        """Append the snapshots of some share partitions; the next turn continues."""
        shard = self._shard
        if not self._remaining and self._is_enabled() and shard.has_cold_partitions:
            self._remaining = list(shard.partitions)
        records = shard.snapshot_cold(self._take(), self._interval_ms)
        self._schedule_snapshots(0 if self._remaining else self._interval_ms)
        return CoordinatorResult(None, records, on_appended=self._on_snapshots)

    def _take(self) -> list[SharePartitionKey]:
        """Remove and return as many share partitions as one batch may have."""
        taken: list[SharePartitionKey] = []
        state_batches = 0
        while self._remaining and len(taken) < _SNAPSHOTS_MAX and state_batches < _STATE_BATCHES:
            key = self._remaining.pop()
            known = self._shard.partitions.get(key)
            if known is not None:
                taken.append(key)
                state_batches += len(known.state.state_batches)
        return taken

    def _on_snapshots(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE and error not in _MOVED:
            _log.error(
                "Snapshots of cold share partitions could not be written: partition=%s error=%s",
                self._context.topic_partition,
                error.name,
            )


SHARE_GROUP_TOPIC = "__share_group_state"


class ShareDependencies(msgspec.Struct, frozen=True):
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
        runtime_dependencies: RuntimeDependencies,
        dependencies: ShareDependencies,
    ) -> None:
        self.metrics = ShareMetrics()
        # Tasks of the state partitions by index, of the last leader epoch in which each was led.
        self.tasks: dict[int, ShareTasks] = {}

        def make_shard(context: ShardContext) -> ShareStateShard:
            tasks = ShareTasks(
                context, config, dependencies.is_enabled, dependencies.delete_records
            )
            self.tasks[context.topic_partition.partition] = tasks
            return ShareStateShard(
                config.share_coordinator_snapshot_update_records_per_snapshot,
                runtime_dependencies.clock,
                dependencies.has_partition,
                self.metrics,
                tasks.start,
            )

        self.runtime: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            SHARE_GROUP_TOPIC, runtime_dependencies, make_shard
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


def share_families(coordinator: ShareCoordinator) -> Iterator[MetricFamily]:
    """Yield the measurements of writes, and the current numbers of the state partitions."""
    metrics, runtime = coordinator.metrics, coordinator.runtime
    now_ms = runtime.now_ms()
    average, maximum = metrics.write_times.average(now_ms), metrics.write_times.maximum(now_ms)
    share_partitions = sum(len(shard.partitions) for shard in runtime.active_shards())
    for name, value in (
        (names.SHARE_WRITES, metrics.writes),
        (names.SHARE_WRITE_RATE, metrics.written.rate(now_ms)),
        (names.SHARE_WRITE_TIME_AVG, math.nan if average is None else average),
        (names.SHARE_WRITE_TIME_MAX, math.nan if maximum is None else maximum),
        (names.SHARE_PARTITIONS, share_partitions),
    ):
        yield MetricFamily(name, [((), value)])
    yield from load_time_families(
        runtime.load_times, now_ms, (names.SHARE_LOAD_TIME_AVG, names.SHARE_LOAD_TIME_MAX)
    )
    yield MetricFamily(
        names.SHARE_STATE_PARTITIONS,
        [((("state", each.value),), count) for each, count in runtime.state_counts().items()],
    )
    yield MetricFamily(
        names.SHARE_PRUNED_OFFSET,
        [
            ((("topic", runtime.topic), ("partition", str(partition))), tasks.pruned_offset)
            for partition, tasks in coordinator.tasks.items()
            if tasks.pruned_offset >= 0 and runtime.state(partition) is not None
        ],
    )
