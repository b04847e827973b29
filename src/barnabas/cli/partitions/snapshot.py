"""Partitions at one moment: their leaders, epochs, sets of replicas, and how far each replica is.

By the protocol alone. A replica's own log end offset is asked as a debugging consumer, whom
followers answer, too; the high watermark is what a leader tells consumers as its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.admin.topic_partitions import PartitionState, TopicState
    from barnabas.client.facade import Client
    from barnabas.client.list_offsets import ListedOffset

__all__ = ["PartitionSnapshot", "take_snapshots"]

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition; an offset that was not to be had is the error instead."""

    partition: TopicPartition
    state: PartitionState
    is_internal: bool
    # The topic's min.insync.replicas, but no more than there are replicas, as leaders have it
    # (KIP-966); None where it was not to be had.
    min_isr: int | None
    high_watermark: int | ClientError
    # The log end offset of each replica whose broker is there.
    ends: Mapping[int, int | ClientError]
    reassignment: Reassignment | None = None

    @property
    def end(self) -> int | None:
        """The leader's log end offset."""
        return self.end_of(self.state.leader)

    def end_of(self, replica: int) -> int | None:
        """A replica's log end offset, None where it was not to be had."""
        end = self.ends.get(replica)
        return end if isinstance(end, int) else None

    def lag_of(self, replica: int) -> int | None:
        """How far a replica's end is behind the leader's."""
        end, own = self.end, self.end_of(replica)
        return None if end is None or own is None else max(0, end - own)

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        """Replicas outside of the ISR."""
        return tuple(r for r in self.state.replicas if r not in self.state.isr)

    def is_silent(self, replica: int) -> bool:
        """Whether its broker is said to serve and does not answer; an error code is an answer."""
        end = self.ends.get(replica)
        return isinstance(end, ClientError) and not isinstance(end, BrokerError)

    @property
    def marks(self) -> tuple[str, ...]:
        """What is not as it should be, the worst first."""
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
    """Look at all partitions of the named topics, of all topics if none is named.

    Raises:
        ClientError: no such topic, or no broker answers.
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
    # Whoever was silent is not asked again: each time costs the request's time-out.
    told = {
        tp: ends.get(state.leader, {}).get(tp, ClientError("there is no leader to ask"))
        for tp, state in states.items()
    }
    led = {tp: "latest" for tp, end in told.items() if isinstance(end, int)}
    high_watermarks = client.admin.list_offsets(led)
    minima = _min_isr(client, list(topics))
    moving = _reassignments(client, states if names else None)
    return [
        PartitionSnapshot(
            tp,
            state,
            topics[tp.topic].is_internal,
            min(minima[tp.topic], len(state.replicas)) if tp.topic in minima else None,
            _watermark(high_watermarks.get(tp), told[tp]),
            {node: ends[node][tp] for node in state.replicas if tp in ends.get(node, {})},
            moving.get(tp),
        )
        for tp, state in states.items()
    ]


def _topics(client: Client, names: Sequence[str], *, internal: bool) -> dict[str, TopicState]:
    found: dict[str, TopicState] = {}
    if names:
        # Tells a name that is wrong from one that is new, and which names are like it.
        client.describe_topics(names)
    for name, topic in sorted(client.admin.describe_topic_partitions(names).items()):
        if isinstance(topic, ClientError):
            raise topic
        if internal or names or not topic.is_internal:
            found[name] = topic
    return found


def _ends(
    client: Client, states: Mapping[TopicPartition, PartitionState]
) -> dict[int, dict[TopicPartition, int | ClientError]]:
    """Log end offsets by replica; of brokers that do not serve there are none."""
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
    """What moves; the rest is worth showing though no controller answers."""
    try:
        return client.admin.list_reassignments(wanted, once=True)
    except ClientError:
        return {}


def _offset(found: ListedOffset | ClientError) -> int | ClientError:
    return found if isinstance(found, ClientError) else found.offset


def _watermark(
    found: ListedOffset | ClientError | None, end: int | ClientError
) -> int | ClientError:
    """What the leader told; why it was not asked, if it was not."""
    if found is None:
        assert isinstance(end, ClientError)
        return end
    return _offset(found)


def _min_isr(client: Client, names: Sequence[str]) -> dict[str, int]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = {}
    for resource, entries in client.admin.describe_configs(resources).items():
        if isinstance(entries, ClientError):
            continue
        for entry in entries:
            if entry.name == "min.insync.replicas" and entry.value is not None:
                found[resource.name] = int(entry.value)
    return found
