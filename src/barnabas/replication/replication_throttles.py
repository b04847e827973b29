"""The throttles of a broker: for a leader, for a follower, for moves (KIP-73, KIP-113)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.replication.replication_throttle import ReplicationThrottle

if TYPE_CHECKING:
    from barnabas.replication.config import ReplicationConfig
    from barnabas.runtime.clock import Clock

_MS_PER_S = 1000.0


class ReplicationThrottles:
    """The three throttles. Their limits change with the broker's dynamic configuration."""

    __slots__ = ("follower", "leader", "moves")

    def __init__(self, config: ReplicationConfig, clock: Clock) -> None:
        count = config.replication_quota_window_num
        window_ms = config.replication_quota_window_size_seconds * _MS_PER_S
        # Of the records that this broker sends as a leader.
        self.leader = ReplicationThrottle(clock, count, window_ms)
        self.leader.bytes_per_second = config.leader_replication_throttled_rate
        # Of the records that this broker fetches as a follower.
        self.follower = ReplicationThrottle(clock, count, window_ms)
        self.follower.bytes_per_second = config.follower_replication_throttled_rate
        # Of the records that are copied between this broker's data directories.
        self.moves = ReplicationThrottle(
            clock,
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds * _MS_PER_S,
        )
        self.moves.bytes_per_second = config.replica_alter_log_dirs_io_max_bytes_per_second
