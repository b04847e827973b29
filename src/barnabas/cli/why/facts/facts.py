"""The facts that `why` uses: responses of brokers, gathered twice with a pause.

The facts come from APIs of the Kafka protocol, so Apache Kafka provides them too, and from the
metrics listeners that the user named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.cli.transactions.held_back import HeldBack
    from barnabas.cli.why.facts.share_facts import ShareFacts
    from barnabas.client.admin.group_descriptions import GroupDescription, StreamsGroupDescription
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["COMMIT_INTERVAL_S", "BrokerFacts", "GroupFacts", "PartitionFacts", "ReaderFacts"]

# The default of auto.commit.interval.ms (s).
COMMIT_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The brokers of the cluster."""

    # Registered brokers that are not fenced.
    serving: frozenset[int]
    # Registered brokers that are fenced: stopped, dead, or not ready.
    fenced: frozenset[int] = frozenset()
    # Serving brokers that did not answer, with the error.
    silent: Mapping[int, ClientError] = field(default_factory=dict)
    # Broker -> throttle of its followers in bytes per second. Absent: not throttled.
    follower_rates: Mapping[int, int] = field(default_factory=dict)
    # The active controller; None if there is none or it is unknown.
    controller: int | None = None

    def condition(self, broker: int) -> str:
        """Return the condition of a broker: "serves", "silent", "fenced" or "gone"."""
        if broker in self.silent:
            return "silent"
        if broker in self.serving:
            return "serves"
        return "fenced" if broker in self.fenced else "gone"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The facts about one partition, from two snapshots."""

    before: PartitionSnapshot
    now: PartitionSnapshot
    # Time between the snapshots (s).
    seconds: float
    brokers: BrokerFacts
    # As reported by the leader.
    log_start: int | None = None
    last_stable_offset: int | None = None
    # The open transactions; None if the last stable offset is at the high watermark.
    held_back: HeldBack | None = None
    # Broker without the replica in a working directory -> its failed directories and errors.
    failed_directories: Mapping[int, str] = field(default_factory=dict)
    # Brokers whose replica of this partition is in the list of throttled followers.
    throttled_followers: frozenset[int] = frozenset()
    # The leader's replica.lag.time.max.ms.
    lag_time_max_ms: int = 30_000
    # Timestamps of records (ms): of the record at the high watermark, and of the next record
    # that each follower needs.
    uncommitted_since_ms: int | None = None
    behind_since_ms: Mapping[int, int] = field(default_factory=dict)
    now_ms: int = 0
    # Metrics listener -> number of requests in the produce purgatory, and number of
    # partitions whose fetcher failed.
    waiting_produces: Mapping[str, int] = field(default_factory=dict)
    failed_fetches: Mapping[str, int] = field(default_factory=dict)
    # Metrics listener -> kind of damage -> number of damaged places in the broker's files.
    damage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def partition(self) -> TopicPartition:
        """The partition."""
        return self.now.partition

    @property
    def high_watermark(self) -> int | None:
        """The high watermark; None if the leader does not report it."""
        found = self.now.high_watermark
        return found if isinstance(found, int) else None

    @property
    def end(self) -> int | None:
        """The leader's log end offset."""
        return self.now.end

    def moved(self, replica: int) -> int | None:
        """Return how many records a replica gained between the snapshots."""
        before, now = self.before.end_of(replica), self.now.end_of(replica)
        return None if before is None or now is None else now - before

    @property
    def watermark_moved(self) -> bool:
        """Whether the high watermark advanced between the snapshots."""
        before, now = self.before.high_watermark, self.now.high_watermark
        return isinstance(before, int) and isinstance(now, int) and now > before


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """The facts about one partition as a group reads it."""

    partition: TopicPartition
    # Committed offset in both snapshots; None if no offset was committed.
    before: int | None
    now: int | None
    # -1 if there is none.
    leader: int
    log_start: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    end: int | None
    # Name and host of the member that reads the partition; empty if there is none.
    reader: str = ""
    client_id: str = ""
    # The open transactions at the committed offset; None if there are none.
    held_back: HeldBack | None = None

    @property
    def lag(self) -> int | None:
        """Number of committed records in the log that the group has not read."""
        if self.now is None or self.high_watermark is None:
            return None
        return max(0, self.high_watermark - self.now)

    @property
    def is_in_transaction(self) -> bool:
        """Whether a read_committed consumer waits at this position for an open transaction."""
        stable, watermark = self.last_stable_offset, self.high_watermark
        if stable is None or watermark is None or self.now is None:
            return False
        return stable <= self.now and stable < watermark


@dataclass(frozen=True, slots=True)
class FetchQuota:
    """A limit of fetches."""

    # The user, client id or both that share it, for messages.
    owner: str
    # Bytes per second.
    rate: float


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The facts about one group."""

    name: str
    # The coordinator's description of the group, or its error.
    description: GroupDescription | ClientError
    # The broker that coordinates the group, or the error of the lookup.
    coordinator: int | ClientError
    brokers: BrokerFacts
    # Time between the two reads of its positions (s); 0 after a single read.
    seconds: float
    readers: Sequence[ReaderFacts] = ()
    # Topics that members subscribe to but that do not exist. In a streams group also missing
    # changelogs.
    missing_topics: frozenset[str] = frozenset()
    # Partitions of subscribed topics that are not assigned to any member.
    unread: Sequence[TopicPartition] = ()
    # Client id -> the lowest fetch quota that may apply to its members.
    fetch_quotas: Mapping[str, FetchQuota] = field(default_factory=dict)
    # The topology and tasks of a streams group; None for other groups.
    streams: StreamsGroupDescription | None = None
    # The share partitions of a share group; None for other groups.
    shares: ShareFacts | None = None
