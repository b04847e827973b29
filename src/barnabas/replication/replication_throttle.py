"""Limits on the replication rate of selected partitions (KIP-73; Kafka's ReplicationQuotaManager).

A leader uses one throttle (`leader.replication.throttled.*`), a follower another one
(`follower.replication.throttled.*`), and moves between directories a third one (KIP-113). The
caller exempts partitions: the leader exempts ISR members, the follower partitions without lag.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.replication.config import UNLIMITED
from barnabas.settings.key import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.replication.config import ReplicationConfig
    from barnabas.runtime.clock import Clock
    from barnabas.storage.topic_partition import TopicPartition


_MS_PER_S = 1000.0
_ALL = None
_EVERY_REPLICA = "*"
_NO_REPLICA = "none"


class SampledRate:
    """A rate in bytes per second over the most recent windows (Kafka's SimpleRate)."""

    __slots__ = ("_clock", "_samples", "_window_count", "_window_ms")

    def __init__(self, clock: Clock, window_count: int, window_ms: float) -> None:
        self._clock = clock
        self._window_count = window_count
        self._window_ms = window_ms
        # (start in ms, bytes) of the recent windows, oldest first.
        self._samples: deque[tuple[float, int]] = deque()

    def record(self, size: int) -> None:
        """Count bytes."""
        now_ms = self._clock.monotonic_ms()
        self._forget_old(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
            start_ms, bytes_moved = self._samples[-1]
            self._samples[-1] = (start_ms, bytes_moved + size)
        else:
            self._samples.append((now_ms, size))

    def byte_rate(self) -> float:
        """Return the rate in bytes per second since the oldest window, over at least one window."""
        now_ms = self._clock.monotonic_ms()
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], self._window_ms)
        return sum(size for _, size in self._samples) * _MS_PER_S / elapsed_ms

    def _forget_old(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._window_count * self._window_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            self._samples.popleft()


class ReplicationThrottle:
    """The throttled partitions, their rate limit, and the bytes in recent windows."""

    __slots__ = ("_throttled", "byte_rate", "bytes_per_second", "is_active", "record")

    def __init__(self, clock: Clock, window_count: int, window_ms: float) -> None:
        # Limit of all throttled partitions together, or UNLIMITED.
        self.bytes_per_second = UNLIMITED
        # Throttled partitions by topic. None: all partitions of the topic.
        self._throttled: dict[str, frozenset[int] | None] = {}
        # Whether any partition is throttled. Callers check this first.
        self.is_active = False
        # The bytes of throttled partitions: `record` counts them, `byte_rate` is their rate.
        rate = SampledRate(clock, window_count, window_ms)
        self.record = rate.record
        self.byte_rate = rate.byte_rate

    def set_replicas(self, topic: str, replicas: Sequence[str], node_id: int) -> None:
        """Apply the topic's configuration.

        Args:
            topic: the topic.
            replicas: `*` or PARTITION:BROKER each. Empty: nothing is throttled.
            node_id: the id of this broker.
        """
        if _EVERY_REPLICA in replicas:
            self._throttled[topic] = _ALL
        else:
            pairs = [each.partition(":") for each in replicas if each and each != _NO_REPLICA]
            mine = frozenset(
                partition
                for index, _, broker in pairs
                if whole_number(broker) == node_id
                and (partition := whole_number(index)) is not None
            )
            if mine:
                self._throttled[topic] = mine
            else:
                self._throttled.pop(topic, None)
        self.is_active = bool(self._throttled)

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is throttled."""
        if topic_partition.topic not in self._throttled:
            return False
        partitions = self._throttled[topic_partition.topic]
        return partitions is _ALL or topic_partition.partition in partitions

    @property
    def is_exceeded(self) -> bool:
        """Whether the recent rate exceeds the limit."""
        return self.bytes_per_second != UNLIMITED and self.byte_rate() > self.bytes_per_second


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
