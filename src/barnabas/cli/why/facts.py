"""The facts that `why` uses: responses of brokers, gathered twice with a pause.

The facts come from APIs of the Kafka protocol, so Apache Kafka provides them too, and from the
metrics listeners that the user named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.share_groups import ShareOffset, ShareState
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.admin.held_back import HeldBack
    from barnabas.cli.common.machine_lines import Machine
    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.cli.why.tier_reasons import TierFacts
    from barnabas.client.admin.group_descriptions import (
        GroupDescription,
        GroupMember,
        StreamsGroupDescription,
        StreamsMember,
    )
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.errors import CorruptRecordsError
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.topic_partition import TopicPartition

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
    # The machines; empty if each broker has its own.
    machines: Sequence[Machine] = ()

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
    # The remote tier; None without one.
    tier: TierFacts | None = None

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
    def leader(self) -> int:
        """The broker that leads the partition; -1 if there is none."""
        return self.now.state.leader

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
    # The error with which every consumer fails at the committed offset; None if the records there
    # can be read, or were not read.
    unreadable: CorruptRecordsError | None = None

    @property
    def lag(self) -> int | None:
        """Number of committed records in the log that the group has not read."""
        if self.now is None or self.high_watermark is None:
            return None
        return max(0, self.high_watermark - self.now)

    @property
    def is_stalled(self) -> bool:
        """Whether it has records to read, and its position in the log did not change."""
        return (
            bool(self.lag)
            and self.before == self.now
            and self.leader >= 0
            and (self.log_start or 0) <= (self.now or 0)
            and not self.is_in_transaction
        )

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


# Names that a message lists.
_SHOWN = 5


def member_name(member: GroupMember | StreamsMember) -> str:
    """Return the instance id, client id or member id, with the host."""
    name = member.instance_id or member.client_id or member.member_id
    return f"{name} at {member.host}" if member.host else name


def listed(words: Iterable[str]) -> str:
    """Return the first words, separated by commas."""
    found = list(words)
    return ", ".join(found[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The configs of a share group that decide about its deliveries."""

    # share.delivery.count.limit, share.record.lock.duration.ms, share.partition.max.record.locks.
    delivery_count: int
    lock_duration_ms: int
    record_locks: int
    # Whether share.isolation.level is read_committed.
    is_read_committed: bool = False


@dataclass(frozen=True, slots=True)
class ShareReading:
    """One measurement of a share partition."""

    # What the group coordinator reports; None if it reports nothing.
    offset: ShareOffset | ClientError | None
    # What the share coordinator has stored about the records.
    state: ShareState | ClientError

    @property
    def start_offset(self) -> int | None:
        """The first record that is not processed; None while nothing is stored."""
        if isinstance(self.state, ShareState):
            start = self.state.start_offset
        elif isinstance(self.offset, ShareOffset):
            start = self.offset.start_offset
        else:
            return None
        return start if start >= 0 else None

    @property
    def lag(self) -> int | None:
        """Number of records that are not processed; None if it is unknown."""
        if not isinstance(self.offset, ShareOffset) or self.offset.lag < 0:
            return None
        return self.offset.lag

    @property
    def processed(self) -> int | None:
        """An offset that rises by one with each processed record; None if it is unknown."""
        if not isinstance(self.state, ShareState) or self.state.start_offset < 0:
            return None
        return self.state.start_offset + max(0, self.state.delivery_complete_count)


def processed_between(before: ShareReading, now: ShareReading) -> int:
    """Return the number of records that were processed between two measurements."""
    start, end = before.processed, now.processed
    if start is None or end is None:
        # Without the states, only the start offset shows progress. The first acknowledgement
        # stores it.
        start, end = before.start_offset, now.start_offset
        if start is None and end is not None:
            return 1
    return 0 if start is None or end is None else max(0, end - start)


@dataclass(frozen=True, slots=True)
class SharePartitionFacts:
    """The facts about one share partition, from two measurements."""

    partition: TopicPartition
    before: ShareReading
    now: ShareReading
    log: LogOffsets
    # The members to which the partition is assigned. Only the leader of the partition knows which
    # of them has a record.
    members: Sequence[GroupMember] = ()
    # The open transactions at the start offset of a read_committed group; None if there are none.
    held_back: HeldBack | None = None

    @property
    def lag(self) -> int | None:
        """Number of records that are not processed; None if it is unknown."""
        return self.now.lag

    @property
    def moved(self) -> int:
        """Number of records that were processed between the measurements."""
        return processed_between(self.before, self.now)


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """The facts about the partitions of a share group."""

    partitions: Sequence[SharePartitionFacts]
    # None if the group's configs cannot be described.
    limits: ShareLimits | None

    @property
    def lag(self) -> int:
        """The sum over all partitions with a known lag."""
        return sum(each.lag or 0 for each in self.partitions)


class LogOffsets(NamedTuple):
    """The offsets of one partition; None for those that its leader does not report."""

    # -1 if there is none.
    leader: int
    log_start: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    # The leader's log end offset.
    end: int | None = None


def log_offsets(
    client: Client, topics: Mapping[str, TopicInfo], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogOffsets]:
    """Return the offsets of partitions of existing topics."""
    leaders = {tp: _leader(topics, tp) for tp in partitions}
    led = [tp for tp, leader in leaders.items() if leader >= 0]
    admin = client.admin
    starts = admin.list_offsets(dict.fromkeys(led, "earliest"))
    watermarks = admin.list_offsets(dict.fromkeys(led, "latest"))
    stable = admin.list_offsets(dict.fromkeys(led, "latest"), read_committed=True)
    ends = _ends(client, {tp: leaders[tp] for tp in led})
    return {
        tp: LogOffsets(
            leader,
            _offset(starts.get(tp)),
            _offset(stable.get(tp)),
            _offset(watermarks.get(tp)),
            ends.get(tp),
        )
        for tp, leader in leaders.items()
    }


def _leader(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> int:
    partition = topics[tp.topic].partitions.get(tp.partition)
    return -1 if partition is None else partition.leader


def _ends(client: Client, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the leaders' log end offsets."""
    wanted: dict[int, dict[TopicPartition, str | int]] = {}
    for tp, leader in leaders.items():
        wanted.setdefault(leader, {})[tp] = "latest"
    found = {}
    for answer in client.admin.list_replica_offsets(wanted).values():
        for tp, each in {} if isinstance(answer, ClientError) else answer.items():
            if not isinstance(each, ClientError):
                found[tp] = each.offset
    return found


def _offset(found: ListedOffset | ClientError | None) -> int | None:
    return None if found is None or isinstance(found, ClientError) else found.offset
