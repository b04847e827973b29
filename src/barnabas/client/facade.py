"""The blocking API of the client: each call returns when it is done, over a private event loop.

The client shares one `Session` with the producers and streams that it creates. It has no thread,
and only the thread and process that created it may use it.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.connections.lookups import Sought, TopicLookup, look_up_all_topics
from barnabas.client.errors import ClientError
from barnabas.client.fetch.offset_lookups import ListedOffset, OffsetLookup, offset_spec
from barnabas.client.fetch.record_stream import RecordStream
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets, offsets_of
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.session import Session, await_broker
from barnabas.client.topic_partition import (
    TopicPartition,
    as_partition,
    as_partitions,
    by_partition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.client.admin.admin import AdminClient
    from barnabas.client.admin.cluster import ClusterDescription
    from barnabas.client.admin.configs import ConfigEntry, ConfigResource
    from barnabas.client.admin.topics import NewTopic
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.errors import BrokerError, NoBrokersError
    from barnabas.client.fetch.record_set import RecordSet
    from barnabas.client.producer.producer import SharedProducer
    from barnabas.client.retries import OnDone

    PartitionKey = tuple[str, int]

__all__ = ["Client"]

T = TypeVar("T")
_MS_PER_S = 1000.0
# A TopicPartition or a plain (topic, partition) tuple.
K = TypeVar("K", bound="tuple[str, int]")


class Client(ClosedByUser, WithBlock):
    """A client of a cluster, for scripts, the command line and the Spark source.

    Use it in a `with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: Keys of Kafka's clients with "_" for "."; `**{"fetch.min.bytes": 1}` works too.

    Raises:
        ClientError: Any call may raise it or a subclass; the message says what to check.
        ClientConfigError: A config key is unknown or its value is invalid.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | None = None, /, **config: Any
    ) -> None:
        self.config = ClientConfig.parse(keys_with_servers(bootstrap_servers, config))
        self._session = Session(self.config)
        self._cluster = self._session.cluster
        self._groups = GroupOffsets(self._cluster, self._session.coordinators)
        self._wait = self._session.waiter.wait
        # Open producers and streams of this client; they remove themselves when they are closed.
        self._producers: list[SharedProducer] = []
        self._streams: list[RecordStream] = []
        self._watch(self._session.lifetime)

    # Closing

    def _give_up(self) -> None:
        self.close(flush=False)

    def close(self, *, flush: bool = True) -> None:
        """Close all connections, after producers have delivered their queued records.

        Args:
            flush: Whether producers deliver their queued records first.

        Raises:
            ClientError: A producer could not deliver its records; the client is closed anyway.
        """
        session = self._session
        if session.lifetime.is_closed or session.lifetime.is_forked:
            session.close()
            return
        try:
            for producer in list(self._producers):
                producer.close(flush=flush)
        finally:
            for stream in list(self._streams):
                stream.close()
            session.close()

    def _undelivered(self) -> int:
        return sum(producer._undelivered() for producer in self._producers)

    @property
    def _has_transaction(self) -> bool:
        return any(producer._has_transaction for producer in self._producers)

    def _close_at_exit(self, timeout: float) -> None:
        self._session.check_idle()
        clock = self._session.runtime.clock
        end_ms = clock.monotonic_ms() + timeout * _MS_PER_S
        errors: list[ClientError] = []
        for producer in list(self._producers):
            try:
                producer.close(max(0.0, end_ms - clock.monotonic_ms()) / _MS_PER_S)
            except ClientError as error:
                errors.append(error)
        self.close(flush=False)
        if errors:
            raise errors[0]

    def await_broker(
        self,
        timeout_ms: float,
        *,
        notice_ms: float = 1_000,
        on_notice: Callable[[NoBrokersError], None] = lambda _error: None,
    ) -> None:
        """Wait until any broker responds.

        Unlike this method, other calls retry for default.api.timeout.ms without a notice.

        Args:
            timeout_ms: Limit of the wait (ms).
            notice_ms: Call `on_notice` after this time (ms) without a response.
            on_notice: Called at most once, with the results of the connection attempts so far.

        Raises:
            NoBrokersError: No broker responded within the limit.
        """
        await_broker(self._session, timeout_ms, notice_ms, on_notice)

    def notify_long_wait(self, after_ms: float, on_long_wait: Callable[[], None]) -> None:
        """Call a function once, at the first call of this client that takes long.

        Args:
            after_ms: Duration of a call after which the function is called (ms).
            on_long_wait: Called during the wait, which then goes on.
        """
        self._session.waiter.notify_long_wait(after_ms, on_long_wait)

    def limit_total(self, timeout_ms: float) -> None:
        """Limit the duration of all further calls of this client together.

        When the limit is reached, calls raise TimeoutError, which is not a ClientError. Streams and
        producers are not limited.

        Args:
            timeout_ms: Sum of the durations (ms).
        """
        self._session.waiter.limit_total(timeout_ms)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"Client({servers!r})"

    # Topics and offsets

    def topics(
        self, pattern: str | re.Pattern[str] | None = None, *, internal: bool = False
    ) -> list[str]:
        """Return the sorted names of all topics.

        Args:
            pattern: Only topics whose full name matches this regular expression; None for all.
            internal: Whether to include internal topics such as __consumer_offsets.
        """
        found = self._all_topics()
        names = [name for name, topic in found.items() if internal or not topic.is_internal]
        if pattern is not None:
            compiled = re.compile(pattern)
            names = [name for name in names if compiled.fullmatch(name)]
        return sorted(names)

    def _all_topics(self) -> dict[str, TopicInfo]:
        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            look_up_all_topics(self._cluster, self.config.default_api_timeout_ms, on_done)

        return self._wait(start, "list of topics")

    def describe_topics(
        self, topics: Iterable[str] | None = None, *, may_be_new: bool = True
    ) -> dict[str, TopicInfo]:
        """Return id, partitions, leaders and replicas of topics, by name.

        Args:
            topics: Names; a single name is allowed; None for all topics.
            may_be_new: Whether to ask again, for about 1.5 s, for a topic that the broker does not
                know. Another client may have created it just now.

        Raises:
            UnknownTopicError: A topic does not exist.
        """
        if topics is None:
            return self._all_topics()
        wanted = [topics] if isinstance(topics, str) else list(topics)
        timeout_ms = self.config.default_api_timeout_ms

        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            sought = Sought(may_be_new=may_be_new)
            TopicLookup(self._cluster, wanted, timeout_ms, on_done, sought).start()

        return self._wait(start, "metadata") if wanted else {}

    def partitions_for(
        self, topics: Iterable[str], *, may_be_new: bool = True
    ) -> dict[str, list[int]]:
        """Return the partition numbers of topics, ascending, by topic name.

        Args:
            topics: Names; a single name is allowed.
            may_be_new: As for `describe_topics`.

        Raises:
            UnknownTopicError: A topic does not exist.
        """
        found = self.describe_topics(topics, may_be_new=may_be_new)
        return {name: sorted(topic.partitions) for name, topic in found.items()}

    def list_offsets(
        self, specs: Mapping[K, str | int], *, isolation_level: str | None = None
    ) -> dict[K, ListedOffset]:
        """Return offsets by timestamp, or the ends of partitions.

        Args:
            specs: For each (topic, partition) a timestamp in ms, or "earliest", "latest",
                "max-timestamp", "earliest-local", "latest-tiered" or "earliest-pending-upload". A
                timestamp selects the first record at or after it; the offset is -1 if there is
                none.
            isolation_level: With "read_committed", "latest" is the last stable offset. None for
                isolation.level of the configuration.

        Raises:
            UnknownTopicError: A topic or partition does not exist.
            ValueError: A spec is neither a number nor a known name.
        """
        level = isolation_level or self.config.isolation_level
        wanted = {as_partition(tp): offset_spec(spec) for tp, spec in specs.items()}

        def start(on_done: OnDone[dict[TopicPartition, ListedOffset]]) -> None:
            timeout_ms = self.config.default_api_timeout_ms
            isolation = int(level == "read_committed")
            OffsetLookup(self._cluster, wanted, isolation, timeout_ms, on_done).start()

        found = self._wait(start, "offsets")
        return {key: found[as_partition(key)] for key in specs}

    # Reading

    def fetch_range(self, ranges: Mapping[K, tuple[int, int]]) -> Iterator[RecordSet]:
        """Read ranges of offsets as raw record sets, with prefetch while the caller works.

        Args:
            ranges: For each (topic, partition) the first offset and the end offset (exclusive).

        Yields:
            Record sets, in order within a partition; partitions are interleaved. The iteration ends
                when the *position* of every partition has reached its end. Compaction gaps and
                transaction markers count as read.

        Raises:
            OffsetOutOfRangeError: A range begins before the start or after the end of the log.
            RangeStalledError: No data arrived for default.api.timeout.ms before the end was
                reached.
        """
        with self.stream(ranges) as stream:
            yield from stream.sets()

    def stream(self, ranges: Mapping[K, tuple[int, int | None]]) -> RecordStream:
        """Read partitions from an offset to an exclusive end, or without end if it is None.

        The stream returns raw record sets or records; see `RecordStream`. Close it after use.
        """
        self._session.check_usable()
        stream = RecordStream(
            self._cluster,
            self._session.waiter,
            by_partition(ranges),
            self._streams.remove,
        )
        self._streams.append(stream)
        return stream

    # Writing

    def producer(self, **config: Any) -> SharedProducer:
        """Return a producer over this client's connections.

        Args:
            config: Config keys that override the client's.
        """
        from barnabas.client.producer.partitioner import check_partitioner
        from barnabas.client.producer.producer import SharedProducer
        from barnabas.client.producer.user_objects import take_parts

        self._session.check_usable()
        parts, keys = take_parts(config)
        producer = SharedProducer(
            self._session,
            check_partitioner(self.config.override(keys)),
            self._producers.remove,
            parts,
        )
        self._producers.append(producer)
        return producer

    # Groups

    def commit_offsets(self, group: str, offsets: Mapping[K, int | CommittedOffset]) -> None:
        """Commit offsets for a group that has no members.

        Args:
            group: The group's id.
            offsets: For each partition the offset of the next record to read.

        Raises:
            BrokerError: The coordinator refused the commit, for example because the group has
                members.
        """
        wanted = offsets_of(offsets)
        timeout_ms = self.config.default_api_timeout_ms

        def start(on_done: OnDone[bool]) -> None:
            ids = self._groups.current_ids(wanted)
            self._groups.commit(group, wanted, ids, timeout_ms, on_done)

        self._wait(start, "commit")

    def committed(
        self, group: str, partitions: Iterable[PartitionKey] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets; partitions without one are omitted.

        Args:
            group: The group's id.
            partitions: (topic, number) pairs; None for all partitions.
        """
        wanted = None if partitions is None else as_partitions(partitions)
        timeout_ms = self.config.default_api_timeout_ms

        def start(on_done: OnDone[dict[TopicPartition, CommittedOffset]]) -> None:
            self._groups.committed(group, wanted, timeout_ms, on_done)

        return self._wait(start, "committed offsets")

    # Admin

    # Imported at its first use: the modules of the admin calls take half of the client's imports,
    # and each worker of Spark imports the client.
    @cached_property
    def admin(self) -> AdminClient:
        """All admin calls; the methods below cover the most frequent ones."""
        from barnabas.client.admin.admin import AdminClient

        session = self._session
        return AdminClient(self._cluster, session.coordinators, session.waiter)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, raise_errors: bool = True
    ) -> dict[str, BrokerError | None]:
        """Create topics and wait until they have leaders.

        Args:
            topics: The new topics.
            validate_only: Whether to check the request without creating topics.
            raise_errors: Whether to raise if any topic was not created.

        Returns:
            An error or None for each topic; TOPIC_ALREADY_EXISTS for an existing topic.

        Raises:
            AdminResultsError: Some topics were not created, and `raise_errors` is True.
        """
        from barnabas.client.admin.sender import errors_of, raise_failed, run
        from barnabas.client.admin.topics import create_topic_ids

        plan = create_topic_ids(self.admin.sender, list(topics), validate_only=validate_only)
        ids = run(plan, self._session.waiter)
        created = {name: each for name, each in ids.items() if isinstance(each, bytes)}
        if created and not validate_only:
            self._wait_for_leaders(created)
        result = errors_of(ids)
        if raise_errors:
            raise_failed(result)
        return result

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic and wait until it has leaders.

        Args:
            name: Name of the topic.
            partitions: Number of partitions; -1 for the broker's default.
            replication_factor: Replicas per partition; -1 for the broker's default.
            configs: Topic configs.

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, ...
        """
        from barnabas.client.admin.topics import NewTopic

        new = NewTopic(name, partitions, replication_factor, configs or {})
        error = self.create_topics([new], raise_errors=False)[name]
        if error is not None:
            raise error

    def _wait_for_leaders(self, ids: dict[str, bytes]) -> None:
        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            timeout_ms = self.config.default_api_timeout_ms
            TopicLookup(self._cluster, ids, timeout_ms, on_done, Sought(created_ids=ids)).start()

        self._wait(start, "leaders of new topics")

    def delete_topics(
        self, names: Iterable[str], *, raise_errors: bool = True
    ) -> dict[str, BrokerError | None]:
        """Delete topics; return an error or None for each.

        Raises:
            AdminResultsError: Some topics were not deleted, and `raise_errors` is True.
        """
        return self.admin.delete_topics(names, raise_errors=raise_errors)

    def create_partitions(
        self, counts: Mapping[str, int], *, raise_errors: bool = True
    ) -> dict[str, BrokerError | None]:
        """Increase the number of partitions of topics; return an error or None for each.

        Args:
            counts: The new total number of partitions, by topic.
            raise_errors: Whether to raise if any topic was not changed.

        Raises:
            AdminResultsError: Some topics were not changed, and `raise_errors` is True.
        """
        return self.admin.create_partitions(counts, raise_errors=raise_errors)

    def describe_topic_configs(self, names: Iterable[str]) -> dict[str, list[ConfigEntry]]:
        """Return all effective configs, by topic.

        Raises:
            ClientError: The configs of a topic could not be described.
        """
        from barnabas.client.admin.configs import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        return {resource.name: found for resource, found in self._configs(resources).items()}

    def describe_broker_configs(self, node_id: int) -> list[ConfigEntry]:
        """Return all effective configs of a broker.

        Raises:
            ClientError: The configs of the broker could not be described.
        """
        from barnabas.client.admin.configs import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        return self._configs([resource])[resource]

    def _configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, list[ConfigEntry]]:
        found: dict[ConfigResource, list[ConfigEntry]] = {}
        for resource, entries in self.admin.describe_configs(resources).items():
            if isinstance(entries, ClientError):
                raise entries
            found[resource] = entries
        return found

    def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a topic; the value None resets a config to its default."""
        from barnabas.client.admin.configs import ConfigResource, ResourceType

        self.admin.alter_configs(ConfigResource(ResourceType.TOPIC, name), changes)

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        return self.admin.describe_cluster()
