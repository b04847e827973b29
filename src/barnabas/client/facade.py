"""The blocking face of the client: calls that return when they are done, over a private loop.

It shares one `Session` with the producers and streams that it makes: no thread, one process, one
user at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin.admin_client import AdminClient
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.results import raise_failed
from barnabas.client.admin.topics import NewTopic
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientError
from barnabas.client.group_offsets import CommittedOffset, GroupOffsets, offsets_of
from barnabas.client.list_offsets import ListedOffset, OffsetLookup, offset_spec
from barnabas.client.reaching import await_broker
from barnabas.client.record_stream import RecordStream
from barnabas.client.retrying import RetryingCall
from barnabas.client.session import Session
from barnabas.client.topic_lookup import TopicLookup
from barnabas.client.topic_partition import (
    TopicPartition,
    as_partition,
    as_partitions,
    by_partition,
)
from barnabas.client.with_block import WithBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.client.admin.cluster_info import ClusterDescription
    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.errors import BrokerError, NoBrokersError
    from barnabas.client.fetcher import RecordSet
    from barnabas.client.metadata_cache import TopicInfo
    from barnabas.client.producer.shared_producer import SharedProducer
    from barnabas.client.retrying import OnDone

    PartitionKey = tuple[str, int]

__all__ = ["Client"]

T = TypeVar("T")
# A TopicPartition or a plain (topic, partition).
K = TypeVar("K", bound="tuple[str, int]")


class Client(WithBlock):
    """A connection to a cluster, for scripts, the command line and the Spark source.

    Use it in a `with` block, or call `close()`. Every method raises `ClientError` and its
    subclasses, whose messages say what to check.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them.
        config: keys of Kafka's clients with "_" for "."; `**{"fetch.min.bytes": 1}` works too.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], /, **config: Any) -> None:
        self.config = ClientConfig.parse({"bootstrap.servers": bootstrap_servers, **config})
        self._session = Session(self.config)
        self._cluster = self._session.cluster
        coordinators = self._session.coordinators
        self._groups = GroupOffsets(self._cluster, coordinators)
        self._wait = self._session.wait
        # All admin calls; those below are the ones that every program needs.
        self.admin = AdminClient(self._cluster, coordinators, self._session.waiter)
        self._producers: list[SharedProducer] = []
        self._streams: list[RecordStream] = []

    # Life

    def _give_up(self) -> None:
        self.close(flush=False)

    def close(self, *, flush: bool = True) -> None:
        """Close all connections; producers deliver what they hold first, unless `flush` is off."""
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

    def await_broker(
        self,
        timeout_ms: float,
        *,
        notice_ms: float = 1_000,
        on_notice: Callable[[NoBrokersError], None] = lambda _error: None,
    ) -> None:
        """Wait until a broker answers; other calls retry for default.api.timeout.ms in silence.

        Args:
            timeout_ms: when to give up.
            notice_ms: when to tell that no broker has answered yet.
            on_notice: is told so once, with what came of dialling so far.

        Raises:
            NoBrokersError: no broker answered in time.
        """
        await_broker(self._session, timeout_ms, notice_ms, on_notice)

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"Client({servers!r})"

    # Topics and offsets

    def topics(
        self, pattern: str | re.Pattern[str] | None = None, *, internal: bool = False
    ) -> list[str]:
        """Names of all topics, sorted; those that `pattern` matches whole, if it is given."""
        found = self._all_topics()
        names = [name for name, topic in found.items() if internal or not topic.is_internal]
        if pattern is not None:
            compiled = re.compile(pattern)
            names = [name for name in names if compiled.fullmatch(name)]
        return sorted(names)

    def _all_topics(self) -> dict[str, TopicInfo]:
        def attempt(done: OnDone[dict[str, TopicInfo]]) -> None:
            def on_done(_none: None, error: ClientError | None) -> None:
                done(dict(self._cluster.metadata.topics) if error is None else None, error)

            self._cluster.refresh(None, on_done)

        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            RetryingCall(
                self._cluster.runtime,
                self._cluster.retry_backoff,
                self.config.default_api_timeout_ms,
                "list of topics",
                attempt,
                on_done,
            ).start()

        return self._wait(start, "list of topics")

    def describe_topics(self, topics: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Id, partitions, leaders and replicas of topics, of all if none are given.

        Raises:
            UnknownTopicError: one of them does not exist.
        """
        if topics is None:
            return self._all_topics()
        wanted = [topics] if isinstance(topics, str) else list(topics)
        timeout_ms = self.config.default_api_timeout_ms

        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            TopicLookup(self._cluster, wanted, timeout_ms, on_done).start()

        return self._wait(start, "metadata") if wanted else {}

    def partitions_for(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Partition numbers of topics, ascending. A single name is taken too.

        Raises:
            UnknownTopicError: one of them does not exist.
        """
        found = self.describe_topics(topics)
        return {name: sorted(topic.partitions) for name, topic in found.items()}

    def list_offsets(
        self, specs: Mapping[K, str | int], *, isolation_level: str | None = None
    ) -> dict[K, ListedOffset]:
        """Offsets by time.

        Args:
            specs: for each (topic, partition) "earliest", "latest", "max-timestamp", or a time in
                ms: then the first record as late as that, offset -1 if there is none.
            isolation_level: with "read_committed" "latest" is the last stable offset.
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
        """Read ranges of offsets as raw record sets, prefetching while the caller works.

        Args:
            ranges: for each (topic, partition) the first offset and the end, exclusive.

        Yields:
            Record sets in order within a partition; those of several partitions are mixed. It ends
            when every partition's *position* has come to its end, gaps of compaction and
            transaction markers included.

        Raises:
            OffsetOutOfRangeError: a range begins before the log does (or behind its end).
            RangeStalledError: nothing came for default.api.timeout.ms, the end not reached.
        """
        with self.stream(ranges) as stream:
            yield from stream.sets()

    def stream(self, ranges: Mapping[K, tuple[int, int | None]]) -> RecordStream:
        """Read partitions from an offset, to an exclusive end or (None) for ever.

        The stream gives raw record sets or records; see `RecordStream`. Close it after use.
        """
        self._session.check_usable()
        stream = RecordStream(
            self._cluster,
            self._session.stepper,
            by_partition(ranges),
            self._session.check_usable,
            self._streams.remove,
        )
        self._streams.append(stream)
        return stream

    # Writing

    def producer(self, **config: Any) -> SharedProducer:
        """A producer over this client's connections; `config` overrides the client's keys."""
        from barnabas.client.producer.producer_parts import take_parts
        from barnabas.client.producer.shared_producer import SharedProducer

        self._session.check_usable()
        parts, keys = take_parts(config)
        producer = SharedProducer(
            self._session,
            self.config.override(keys),
            self._producers.remove,
            parts,
        )
        self._producers.append(producer)
        return producer

    # Groups

    def commit_offsets(self, group: str, offsets: Mapping[K, int | CommittedOffset]) -> None:
        """Commit offsets (the next ones to be read) for a group that has no members."""
        wanted = offsets_of(offsets)
        timeout_ms = self.config.default_api_timeout_ms

        def start(on_done: OnDone[bool]) -> None:
            self._groups.commit(group, wanted, timeout_ms, on_done)

        self._wait(start, "commit")

    def committed(
        self, group: str, partitions: Iterable[PartitionKey] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of a group, of all partitions if none are named; absent ones out."""
        wanted = None if partitions is None else as_partitions(partitions)
        timeout_ms = self.config.default_api_timeout_ms

        def start(on_done: OnDone[dict[TopicPartition, CommittedOffset]]) -> None:
            self._groups.committed(group, wanted, timeout_ms, on_done)

        return self._wait(start, "committed offsets")

    # Admin

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, raise_errors: bool = True
    ) -> dict[str, BrokerError | None]:
        """Create topics and wait until they can be used; an error or None for each.

        A topic that is there already has TOPIC_ALREADY_EXISTS.

        Raises:
            AdminResultsError: some were not created, unless `raise_errors` is off.
        """
        wanted = list(topics)
        result = self.admin.create_topics(wanted, validate_only=validate_only, raise_errors=False)
        created = [name for name, error in result.items() if error is None]
        if created and not validate_only:
            self._wait_for_leaders(created)
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
        """Create one topic and wait until it can be used.

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, ...
        """
        new = NewTopic(name, partitions, replication_factor, configs or {})
        error = self.create_topics([new], raise_errors=False)[name]
        if error is not None:
            raise error

    def _wait_for_leaders(self, names: list[str]) -> None:
        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            timeout_ms = self.config.default_api_timeout_ms
            TopicLookup(self._cluster, names, timeout_ms, on_done, wait_for_leaders=True).start()

        self._wait(start, "leaders of new topics")

    def delete_topics(
        self, names: Iterable[str], *, raise_errors: bool = True
    ) -> dict[str, BrokerError | None]:
        """Delete topics; an error or None for each.

        Raises:
            AdminResultsError: some were not deleted, unless `raise_errors` is off.
        """
        return self.admin.delete_topics(names, raise_errors=raise_errors)

    def create_partitions(
        self, counts: Mapping[str, int], *, raise_errors: bool = True
    ) -> dict[str, BrokerError | None]:
        """Raise the number of partitions of topics to `counts`; an error or None for each.

        Raises:
            AdminResultsError: some were not changed, unless `raise_errors` is off.
        """
        return self.admin.create_partitions(counts, raise_errors=raise_errors)

    def describe_topic_configs(self, names: Iterable[str]) -> dict[str, list[ConfigEntry]]:
        """All configs in force, by topic."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        return {resource.name: found for resource, found in self._configs(resources).items()}

    def describe_broker_configs(self, node_id: int) -> list[ConfigEntry]:
        """All configs in force of a broker."""
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
        """Set configs of a topic; None takes one back to its default."""
        self.admin.alter_configs(ConfigResource(ResourceType.TOPIC, name), changes)

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its controller and its brokers."""
        return self.admin.describe_cluster()
