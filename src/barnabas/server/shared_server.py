"""What every node has, whatever its roles (Kafka's SharedServer).

Data directories, the doors of its logs, its replica of the metadata quorum, and what follows the
committed metadata for everybody: the view of the cluster, the dynamic configuration, the quotas.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import BROKER
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.snapshot_generator import SnapshotGenerator
from barnabas.network.connection import ConnectionDoors
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.raft.config import RaftConfig
from barnabas.raft.opening import RaftOpening, open_raft
from barnabas.server.cluster_view import ClusterView
from barnabas.server.config import log_directories
from barnabas.server.dynamic_config import DynamicBrokerConfig
from barnabas.server.features import BOOTSTRAP_FEATURES
from barnabas.server.log_directories import (
    DataDirectories,
    DirectoryPaths,
    open_data_directories,
)
from barnabas.server.quotas.client_quotas import ClientQuotas
from barnabas.server.quotas.connection_quotas import ConnectionQuotas
from barnabas.server.quotas.quota_follower import QuotaFollower
from barnabas.server.quotas.rate_quota import quota_windows
from barnabas.server.request_statistics import RequestStatistics
from barnabas.storage.doors import LogDoors
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage
    from barnabas.runtime.loop import Runtime
    from barnabas.server.configuration import Configuration

_log = logging.getLogger(__name__)


class SharedServer:
    """The parts that a process's controller and broker share; opened when it is made."""

    def __init__(
        self,
        configuration: Configuration,
        runtime: Runtime,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Open directories and metadata log; nothing has started yet.

        Args:
            on_failed: told why the node cannot go on; the process is to end.

        Raises:
            StorageError: a data directory is in use, another's, or cannot be opened.
            OSError: a directory cannot be made.
        """
        self.configuration = configuration
        self.config = configuration.parsed
        self.node_id = configuration.node_id
        self.runtime = runtime
        self._on_failed = on_failed
        self.is_stopping = False
        self.cluster = ClusterView()
        self.dynamic = DynamicBrokerConfig(self.node_id, self.config, configuration.given)
        self.directories = self._open_directories()
        self.wheel = TimingWheel(runtime.clock, runtime.timer)
        self.doors = LogDoors(
            runtime.disk,
            runtime.clock,
            runtime.executor,
            runtime.timer,
            runtime.rng,
            offload=runtime.offload,
        )
        self.connection_doors = ConnectionDoors(runtime.clock, runtime.timer, new_receive_buffer())
        self.statistics = RequestStatistics()
        self.quotas = ClientQuotas(runtime.clock, self.config)
        self.connections = ConnectionQuotas(
            runtime.clock, configuration.connections, quota_windows(self.config)
        )
        self._raft_config = _raft_config(configuration)
        self.quorum = open_raft(
            self._raft_config,
            RaftOpening(
                self.directories.metadata.path,
                self.doors,
                runtime.rng,
                self.fail,
                BOOTSTRAP_FEATURES,
            ),
        )
        self.publisher = MetadataPublisher()
        self.publisher.add_listener(self._on_image)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as the directories have it."""
        return self.directories.cluster_id

    def follow_quorum(self) -> None:
        """Have the publisher hear of what is committed, behind those that it is to tell."""
        quota_follower = QuotaFollower(self.quotas, self.connections)
        self.publisher.add_listener(quota_follower.on_image)
        self.quorum.add_listener(self.publisher)
        self.quorum.add_listener(SnapshotGenerator(self.quorum, self.publisher, self._raft_config))

    def fail(self, error: BaseException) -> None:
        """Nothing sound is left to do: the process has to end."""
        if not self.is_stopping:
            _log.critical("The broker cannot go on: %s", error)
            self._on_failed(error)

    def close(self) -> None:
        """Let others have the directories."""
        self.directories.close()

    def _on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.cluster.image = image
        if any(resource_type == BROKER for resource_type, _ in delta.config_changes):
            self.dynamic.take(image)

    def _open_directories(self) -> DataDirectories:
        paths = DirectoryPaths(
            log_directories(self.config), self.config.optional_string("metadata.log.dir")
        )
        return open_data_directories(self.runtime.disk, paths, self.node_id, self.runtime.rng)


def _raft_config(configuration: Configuration) -> RaftConfig:
    config, node_id = configuration.parsed, configuration.node_id
    return RaftConfig(
        node_id=node_id,
        voters=(node_id,),
        election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
        snapshot_record_bytes=config.integer("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
        segment_bytes=config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_bytes=config.integer("metadata.max.retention.bytes"),
    )
