"""What `why` reasons from: facts that brokers answered, gathered twice, a moment apart.

Only from APIs of the protocol, so that Apache Kafka tells as much, and from the metrics listeners
that were named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.admin.groups import GroupDescription
    from barnabas.client.admin.partitions import ActiveProducer
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["BrokerFacts", "GroupFacts", "PartitionFacts", "ReaderFacts"]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The brokers of the cluster."""

    # Those that the controller lets serve.
    serving: frozenset[int]
    # Those that are registered and may not: stopped, dead, or not ready.
    fenced: frozenset[int] = frozenset()
    # Of serving ones that did not answer us, why.
    silent: Mapping[int, ClientError] = field(default_factory=dict)
    # Bytes per second to which followers are throttled, by broker; absent: not throttled.
    follower_rates: Mapping[int, int] = field(default_factory=dict)
    # The active controller, None if there is none or nobody tells.
    controller: int | None = None

    def condition(self, broker: int) -> str:
        """How a broker is: "serves", "silent", "fenced" or "gone"."""
        if broker in self.silent:
            return "silent"
        if broker in self.serving:
            return "serves"
        return "fenced" if broker in self.fenced else "gone"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition, seen twice."""

    before: PartitionSnapshot
    now: PartitionSnapshot
    # Between the two.
    seconds: float
    brokers: BrokerFacts
    # As its leader tells.
    log_start: int | None = None
    last_stable_offset: int | None = None
    # Producers with a transaction that is open here.
    open_transactions: Sequence[ActiveProducer] = ()
    # Transactional id and state by producer id, where a coordinator tells.
    transactions: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    # Why replicas are on log directories that failed, by broker.
    failed_directories: Mapping[int, str] = field(default_factory=dict)
    # Brokers that are to be throttled as followers of this partition.
    throttled_followers: frozenset[int] = frozenset()
    # replica.lag.time.max.ms of the leader, as it says.
    lag_time_max_ms: int = 30_000
    # When records were written by their own timestamps, ms: the one at the high watermark, and the
    # one that each follower needs next.
    uncommitted_since_ms: int | None = None
    behind_since_ms: Mapping[int, int] = field(default_factory=dict)
    now_ms: int = 0
    # What metrics listeners told, by their address: requests in the produce purgatory, and
    # partitions of fetchers that failed.
    waiting_produces: Mapping[str, int] = field(default_factory=dict)
    failed_fetches: Mapping[str, int] = field(default_factory=dict)
    # Damaged places in a broker's files, by the listener's address and by their kind.
    damage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def partition(self) -> TopicPartition:
        """Which one."""
        return self.now.partition

    @property
    def high_watermark(self) -> int | None:
        """None if the leader does not tell."""
        found = self.now.high_watermark
        return found if isinstance(found, int) else None

    @property
    def end(self) -> int | None:
        """The leader's log end offset."""
        return self.now.end

    def moved(self, replica: int) -> int | None:
        """How far a replica's end came between the looks."""
        before, now = self.before.end_of(replica), self.now.end_of(replica)
        return None if before is None or now is None else now - before

    @property
    def watermark_moved(self) -> bool:
        """Whether the high watermark came forward between the looks."""
        before, now = self.before.high_watermark, self.now.high_watermark
        return isinstance(before, int) and isinstance(now, int) and now > before


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """One partition as a group reads it."""

    partition: TopicPartition
    # Committed offset at both looks; None if none was committed.
    before: int | None
    now: int | None
    # -1 while there is none.
    leader: int
    log_start: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    end: int | None
    # How the broker names itself who reads it; empty if nobody does.
    reader: str = ""
    client_id: str = ""

    @property
    def lag(self) -> int | None:
        """Records that are committed in the log and not read yet."""
        if self.now is None or self.high_watermark is None:
            return None
        return max(0, self.high_watermark - self.now)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group."""

    name: str
    # What its coordinator says; the error if that was one.
    description: GroupDescription | ClientError
    # The broker that coordinates it; the error if none was found.
    coordinator: int | ClientError
    brokers: BrokerFacts
    seconds: float
    readers: Sequence[ReaderFacts] = ()
    # Topics that members subscribe to and that are not there.
    missing_topics: frozenset[str] = frozenset()
    # Partitions of subscribed topics that no member reads.
    unread: Sequence[TopicPartition] = ()
    # Bytes per second that clients may fetch, by client id.
    fetch_quotas: Mapping[str, float] = field(default_factory=dict)
