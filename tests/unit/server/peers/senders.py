"""The senders of requests to other brokers, each with a way to send a part and to respond.

A part has a number. The part with the number BAD contains a value that cannot be encoded.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.share import state_api
from barnabas.coordinator.transaction.transaction_metadata import Markers, Producer
from barnabas.protocol.codec import encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    produce as producing,
    transactions,
    write_share_group_state as writing,
)
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.record.columns import iter_records
from barnabas.runtime.executor import InlineExecutor
from barnabas.server.conversion.conversion_queue import ConversionQueue
from barnabas.server.peers.latest_offsets import LatestOffsets
from barnabas.server.peers.markers import NetworkMarkerSender
from barnabas.server.peers.peer_queues import PeerDependencies
from barnabas.server.peers.transaction_verification import Operation, TransactionVerification
from barnabas.server.remote.metadata_publisher import MetadataPublisher
from barnabas.server.share.dead_letter_records import DeadLetter
from barnabas.server.share.dead_letter_writer import (
    DeadLetterWriter,
)
from barnabas.server.share.persister import Persister
from barnabas.sim.world import sim_runtime
from barnabas.storage.remote.segment_states import Applied
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

THIS, OTHER, NO_LEADER = 1, 2, -1
BAD = 9
# Text that cannot be encoded.
SURROGATE = "\ud800"
TOPIC_ID = b"0123456789abcdef"


class Channel:
    """A channel to the other broker that encodes requests, and responds when the test says so."""

    def __init__(self) -> None:
        # Requests without a response, with their callbacks.
        self.pending: list[tuple[Any, Callable[[Any, Any], None]]] = []
        self.sent = 0
        # Raised by the next call of `send`.
        self.error: Exception | None = None

    def send(self, request: Any, version: int, on_response: Any, _timeout_ms: float) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        encode_request(1, "client", request, version)
        assert not self.pending, "the previous request has no response"
        self.sent += 1
        self.pending.append((request, on_response))

    def respond(self, make_response: Callable[[Any], Any]) -> None:
        request, on_response = self.pending.pop()
        on_response(make_response(request), None)


class Sender:
    """A sender of broker 1. Broker 2 leads everything, unless a test changes the leader."""

    # Whether the sender repeats a part until it succeeds, so that no part fails.
    repeats = False
    # Whether the sender repeats a part that has no leader or no room.
    waits_for_leader = True

    def __init__(self) -> None:
        self.world, self.runtime = sim_runtime(1)
        # The broker that leads everything.
        self.leader = OTHER
        self.channel = Channel()
        self.channels: Any = SimpleNamespace(open=lambda *_: self.channel)
        self.cluster: Any = SimpleNamespace(
            partition=lambda *_: SimpleNamespace(leader=self.leader),
            partition_count=lambda _: 1,
            topic_id=lambda _: TOPIC_ID,
            topic_name=lambda _: "dead",
        )
        # Number of each ended part, and whether it succeeded.
        self.ended: dict[int, bool] = {}
        self.peers = PeerDependencies(
            THIS, self.cluster, self.runtime.clock, self.runtime.timer, self.channels
        )
        # Raised by the next callback of a part.
        self.error: Exception | None = None

    def end(self, number: int, is_success: bool) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        assert number not in self.ended, f"part {number} ended twice"
        self.ended[number] = is_success

    def send(self, number: int) -> None:
        """Send the part with this number."""
        raise NotImplementedError

    def response(self, request: Any) -> Any:
        """Return the response in which all parts succeed."""
        raise NotImplementedError

    def run(self) -> None:
        """Run what is due soon, but no retry."""
        self.world.run_for(20)

    def respond(self) -> None:
        """Respond to all requests without an error, until there is none."""
        self.run()
        while self.channel.pending:
            self.channel.respond(self.response)
            self.run()


class Verification(Sender):
    waits_for_leader = False

    def __init__(self) -> None:
        super().__init__()
        coordinator: Any = SimpleNamespace(runtime=SimpleNamespace(partition_for=lambda _: 0))
        self.verification = TransactionVerification(
            SimpleNamespace(),
            coordinator,
            self.peers,  # type: ignore[arg-type]
        )

    def send(self, number: int) -> None:
        key = TopicPartition("t", number)
        self.verification.query_coordinator(
            SURROGATE if number == BAD else f"id {number}",
            Producer(number, 0),
            Operation.VERIFY,
            frozenset({key}),
            lambda results: self.end(number, results == {key: ErrorCode.NONE}),
        )

    def response(self, request: transactions.AddPartitionsToTxnRequest) -> Any:
        return transactions.AddPartitionsToTxnResponse(
            results_by_transaction=[
                transactions.AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        transactions.AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                transactions.AddPartitionsToTxnPartitionResult(
                                    partition_index=index, partition_error_code=0
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )


class MarkerSender(Sender):
    repeats = True

    def __init__(self) -> None:
        super().__init__()
        writer: Any = SimpleNamespace()
        self.sender = NetworkMarkerSender(writer, self.peers)

    def send(self, number: int) -> None:
        producer_id = 1 << 63 if number == BAD else number
        partitions = (TopicPartition("t", number),)
        markers = Markers("id", 0, producer_id, 0, 1, True, 2, partitions)
        self.sender.send(markers, lambda _: None, lambda error: self.end(number, not error))

    def response(self, request: transactions.WriteTxnMarkersRequest) -> Any:
        return transactions.WriteTxnMarkersResponse(
            markers=[
                transactions.WritableTxnMarkerResult(
                    producer_id=each.producer_id,
                    topics=[
                        transactions.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                transactions.WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=0
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.markers
            ]
        )


class StatePersister(Sender):
    def __init__(self) -> None:
        super().__init__()
        coordinator: Any = SimpleNamespace(runtime=SimpleNamespace(partition_for=lambda _: 0))
        self.persister = Persister(
            coordinator,
            SimpleNamespace(),
            self.peers,  # type: ignore[arg-type]
        )

    def send(self, number: int) -> None:
        count = 32_768 if number == BAD else 1
        batch = writing.StateBatch(
            first_offset=0, last_offset=0, delivery_state=0, delivery_count=count
        )
        data = writing.PartitionData(
            partition=number,
            state_epoch=0,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=0,
            state_batches=[batch],
        )
        topic = writing.WriteStateData(topic_id=TOPIC_ID, partitions=[data])

        def on_response(response: writing.WriteShareGroupStateResponse) -> None:
            self.end(number, response.results[0].partitions[0].error_code == ErrorCode.NONE)

        request = writing.WriteShareGroupStateRequest(group_id="g", topics=[topic])
        self.persister.write(request, on_response)

    def response(self, request: writing.WriteShareGroupStateRequest) -> Any:
        return state_api.WRITE.make_response(
            (
                topic.topic_id,
                [
                    state_api.WRITE.refuse(each.partition, ErrorCode.NONE)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        )


class Offsets(Sender):
    waits_for_leader = False

    def __init__(self) -> None:
        super().__init__()
        replicas: Any = SimpleNamespace()
        self.offsets = LatestOffsets(replicas, self.peers)

    def send(self, number: int) -> None:
        key = TopicPartition(SURROGATE if number == BAD else "t", number)
        self.offsets.find([key], lambda found: self.end(number, found == {key: 77}))

    def response(self, request: ListOffsetsRequest) -> Any:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, error_code=0, offset=77
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class DeadLetters(Sender):
    def __init__(self) -> None:
        super().__init__()
        settings: Any = SimpleNamespace(
            problem=lambda _: None,
            topic=lambda _: "dead",
            copies_records=lambda _: False,
            max_bytes=lambda _: 1 << 20,
        )
        nothing: Any = SimpleNamespace()
        conversions = ConversionQueue(self.runtime.timer, InlineExecutor())
        self.writer = DeadLetterWriter(settings, nothing, nothing, conversions, self.peers)

    def send(self, number: int) -> None:
        group_id = f"group {number}"
        # The header with the name of the topic cannot be built.
        topic: Any = None if number == BAD else "t"
        letter = DeadLetter(group_id, TopicIdPartition(TOPIC_ID, topic, 0), 0, 0, 1, True)

        def on_done() -> None:
            self.end(number, self.writer.counts[group_id].records == 1)

        self.writer.write(letter, on_done)

    def response(self, request: producing.ProduceRequest) -> Any:
        return produced(request)


def produced(request: producing.ProduceRequest) -> producing.ProduceResponse:
    """Return the response to a request whose batches are all appended."""
    return producing.ProduceResponse(
        responses=[
            producing.TopicProduceResponse(
                topic_id=topic.topic_id,
                partition_responses=[
                    producing.PartitionProduceResponse(
                        index=each.index, error_code=0, base_offset=0
                    )
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


class SegmentEvents(Sender):
    """Writes events; the tail reads them as soon as they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster.topic_name = lambda _: REMOTE_LOG_TOPIC
        self.publisher = MetadataPublisher(120_000, self.peers)
        respond = self.channel.respond

        def respond_and_report(make_response: Callable[[Any], Any]) -> None:
            respond(make_response)
            # Results of events are reported in the next turn.
            self.world.run_for(1)

        self.channel.respond = respond_and_report  # type: ignore[method-assign]

    def send(self, number: int) -> None:
        where = TopicIdPartition(TOPIC_ID, "t", number)
        # The metadata partition does not fit its field.
        index = 1 << 40 if number == BAD else 0

        def on_done(result: Applied | ErrorCode) -> None:
            self.end(number, isinstance(result, Applied))

        self.publisher.write(where, index, b"event %d" % number, on_done)

    def response(self, request: producing.ProduceRequest) -> Any:
        for topic in request.topic_data:
            for each in topic.partition_data:
                for record in iter_records(bytes(each.records or b"")):
                    self.publisher.on_applied(record.value or b"", Applied(None, True))
        return produced(request)


SENDERS = (Verification, MarkerSender, StatePersister, Offsets, DeadLetters, SegmentEvents)
