"""Configuration of the metadata quorum: Kafka's `controller.quorum.*` and `metadata.log.*` keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.voter_set import ReplicaKey
from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT, _LONG, _BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN

RAFT_CONFIGS = ConfigDefinition([
    ConfigKey(
        "controller.quorum.election.timeout.ms",
        _INT,
        1000,
        "Longest time to wait for votes or a leader before a new election.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms",
        _INT,
        2000,
        "Longest time without a response of the leader before a follower starts an election, and"
        " a leader without fetches of a majority before it steps down.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms",
        _INT,
        1000,
        "Longest backoff after an election without a winner.",
        at_least(0),
    ),
    ConfigKey(
        "controller.quorum.request.timeout.ms",
        _INT,
        2000,
        "Longest time to wait for the response to a request between voters.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.retry.backoff.ms",
        _INT,
        20,
        "Backoff before a failed request between voters is sent again; longer after"
        " several failures in a row.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.fetch.max.bytes",
        _INT,
        1024 * 1024,
        "Maximum bytes of the metadata log in one response, but at least one batch.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.fetch.snapshot.max.bytes",
        _INT,
        1024 * 1024,
        "Maximum bytes of a snapshot in one response.",
        at_least(1),
    ),
    ConfigKey(
        "controller.quorum.auto.join.enable",
        _BOOLEAN,
        False,
        "Whether a controller that is not a voter asks the leader to add it.",
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
        "Time after which the metadata log gets a new segment.",
        at_least(0),
    ),
    ConfigKey(
        "metadata.max.retention.bytes",
        _LONG,
        100 * 1024 * 1024,
        "Size of log and snapshots above which files covered by newer snapshots are deleted.",
    ),
    ConfigKey(
        "metadata.max.retention.ms",
        _LONG,
        604_800_000,
        "Age after which files covered by newer snapshots are deleted.",
    ),
])  # fmt: skip


class RaftConfig(msgspec.Struct, frozen=True):
    """The values of `RAFT_CONFIGS` (times in ms), and the identity and peers of this node."""

    node_id: int
    # Node ids from `controller.quorum.voters`; empty if the log holds the voters.
    voters: tuple[int, ...]
    # Addresses of the static voters: (host, port) by node id.
    voter_endpoints: Mapping[int, tuple[str, int]] = msgspec.field(default_factory=dict)
    # `controller.quorum.bootstrap.servers`: nodes to ask for the leader. If empty, ask the voters.
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    # The `directory.id` of the directory that holds the metadata log.
    directory_id: bytes = ZERO_UUID
    # None disables the check of the cluster id in requests.
    cluster_id: str | None = None
    # The first name in `controller.listener.names`.
    listener_name: str = "CONTROLLER"
    # Addresses of this node for other nodes: (host, port) by controller listener name.
    advertised: Mapping[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    # Whether the node has the controller role. Otherwise it stays an observer whatever the log
    # says.
    can_be_voter: bool = True
    # Whether this static voter may not vote yet, because it started with an empty directory.
    is_unproven_voter: bool = False
    auto_join: bool = False
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    # How long a leader holds a fetch without new records, ms (a constant in Kafka).
    fetch_max_wait_ms: int = 500
    # How long after a broken connection a follower waits for a new connection to the leader before
    # it considers the leader dead. Kafka waits for the fetch timeout.
    leader_lost_ms: int = 200
    snapshot_record_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 604_800_000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 604_800_000

    @property
    def key(self) -> ReplicaKey:
        """The replica key of this node."""
        return ReplicaKey(self.node_id, self.directory_id)
