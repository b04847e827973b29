"""The remote tier of a broker (KIP-405): creates its parts, connects them, and closes them.

Only brokers with `remote.log.storage.system.enable=true` import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.metadata.configs_image import TOPIC
from barnabas.replication.config import FETCH_LAST_TIERED
from barnabas.replication.remote.remote_access import RemoteAccess, RemoteReplication
from barnabas.replication.remote.remote_log_manager import ManagerDependencies, RemoteLogManager
from barnabas.replication.remote.remote_metrics import RemoteMetrics
from barnabas.replication.remote.remote_quota import RemoteQuota
from barnabas.replication.remote.remote_tier import (
    RemoteReadDependencies,
    RemoteReadLimits,
    RemoteReads,
)
from barnabas.replication.remote.tier_dependencies import TierDependencies
from barnabas.server.metrics.remote_metrics import RemoteSources
from barnabas.server.peers.own_broker_channel import AnyBrokerChannels
from barnabas.server.remote.metadata_topic import RemoteMetadataTopic
from barnabas.storage.remote.config import RemoteLogConfig, remote_log_config, store_options
from barnabas.storage.remote.opening import open_remote_storage
from barnabas.storage.remote.remote_storage import TopicDescription
from barnabas.storage.remote_keys import REMOTE_DYNAMIC_KEYS, REMOTE_LOG_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.peers.peer_queues import PeerDependencies
    from barnabas.server.process.metadata_follower import MetadataFollower
    from barnabas.server.process.shared_server import SharedServer
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.manager.log_manager import LogManager

_INDEX_DIRECTORY = "remote-log-index-cache"
# Memory of one copy to an object store: four parts of 8 MiB.
_COPY_BYTES = 32 << 20
# More concurrent deletions do not make an expiration faster that anyone waits for.
_DELETE_THREADS_MAX = 4
_DELETE_QUEUE_MAX = 1_000
# `CopySlots` admits as many copies as there are threads. After a smaller size of the pool, some of
# them may have to wait.
_COPY_QUEUE_MAX = 1_000


class TieredStorage:
    """The parts of the remote tier."""

    def __init__(
        self,
        shared: SharedServer,
        peers: PeerDependencies,
        auto_topics: AutoTopics,
        conversions: ConversionQueue,
        logs: LogManager,
        replicas: Callable[[], ReplicaManager],
    ) -> None:
        """Open the store and create the parts. Nothing is copied or read yet.

        Args:
            shared: the components that all roles of the node share.
            peers: what senders of requests to other brokers use.
            auto_topics: creates the metadata topic.
            conversions: runs long steps over several turns.
            logs: the logs of the broker.
            replicas: returns the replica manager, which is created later.

        Raises:
            RemoteStorageError: the store cannot be used.
            ConfigError: the store does not exist.
        """
        self._shared = shared
        runtime = shared.runtime
        config = self.config = remote_log_config(shared.config, shared.configuration.given)
        # Whether the cluster had no tiered topic when this broker began to serve. Then a missing
        # mark of the store is created. Otherwise it is not: the file system may be unmounted.
        self._is_new = False
        self._storage = open_remote_storage(
            config.barnabas_remote_storage,
            shared.cluster_id,
            runtime.disk,
            store_options(config),
            lambda: self._is_new,
        )
        self.metrics = RemoteMetrics()
        self._make_pools(config)
        self.metadata = RemoteMetadataTopic(
            config.metadata_topic,
            replace(peers, channels=AnyBrokerChannels(replicas, peers)),
            auto_topics,
            conversions,
        )
        self._make_reads(config)
        self._make_manager(config, logs)
        shared.dynamic.subscribe(REMOTE_DYNAMIC_KEYS, self._apply_config)

    @property
    def replication(self) -> RemoteReplication:
        """The parts that the replica manager uses."""
        dynamic = self._shared.dynamic
        access = RemoteAccess(
            self._storage,
            self.metadata,
            self.reading,
            self.metrics,
            lambda: dynamic.current.boolean(FETCH_LAST_TIERED),
        )
        return RemoteReplication(self.reads, access, self.manager)

    @property
    def sources(self) -> RemoteSources:
        """What the metrics are read from."""
        return RemoteSources(
            self.metrics,
            self.copying,
            self.reading,
            self.copy_quota,
            self.fetch_quota,
            self.manager,
            self.reads,
            self.metadata,
        )

    def follow(self, follower: MetadataFollower) -> None:
        """Take part in changes of the metadata."""
        follower.on_changes.append(self.manager.on_changes)
        follower.on_deleted.append(self.manager.on_deleted)

    def start(self) -> None:
        """Begin to read the metadata of segments: the broker serves requests."""
        self._is_new = self._shared.cluster.image.topics.by_name(REMOTE_LOG_TOPIC) is None
        # This creates the mark of a new store, and shows early if the store cannot be used.
        self._deletes.submit(self._storage.check, self._on_store_checked)
        self.reads.start()
        self.metadata.start()

    def _on_store_checked(self, _result: None, error: BaseException | None) -> None:
        if error is not None:
            self.manager.health.on_failure("check of the store at the start", error)

    def close(self, on_closed: Callable[[], None]) -> None:
        """Stop copies and reads. Running ones get two seconds. Then close the store."""

        def close_rest() -> None:
            self.metadata.close()
            self._storage.close()
            on_closed()

        self.reads.close()
        self.manager.close(lambda: self.reading.close(close_rest))

    def _make_pools(self, config: RemoteLogConfig) -> None:
        worker_pool = self._shared.runtime.worker_pool
        copies, deletes = _thread_counts(config)
        self.copying = worker_pool("remote-copy", copies, _COPY_QUEUE_MAX)
        self._deletes = worker_pool("remote-delete", deletes, _DELETE_QUEUE_MAX)
        # Threads that read the store, for consumers and for followers.
        self.reading = worker_pool(
            "remote-read",
            config.remote_log_reader_threads,
            config.remote_log_reader_max_pending_tasks,
        )

    def _make_reads(self, config: RemoteLogConfig) -> None:
        shared, runtime = self._shared, self._shared.runtime
        self.fetch_quota = RemoteQuota(
            runtime.clock,
            config.remote_log_manager_fetch_max_bytes_per_second,
            config.remote_log_manager_fetch_quota_window_num,
            config.remote_log_manager_fetch_quota_window_size_seconds,
        )
        first = next(each for each in shared.directories.logs if each.is_online)
        self.reads = RemoteReads(
            RemoteReadDependencies(
                storage=self._storage,
                metadata=self.metadata,
                pool=self.reading,
                disk=runtime.disk,
                clock=runtime.clock,
                timer=runtime.timer,
                metrics=self.metrics,
                quota=self.fetch_quota,
            ),
            RemoteReadLimits(
                index_directory=f"{first.path}/{_INDEX_DIRECTORY}",
                index_file_bytes_max=config.remote_log_index_file_cache_total_size_bytes,
                index_ttl_ms=config.remote_log_index_file_cache_ttl_ms,
                index_memory_bytes_max=config.barnabas_remote_index_memory_max_bytes,
                read_cache_bytes_max=config.barnabas_remote_read_cache_max_bytes,
                range_bytes_max=config.barnabas_remote_read_range_max_bytes,
                read_ahead=config.barnabas_remote_read_ahead,
                fetch_max_wait_ms=config.remote_fetch_max_wait_ms,
                list_offsets_timeout_ms=config.remote_list_offsets_request_timeout_ms,
            ),
        )

    def _make_manager(self, config: RemoteLogConfig, logs: LogManager) -> None:
        shared, runtime = self._shared, self._shared.runtime
        self.copy_quota = RemoteQuota(
            runtime.clock,
            config.remote_log_manager_copy_max_bytes_per_second,
            config.remote_log_manager_copy_quota_window_num,
            config.remote_log_manager_copy_quota_window_size_seconds,
        )
        self.manager = RemoteLogManager(
            TierDependencies(
                node_id=shared.node_id,
                config=config,
                storage=self._storage,
                metadata=self.metadata,
                metrics=self.metrics,
                copies=self.copying,
                deletes=self._deletes,
                clock=runtime.clock,
                trusted_clock=logs.trusted_clock,
                wheel=shared.wheel,
                rng=runtime.rng,
            ),
            ManagerDependencies(
                copy_quota=self.copy_quota,
                search=self.metadata,
                timer=runtime.timer,
                topic_exists=lambda topic_id: (
                    shared.cluster.image.topics.by_id(topic_id) is not None
                ),
                describe_topic=lambda topic_id: describe_topic(shared.cluster.image, topic_id),
                forget_segment=self.reads.forget_segment,
                restart_log=logs.restart_log,
            ),
        )

    def _apply_config(self, broker: ParsedConfig) -> None:
        """Apply changed dynamic keys."""
        config = self.config = remote_log_config(broker, self._shared.dynamic.given)
        copies, deletes = _thread_counts(config)
        self.manager.resize(copies, deletes)
        self.reading.resize(config.remote_log_reader_threads)
        self.copy_quota.bytes_per_second = config.remote_log_manager_copy_max_bytes_per_second
        self.fetch_quota.bytes_per_second = config.remote_log_manager_fetch_max_bytes_per_second
        limits = self.reads.limits
        limits.index_file_bytes_max = config.remote_log_index_file_cache_total_size_bytes
        limits.read_cache_bytes_max = config.barnabas_remote_read_cache_max_bytes
        limits.fetch_max_wait_ms = config.remote_fetch_max_wait_ms
        limits.list_offsets_timeout_ms = config.remote_list_offsets_request_timeout_ms


def _thread_counts(config: RemoteLogConfig) -> tuple[int, int]:
    """Return the numbers of threads for copies and for deletions."""
    copies = min(
        config.remote_log_manager_copier_thread_pool_size,
        max(1, config.barnabas_remote_copy_buffer_max_bytes // _COPY_BYTES),
    )
    return copies, min(config.remote_log_manager_expiration_thread_pool_size, _DELETE_THREADS_MAX)


def describe_topic(image: ClusterImage, topic_id: bytes) -> TopicDescription | None:
    """Return a topic as the store keeps it; None if it does not exist."""
    topic = image.topics.by_id(topic_id)
    if topic is None:
        return None
    return TopicDescription(
        name=topic.name,
        topic_id=topic_id,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=dict(image.configs.get(TOPIC, topic.name)),
    )
