"""One request to the share coordinator, with a window of its share partitions at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.protocol.api_table import ApiKey
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.coordinator.share.share_metrics import ShareMetrics
    from barnabas.coordinator.share.share_shard import ShareShard
    from barnabas.coordinator.share.state_api import StateApi
    from barnabas.coordinator.share.state_outcome import StateOutcome
    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.schema import Message

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
        runtime: CoordinatorRuntime[ShareShard],
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

        def operation(shard: ShareShard) -> CoordinatorResult[StateOutcome]:
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
