"""Configuration of the metadata quorum: Kafka's `controller.quorum.*` and `metadata.log.*` keys."""

from __future__ import annotations

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import at_least

_INT, _LONG = ConfigType.INT, ConfigType.LONG

RAFT_CONFIGS = ConfigDefinition([
    ConfigKey(
        "controller.quorum.election.timeout.ms",
        _INT,
        1000,
        "How long to wait for votes, or for word of a leader, before a new election.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        _INT,
        2000,
        "How long a follower goes without an answer of the leader before it runs for leader, and"
        " a leader without fetches of a majority before it steps down.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms",
        _INT,
        1000,
        "Longest wait between elections that nobody won.",
        at_least(0),
    ),
    ConfigKey(
        "controller.quorum.request.timeout.ms",
        _INT,
        2000,
        "How long to wait for the answer to a request between voters.",
        at_least(1),
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots",
        _LONG,
        20 * 1024 * 1024,
        "Bytes of metadata records after which a new snapshot is written.",
        at_least(1),
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms",
        _LONG,
        3_600_000,
        "Longest time without a snapshot while there are new records; 0 for no limit.",
        at_least(0),
    ),
    ConfigKey(
        "metadata.log.segment.bytes",
        _INT,
        1024 * 1024 * 1024,
        "Largest size of a segment of the metadata log.",
        at_least(8 * 1024 * 1024),
    ),
    ConfigKey(
        "metadata.log.segment.ms",
        _LONG,
        604_800_000,
        "Time after which a new segment of the metadata log is begun.",
        at_least(0),
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        _LONG,
        100 * 1024 * 1024,
        "Bytes of metadata log and snapshots above which those that newer snapshots cover go.",
    ),
])  # fmt: skip


class RaftConfig(msgspec.Struct, frozen=True):
    """Values of `RAFT_CONFIGS`, times in ms; and who takes part."""

    node_id: int
    # Static voters (kraft.version 0), by node id.
    voters: tuple[int, ...]
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    # How long a leader lets a fetch without new records wait (Kafka's fixed value).
    fetch_max_wait_ms: int = 500
    snapshot_record_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 604_800_000
    retention_bytes: int = 100 * 1024 * 1024
