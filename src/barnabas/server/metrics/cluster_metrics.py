"""Metrics of the cluster, the data directories, file damage and fetch sessions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily
from barnabas.storage.damage import DamageKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import ElectionCounts
    from barnabas.metadata.topics import TopicsImage
    from barnabas.metrics.family import Tags
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.replication.requests.fetch_session_cache import FetchSessionCache
    from barnabas.runtime.disk import Disk
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.startup.log_directories import DataDirectories
    from barnabas.storage.damage import DamageRegister


class ClusterMetrics:
    """Metrics of the latest image. Partitions are counted only once per image."""

    def __init__(self, cluster: ClusterView, quorum: RaftDriver, elections: ElectionCounts) -> None:
        self._cluster = cluster
        self._elections = elections
        self._quorum = quorum
        # Topics image that `_offline` and `_imbalanced` were counted for.
        self._counted: TopicsImage | None = None
        # Partitions without a leader, and partitions that their preferred replica does not lead.
        self._offline = 0
        self._imbalanced = 0

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metrics of the cluster and the controller."""
        image = self._cluster.image
        fenced = sum(broker.fenced for broker in image.brokers.values())
        self._count(image.topics)
        values: dict[str, float] = {
            names.ACTIVE_CONTROLLER_COUNT: int(self._quorum.core.is_leader),
            names.ACTIVE_BROKER_COUNT: len(image.brokers) - fenced,
            names.FENCED_BROKER_COUNT: fenced,
            names.GLOBAL_TOPIC_COUNT: len(image.topics),
            names.GLOBAL_PARTITION_COUNT: image.topics.partition_count,
            names.OFFLINE_PARTITIONS_COUNT: self._offline,
            names.PREFERRED_REPLICA_IMBALANCE: self._imbalanced,
            names.UNCLEAN_LEADER_ELECTIONS: self._elections.unclean,
            names.ELECTIONS_FROM_ELIGIBLE: self._elections.from_eligible,
            names.METADATA_LAST_APPLIED_OFFSET: image.provenance.offset,
        }
        for name, value in values.items():
            yield MetricFamily(name, [((), value)])

    def _count(self, topics: TopicsImage) -> None:
        if topics is self._counted:
            return
        self._counted = topics
        self._offline = self._imbalanced = 0
        for topic in topics:
            for partition in topic.partitions.values():
                if partition.leader < 0:
                    self._offline += 1
                elif partition.leader != partition.replicas[0]:
                    self._imbalanced += 1


def directory_families(directories: DataDirectories, disk: Disk) -> Iterator[MetricFamily]:
    """Yield which data directories have failed, and the disk space of the others."""
    failed = {each.path: int(not each.is_online) for each in directories.logs}
    failed |= dict.fromkeys(directories.offline_paths, 1)
    yield MetricFamily(names.OFFLINE_LOG_DIRECTORIES, [((), sum(failed.values()))])
    yield MetricFamily(
        names.LOG_DIRECTORY_OFFLINE,
        [((("logDirectory", path),), state) for path, state in failed.items()],
    )
    spaces: list[tuple[Tags, tuple[int, int]]] = []
    for path, state in failed.items():
        if not state:
            # A directory that fails now is reported as offline by the operation that needs it.
            with suppress(OSError):
                spaces.append(((("logDirectory", path),), disk.space(path)))
    yield MetricFamily(names.LOG_DIRECTORY_BYTES, [(tags, each[0]) for tags, each in spaces])
    yield MetricFamily(names.LOG_DIRECTORY_USABLE_BYTES, [(tags, each[1]) for tags, each in spaces])


def damage_families(damage: DamageRegister) -> Iterator[MetricFamily]:
    """Yield the number of damaged files found, by kind of damage."""
    found = [((("kind", kind.value),), damage.counts[kind]) for kind in DamageKind]
    yield MetricFamily(names.STORAGE_DAMAGE, found)


def session_families(sessions: FetchSessionCache) -> Iterator[MetricFamily]:
    """Yield the number of fetch sessions and of their partitions."""
    yield MetricFamily(names.FETCH_SESSIONS, [((), len(sessions))])
    yield MetricFamily(names.FETCH_SESSION_PARTITIONS, [((), sessions.partition_count)])
