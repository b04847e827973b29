"""Metrics of the cluster, its metadata quorum, the data directories and fetch sessions.

The metrics of the quorum are Kafka's raft-metrics and raft-channel-metrics.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily
from barnabas.protocol.primitives import uuid_to_string
from barnabas.raft.core.roles import Follower, Leader
from barnabas.raft.driver.quorum_status import state_name
from barnabas.raft.listener import NO_LEADER
from barnabas.storage.errors import DamageKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.image import ElectionCounts
    from barnabas.metadata.topics import TopicsImage
    from barnabas.metrics.measurements import SampledValues
    from barnabas.metrics.registry import Tags
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.replication.requests.fetch_session_cache import FetchSessionCache
    from barnabas.runtime.disk import Disk
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.quorum.quorum_watch import QuorumWatch
    from barnabas.server.startup.log_directories import DataDirectories
    from barnabas.storage.errors import DamageRegister


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


def quorum_families(quorum: RaftDriver, watch: QuorumWatch | None) -> Iterator[MetricFamily]:
    """Yield the metrics. A value without recent measurements is NaN, as in Kafka.

    Args:
        quorum: the replica of this node.
        watch: detects the loss of the quorum. None on a single node, and before the node is ready.
    """
    is_lost = watch is not None and watch.problem is not None
    for values in (
        _replica(quorum, is_lost=is_lost),
        _leader(quorum),
        _measured(quorum),
        _channels(quorum),
    ):
        for name, value in values.items():
            yield MetricFamily(name, [((), value)])
    silent = 0 if watch is None else watch.silent_voters
    yield MetricFamily(names.QUORUM_SILENT_VOTERS, [((), silent)])
    core = quorum.core
    yield MetricFamily(names.RAFT_STATE, [((("state", state_name(core)),), 1)])
    directory = uuid_to_string(core.voted_directory_id)
    yield MetricFamily(names.RAFT_VOTE_DIRECTORY, [((("directory", directory),), 1)])


def _replica(quorum: RaftDriver, *, is_lost: bool) -> dict[str, float]:
    leader, core = quorum.core.leader_and_epoch, quorum.core
    # A replica without a leader still remembers the last leader, so check its role.
    has_leader = isinstance(core.role, Leader | Follower) and not is_lost
    name = quorum.config.listener_name
    unknown = [each for each in core.voters if len(core.voters) > 1 and not each.address(name)]
    return {
        names.RAFT_HIGH_WATERMARK: quorum.core.high_watermark,
        names.RAFT_LOG_END_OFFSET: quorum.log.log_end_offset,
        names.RAFT_LOG_END_EPOCH: quorum.log_end_epoch,
        names.RAFT_EPOCH: leader.epoch,
        names.RAFT_LEADER: leader.leader_id if has_leader else NO_LEADER,
        names.RAFT_VOTE: core.voted_id,
        names.RAFT_VOTERS: len(core.voters),
        names.RAFT_UNKNOWN_VOTERS: len(unknown),
        names.RAFT_POLL_IDLE_RATIO: quorum.metrics.take_idle_ratio(),
    }


def _leader(quorum: RaftDriver) -> dict[str, float]:
    role = quorum.core.role
    if not isinstance(role, Leader):
        return {}
    return {
        names.RAFT_OBSERVERS: len(role.observers),
        names.RAFT_VOTER_CHANGE: int(role.change is not None),
    }


def _measured(quorum: RaftDriver) -> dict[str, float]:
    metrics, now_ms = quorum.metrics, quorum.log_dependencies.clock.monotonic_ms()
    values: dict[str, float] = {
        names.RAFT_APPEND_RATE: metrics.append_rate.rate(now_ms),
        names.RAFT_FETCH_RATE: metrics.fetch_rate.rate(now_ms),
    }
    commits, elections = metrics.commit_latency, metrics.election_latency
    _add(values, commits, now_ms, (names.RAFT_COMMIT_LATENCY_AVG, names.RAFT_COMMIT_LATENCY_MAX))
    _add(
        values,
        elections,
        now_ms,
        (names.RAFT_ELECTION_LATENCY_AVG, names.RAFT_ELECTION_LATENCY_MAX),
    )
    return values


def _add(
    values: dict[str, float], sampled: SampledValues, now_ms: float, called: tuple[str, str]
) -> None:
    found = (sampled.average(now_ms), sampled.maximum(now_ms))
    for name, value in zip(called, found, strict=True):
        values[name] = math.nan if value is None else value


def _channels(quorum: RaftDriver) -> dict[str, float]:
    statistics = quorum.transport_statistics()
    return {
        names.RAFT_CONNECTIONS: statistics.connections,
        names.RAFT_CONNECTIONS_CREATED: statistics.connections_created,
        names.RAFT_REQUESTS: statistics.requests,
        names.RAFT_RESPONSES: statistics.responses,
    }
