"""Broker 1 with its fetchers, and leaders 2, 3... whose responses the test defines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.log_offsets import (
    EpochEndOffset as AnsweredEpochEnd,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.record.batch import set_offset_and_epoch
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.replicated_cluster import (
    PARTITION,
    TOPIC,
    ReplicatedCluster,
    batch,
    topic_id_of,
)

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.fetch_states import FetchState
    from barnabas.replication.fetcher.fetcher_manager import FetcherManager

SESSION = 77


def records(*values: bytes, offset: int = 0, epoch: int = 0) -> bytes:
    """Return one batch of a leader."""
    made = batch(*values)
    set_offset_and_epoch(made, 0, offset, epoch)
    return bytes(made)


def data(content: bytes | memoryview = b"", **fields: Any) -> PartitionData:
    """Return the response data of a partition."""
    fields = {"error_code": 0, "high_watermark": 0, "log_start_offset": 0, **fields}
    diverging = fields.pop("diverging", None)
    if diverging is not None:
        fields["diverging_epoch"] = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return PartitionData(partition_index=0, records=content, **fields)


class ScriptedChannel:
    """A channel to a leader, whose responses the test sends."""

    def __init__(self, broker_id: int, client_id: str) -> None:
        self.broker_id = broker_id
        self.client_id = client_id
        self.sent: list[tuple[Message, int, Any]] = []
        self.answered = 0
        self.closed = 0
        self.is_connected = False
        self.connections_created = 0

    def send(self, request: Message, version: int, on_response: Any, timeout_ms: float) -> None:
        assert len(self.sent) == self.answered, "one request in flight"
        self.timeout_ms = timeout_ms
        self.sent.append((request, version, on_response))

    def close(self) -> None:
        self.closed += 1
        self.answered = len(self.sent)

    @property
    def waiting(self) -> Any:
        """The pending request; None if there is none."""
        return None if len(self.sent) == self.answered else self.sent[-1][0]

    @property
    def version(self) -> int:
        return self.sent[-1][1]

    def answer(self, response: Message) -> None:
        assert self.waiting is not None, "no request is pending"
        self.answered = len(self.sent)
        self.sent[-1][2](response, None)

    def fail(self) -> None:
        assert self.waiting is not None
        self.answered = len(self.sent)
        self.sent[-1][2](None, NetworkError(NetworkErrorKind.DISCONNECTED, "scripted"))

    def give(
        self, parts: dict[TopicPartition, PartitionData], session_id: int = SESSION, error: int = 0
    ) -> None:
        """Answer the pending fetch."""
        assert isinstance(self.waiting, FetchRequest)
        response = FetchResponse(error_code=error, session_id=session_id, responses=[])
        for key, part in parts.items():
            part.partition_index = key.partition
            by_id = self.version >= 13
            response.responses.append(
                FetchableTopicResponse(
                    topic="" if by_id else key.topic,
                    topic_id=topic_id_of(key.topic),
                    partitions=[part],
                )
            )
        self.answer(response)

    def give_offset(
        self, key: TopicPartition, offset: int, error: int = 0, epoch: int = -1
    ) -> None:
        """Answer the pending ListOffsets request."""
        part = ListOffsetsPartitionResponse(
            partition_index=key.partition, error_code=error, offset=offset, leader_epoch=epoch
        )
        self.answer(
            ListOffsetsResponse(
                topics=[ListOffsetsTopicResponse(name=key.topic, partitions=[part])]
            )
        )

    def give_epoch_end(
        self, key: TopicPartition, epoch: int, end_offset: int, error: int = 0
    ) -> None:
        """Answer the pending OffsetForLeaderEpoch request."""
        part = AnsweredEpochEnd(
            partition=key.partition, error_code=error, leader_epoch=epoch, end_offset=end_offset
        )
        self.answer(
            OffsetForLeaderEpochResponse(
                topics=[OffsetForLeaderTopicResult(topic=key.topic, partitions=[part])]
            )
        )


class ScriptedChannels:
    """All of a broker's channels, in the order of their opening."""

    def __init__(self) -> None:
        self.opened: list[ScriptedChannel] = []

    def open(self, broker_id: int, client_id: str) -> ScriptedChannel:
        channel = ScriptedChannel(broker_id, client_id)
        self.opened.append(channel)
        return channel


class FollowingBroker:
    """Follows broker 2 with the partitions of one topic by default."""

    def __init__(self, partitions: int = 1, leader: int = 2, **settings: Any) -> None:
        self.channels = ScriptedChannels()
        node_settings = {"channels": self.channels, **settings.pop("node_settings", {})}
        self.cluster = ReplicatedCluster(1, node_settings=node_settings, **settings)
        self.node = self.cluster[1]
        # A disk with nearly instantaneous checkpoints.
        self.node.host.runtime.executor.delay_max_ms = 0.1
        for other in (2, 3):
            self.cluster.controller.register(other)
            self.cluster.controller.unfence(other)
        if partitions:
            self.cluster.make_topic(partitions=partitions, replicas=(leader, 1))

    @property
    def fetchers(self) -> FetcherManager:
        assert self.node.manager.followed.fetchers is not None
        return self.node.manager.followed.fetchers

    @property
    def leader(self) -> ScriptedChannel:
        """The channel that was opened last."""
        return self.channels.opened[-1]

    @property
    def log(self) -> Any:
        return self.node.log()

    def key(self, partition: int) -> TopicPartition:
        return TopicPartition(TOPIC, partition)

    def state(self, key: TopicPartition = PARTITION) -> FetchState | None:
        for _, fetcher in self.fetchers.fetchers():
            state = fetcher.states.get(key)
            if state is not None:
                return state
        return None

    def is_delayed(self, key: TopicPartition = PARTITION) -> bool:
        state = self.state(key)
        assert state is not None
        return state.delayed_until_ms > self.node.host.clock.monotonic_ms()

    def asked(self, channel: ScriptedChannel | None = None) -> dict[TopicPartition, Any]:
        """The partitions in the pending fetch of a channel, or of the last one."""
        names = {topic_id_of(TOPIC): TOPIC}
        return {
            TopicPartition(topic.topic or names[topic.topic_id], each.partition): each
            for topic in (channel or self.leader).waiting.topics
            for each in topic.partitions
        }

    def run_for(self, duration_ms: float) -> None:
        self.cluster.run_for(duration_ms)

    def lead(self, broker_id: int, key: TopicPartition = PARTITION) -> None:
        """Apply a new leader epoch of the partition, with this broker in the ISR."""
        isr = list(dict.fromkeys([broker_id, self.node.id]))
        self.cluster.controller.change(key, leader=broker_id, isr=isr)
        self.run_for(5)


@pytest.fixture
def broker() -> FollowingBroker:
    return FollowingBroker()


def give_one(broker: FollowingBroker, **fields: object) -> None:
    """Send the first record of an empty log, in a session."""
    broker.leader.give({PARTITION: data(records(b"a"), high_watermark=1, **fields)})
