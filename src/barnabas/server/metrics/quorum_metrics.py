"""Metrics of the metadata quorum: Kafka's raft-metrics and raft-channel-metrics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily
from barnabas.protocol.primitives import uuid_to_string
from barnabas.raft.core.roles import Follower, Leader
from barnabas.raft.driver.quorum_status import state_name
from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metrics.sampled import SampledValues
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.server.quorum.quorum_watch import QuorumWatch


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
