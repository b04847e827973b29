"""What a consumer asks the cluster beside reading: offsets, commits, topics; as calls to start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from barnabas.client.list_offsets import ListedOffset, OffsetLookup, offset_spec
from barnabas.client.retrying import OnDone, RetryingCall
from barnabas.client.topic_lookup import TopicLookup
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.errors import ClientError
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.metadata_cache import PartitionInfo, TopicInfo

__all__ = ["Lookups", "Start", "flat_partitions", "listing_specs"]

T = TypeVar("T")
# Begins a call that ends with `OnDone`.
Start: TypeAlias = "Callable[[OnDone[T]], None]"
_MS_PER_S = 1000.0


def flat_partitions(
    given: Iterable[tuple[str, int] | Iterable[tuple[str, int]]],
) -> list[TopicPartition]:
    """Partitions given one by one, or as a collection."""
    found: list[TopicPartition] = []
    for item in given:
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            found.append(TopicPartition(*item))
        else:
            found += [TopicPartition(*tp) for tp in item]
    return found


def listing_specs(given: Mapping[tuple[str, int], str | int]) -> dict[TopicPartition, int]:
    """What ListOffsets is to be asked: times in ms, or the names of ends."""
    return {TopicPartition(*tp): offset_spec(spec) for tp, spec in given.items()}


class Lookups:
    """The look-ups of one consumer; time-outs are seconds, None is default.api.timeout.ms."""

    def __init__(self, cluster: Cluster, core: ConsumerCore) -> None:
        self._cluster = cluster
        self._core = core
        self._config = cluster.config

    def _ms(self, timeout: float | None) -> float:
        return self._config.default_api_timeout_ms if timeout is None else timeout * _MS_PER_S

    def offsets(
        self, specs: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> Start[dict[TopicPartition, ListedOffset]]:
        """Offsets by time."""
        isolation = int(self._config.isolation_level == "read_committed")

        def start(on_done: OnDone[dict[TopicPartition, ListedOffset]]) -> None:
            OffsetLookup(self._cluster, specs, isolation, self._ms(timeout), on_done).start()

        return start

    def committed(
        self, partitions: list[TopicPartition], timeout: float | None
    ) -> Start[dict[TopicPartition, CommittedOffset]]:
        """The group's committed offsets."""
        speaker = self._core.generation
        return partial(self._core.offsets.committed, speaker, partitions, self._ms(timeout))

    def partitions(self, topic: str, timeout: float | None) -> Start[list[PartitionInfo]]:
        """The partitions of one topic."""

        def start(on_done: OnDone[list[PartitionInfo]]) -> None:
            def on_found(found: dict[str, TopicInfo] | None, error: ClientError | None) -> None:
                on_done(None if found is None else _partitions(found[topic]), error)

            TopicLookup(self._cluster, [topic], self._ms(timeout), on_found).start()

        return start

    def topics(self, timeout: float | None) -> Start[dict[str, list[PartitionInfo]]]:
        """All topics."""

        def attempt(done: OnDone[dict[str, list[PartitionInfo]]]) -> None:
            def on_refreshed(_none: None, error: ClientError | None) -> None:
                topics = self._cluster.metadata.topics.values()
                found = {topic.name: _partitions(topic) for topic in topics}
                done(found if error is None else None, error)

            self._cluster.refresh(None, on_refreshed)

        def start(on_done: OnDone[dict[str, list[PartitionInfo]]]) -> None:
            cluster = self._cluster
            RetryingCall(
                cluster.runtime,
                cluster.retry_backoff,
                self._ms(timeout),
                "list of topics",
                attempt,
                on_done,
            ).start()

        return start


def _partitions(topic: TopicInfo) -> list[PartitionInfo]:
    return [topic.partitions[number] for number in sorted(topic.partitions)]
