"""Snapshots of partitions: leaders, epochs, replica sets, and the offsets of each replica.

All data comes from the Kafka protocol. The log end offset of a replica is requested as a debugging
consumer, which followers answer too. The high watermark is the end offset that a leader reports to
consumers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.admin.broker_removal import minimum_isrs
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.partitions import Reassignment
    from barnabas.client.admin.topics import PartitionState, TopicState
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """The state of one partition. An unknown offset is replaced by the error that explains it."""

    partition: TopicPartition
    state: PartitionState
    is_internal: bool
    # The topic's min.insync.replicas, limited to the number of replicas, as leaders apply it
    # (KIP-966). None if it is unknown.
    min_isr: int | None
    high_watermark: int | ClientError
    # Log end offset of each replica whose broker serves.
    ends: Mapping[int, int | ClientError]
    reassignment: Reassignment | None = None

    @property
    def end(self) -> int | None:
        """The leader's log end offset; None if it is unknown."""
        return self.end_of(self.state.leader)

    def end_of(self, replica: int) -> int | None:
        """Return a replica's log end offset; None if it is unknown."""
        end = self.ends.get(replica)
        return end if isinstance(end, int) else None

    def lag_of(self, replica: int) -> int | None:
        """Return the number of records by which a replica is behind the leader; None if unknown."""
        end, own = self.end, self.end_of(replica)
        return None if end is None or own is None else max(0, end - own)

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Replicas that are not in the ISR."""
        return tuple(r for r in self.state.replicas if r not in self.state.isr)

    def is_silent(self, replica: int) -> bool:
        """Return whether the replica's broker should serve but does not answer.

        A response with an error code is an answer.
        """
        end = self.ends.get(replica)
        return isinstance(end, ClientError) and not isinstance(end, BrokerError)

    @property
    def marks(self) -> tuple[str, ...]:
        """The problems of the partition, the worst first."""
        found = []
        in_sync = len(self.state.isr)
        if self.state.leader == NO_LEADER:
            found.append("offline")
        elif self.is_silent(self.state.leader):
            found.append("leader-silent")
        if self.min_isr is not None and self.state.leader != NO_LEADER:
            if in_sync < self.min_isr:
                found.append("under-min-isr")
            elif in_sync == self.min_isr and self.out_of_sync:
                found.append("at-min-isr")
        if self.out_of_sync and self.state.leader != NO_LEADER:
            found.append("under-replicated")
        elif any(self.is_silent(r) for r in self.state.replicas if r != self.state.leader):
            found.append("replica-silent")
        if self.reassignment is not None:
            found.append("moving")
        if self.state.replicas and self.state.leader not in (NO_LEADER, self.state.replicas[0]):
            found.append("not-preferred")
        return tuple(found)


def take_snapshots(
    client: Client, names: Sequence[str], *, internal: bool = True
) -> list[PartitionSnapshot]:
    """Take snapshots of all partitions of the named topics; without names, of all topics.

    Raises:
        ClientError: A topic does not exist, or no broker answers.
    """
    topics = _topics(client, names, internal=internal)
    states = {
        TopicPartition(name, number): state
        for name, topic in topics.items()
        for number, state in sorted(topic.partitions.items())
    }
    if not states:
        return []
    ends = _ends(client, states)
    # Do not ask a silent leader again: each attempt costs the request timeout.
    leader_ends = {
        tp: ends.get(state.leader, {}).get(tp, ClientError("the partition has no leader"))
        for tp, state in states.items()
    }
    led = {tp: "latest" for tp, end in leader_ends.items() if isinstance(end, int)}
    high_watermarks = client.admin.list_offsets(led)
    minima = minimum_isrs(client, topics)
    moving = _reassignments(client, states if names else None)
    return [
        PartitionSnapshot(
            partition=tp,
            state=state,
            is_internal=topics[tp.topic].is_internal,
            min_isr=min(minima[tp.topic], len(state.replicas)) if tp.topic in minima else None,
            high_watermark=_watermark(high_watermarks.get(tp), leader_ends[tp]),
            ends={node: ends[node][tp] for node in state.replicas if tp in ends.get(node, {})},
            reassignment=moving.get(tp),
        )
        for tp, state in states.items()
    ]


def _topics(client: Client, names: Sequence[str], *, internal: bool) -> dict[str, TopicState]:
    found: dict[str, TopicState] = {}
    if names:
        # This request waits for new topics, and suggests similar names for a wrong name.
        client.describe_topics(names, may_be_new=False)
    for name, topic in sorted(client.admin.describe_topic_partitions(names).items()):
        if isinstance(topic, ClientError):
            raise topic
        if internal or names or not topic.is_internal:
            found[name] = topic
    return found


def _ends(
    client: Client, states: Mapping[TopicPartition, PartitionState]
) -> dict[int, dict[TopicPartition, int | ClientError]]:
    """Return the log end offsets by replica, for the brokers that serve."""
    serving = {broker.id for broker in client.describe_cluster().brokers}
    wanted: dict[int, dict[TopicPartition, str | int]] = {}
    for tp, state in states.items():
        for node in state.replicas:
            if node in serving:
                wanted.setdefault(node, {})[tp] = "latest"
    found: dict[int, dict[TopicPartition, int | ClientError]] = {}
    for node, answer in client.admin.list_replica_offsets(wanted).items():
        if isinstance(answer, ClientError):
            found[node] = dict.fromkeys(wanted[node], answer)
        else:
            found[node] = {tp: _offset(each) for tp, each in answer.items()}
    return found


def _reassignments(
    client: Client, wanted: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    """Return the active reassignments; empty if no controller answers."""
    try:
        return client.admin.list_reassignments(wanted, once=True)
    except ClientError:
        return {}


def _offset(found: ListedOffset | ClientError) -> int | ClientError:
    return found if isinstance(found, ClientError) else found.offset


def _watermark(
    found: ListedOffset | ClientError | None, end: int | ClientError
) -> int | ClientError:
    """Return the high watermark, or the error that explains why it is unknown."""
    if found is None:
        assert isinstance(end, ClientError)
        return end
    return _offset(found)
