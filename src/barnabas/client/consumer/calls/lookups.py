"""Requests of a consumer other than fetches: offsets, commits and topics, as functions to start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from barnabas.client.connections.topic_lookup import TopicLookup
from barnabas.client.consumer.assignment.topic_partition_state import OffsetReset
from barnabas.client.consumer.commits import as_offsets
from barnabas.client.fetch.offset_lookups import OffsetLookup
from barnabas.client.retries import OnDone, RetryingCall
from barnabas.client.topic_partition import (
    TopicPartition,
    as_partition,
    as_partitions,
    by_partition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.errors import ClientError
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import K

__all__ = ["Lookups", "Start", "flat_partitions"]

T = TypeVar("T")
U = TypeVar("U")
# A function that starts a call; the call ends by calling the given `OnDone`.
Start: TypeAlias = "Callable[[OnDone[T]], None]"
_MS_PER_S = 1000.0


def flat_partitions(
    given: Iterable[tuple[str, int] | Iterable[tuple[str, int]]],
) -> list[TopicPartition]:
    """Return partitions as one list; each argument is a partition or a collection of partitions."""
    found: list[TopicPartition] = []
    for item in given:
        # A plain string is not a collection of partitions; `as_partition` rejects it.
        if isinstance(item, str) or (isinstance(item, tuple) and item and isinstance(item[0], str)):
            found.append(as_partition(item))
        else:
            found += map(as_partition, item)
    return found


def _mapped(start: Start[T], change: Callable[[T], U]) -> Start[U]:
    """Return a start function whose result is converted by `change`."""

    def changed(on_done: OnDone[U]) -> None:
        def on_result(result: T | None, error: ClientError | None) -> None:
            on_done(None if result is None else change(result), error)

        start(on_result)

    return changed


class Lookups:
    """The lookups of one consumer. Timeouts are in seconds; None means default.api.timeout.ms."""

    def __init__(self, cluster: Cluster, core: ConsumerCore) -> None:
        self._cluster = cluster
        self._core = core
        self._config = cluster.config

    def _ms(self, timeout: float | None) -> float:
        return self._config.default_api_timeout_ms if timeout is None else timeout * _MS_PER_S

    def _offsets(
        self, specs: Mapping[TopicPartition, int], timeout: float | None
    ) -> Start[dict[TopicPartition, ListedOffset]]:
        isolation = int(self._config.isolation_level == "read_committed")

        def start(on_done: OnDone[dict[TopicPartition, ListedOffset]]) -> None:
            OffsetLookup(self._cluster, specs, isolation, self._ms(timeout), on_done).start()

        return start

    def ends(
        self, partitions: Iterable[tuple[str, int]], which: int, timeout: float | None
    ) -> Start[dict[TopicPartition, int]]:
        """Look up the offsets for EARLIEST or LATEST."""
        specs = dict.fromkeys(as_partitions(partitions), which)

        def offsets(found: dict[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
            return {tp: listed.offset for tp, listed in found.items()}

        return _mapped(self._offsets(specs, timeout), offsets)

    def times(
        self, timestamps: Mapping[K, int], timeout: float | None
    ) -> Start[dict[TopicPartition, ListedOffset | None]]:
        """Look up the first records at or after these timestamps (ms); None where there is none.

        Raises:
            ValueError: A timestamp is negative.
        """
        specs = by_partition(timestamps)
        for tp, timestamp in specs.items():
            if timestamp < 0:
                raise ValueError(f"{tp}: the timestamp is negative: {timestamp}")

        def present(
            found: dict[TopicPartition, ListedOffset],
        ) -> dict[TopicPartition, ListedOffset | None]:
            return {tp: None if at.offset < 0 else at for tp, at in found.items()}

        return _mapped(self._offsets(specs, timeout), present)

    def committed(
        self, partitions: Iterable[tuple[str, int]], timeout: float | None
    ) -> Start[dict[TopicPartition, CommittedOffset | None]]:
        """Fetch the group's committed offsets; None where there is none."""
        wanted = as_partitions(partitions)
        core = self._core
        start = partial(core.offsets.committed, lambda: core.generation, wanted, self._ms(timeout))

        def all_wanted(
            found: dict[TopicPartition, CommittedOffset],
        ) -> dict[TopicPartition, CommittedOffset | None]:
            return {tp: found.get(tp) for tp in wanted}

        return _mapped(start, all_wanted)

    def commit(
        self,
        offsets: Mapping[K, int | CommittedOffset] | None,
        timeout: float | None,
    ) -> Start[bool]:
        """Commit these offsets; None for all positions.

        Raises:
            InvalidGroupIdError: `group.id` is missing or blank.
            ValueError: An offset is negative.
        """
        core = self._core
        _ = core.group_id
        wanted = core.commits.consumed() if offsets is None else as_offsets(offsets)
        return partial(core.commits.commit, wanted, self._ms(timeout))

    def seek_to_time(
        self, timestamp_ms: int, partitions: Iterable[tuple[str, int] | Iterable[tuple[str, int]]]
    ) -> Start[bool]:
        """Seek to the first record at or after a timestamp (ms), or to the end if there is none.

        Raises:
            SubscriptionError: A partition is not assigned.
        """
        subscription, positions = self._core.subscription, self._core.positions
        wanted = flat_partitions(partitions) or list(subscription.assignment)
        for tp in wanted:
            subscription.partition(tp)

        def seek(found: dict[TopicPartition, ListedOffset | None]) -> bool:
            for tp, listed in found.items():
                if tp not in subscription.assignment:
                    continue
                if listed is None:
                    positions.reset(tp, OffsetReset.latest())
                else:
                    positions.seek(tp, listed.offset)
            return True

        return _mapped(self.times(dict.fromkeys(wanted, timestamp_ms), None), seek)

    def partitions(self, topic: str, timeout: float | None) -> Start[list[PartitionInfo]]:
        """Look up the partitions of one topic, in order of their numbers."""

        def start(on_done: OnDone[list[PartitionInfo]]) -> None:
            def on_found(found: dict[str, TopicInfo] | None, error: ClientError | None) -> None:
                on_done(None if found is None else _partitions(found[topic]), error)

            TopicLookup(self._cluster, [topic], self._ms(timeout), on_found).start()

        return start

    def topics(self, timeout: float | None) -> Start[dict[str, list[PartitionInfo]]]:
        """Look up all topics and their partitions."""

        def attempt(done: OnDone[dict[str, list[PartitionInfo]]]) -> None:
            def on_refreshed(_none: None, error: ClientError | None) -> None:
                topics = self._cluster.metadata.topics.values()
                found = {topic.name: _partitions(topic) for topic in topics}
                done(found if error is None else None, error)

            self._cluster.refresh(None, on_refreshed)

        def start(on_done: OnDone[dict[str, list[PartitionInfo]]]) -> None:
            cluster = self._cluster
            RetryingCall(
                cluster.retry_timer(self._ms(timeout)),
                "list of topics",
                attempt,
                on_done,
            ).start()

        return start


def _partitions(topic: TopicInfo) -> list[PartitionInfo]:
    return [topic.partitions[number] for number in sorted(topic.partitions)]
