"""Responses of a new leader to batches that are already in its log (KIP-98).

With BARNABAS_CONFORMANCE_BOOTSTRAP=kafka, Apache Kafka is tested.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from conformance.raw_client import RawClient
from scenario.language import parse
from scenario.stage import Stage, runs_on_kafka

if TYPE_CHECKING:
    from pathlib import Path

ACKS_ALL = -1
BATCHES = 8
RECORDS_EACH = 2
# The current time, because a restart forgets producers with old timestamps.
TIMESTAMP = int(time.time() * 1000)
NEW = -1


def batch(number: int) -> bytes:
    """Return the batch of that number: two records whose offsets equal their sequences."""
    builder = BatchBuilder(producer_id=4711, producer_epoch=0, base_sequence=number * RECORDS_EACH)
    for index in range(RECORDS_EACH):
        builder.append(TIMESTAMP + number, b"key", b"%d of %d" % (index, number))
    return bytes(builder.build())


def send(stage: Stage, broker: int, number: int) -> tuple[ErrorCode, int, int]:
    """Send a batch, and return error, base offset and log append time of the response."""
    client = RawClient(stage.cluster.node(broker).address)
    data = PartitionProduceData(index=0, records=batch(number))
    topic = TopicProduceData(name="t", partition_data=[data])
    try:
        response = client.ask(ProduceRequest(acks=ACKS_ALL, timeout_ms=9000, topic_data=[topic]), 9)
    finally:
        client.close()
    found = response.responses[0].partition_responses[0]
    return ErrorCode(found.error_code), found.base_offset, found.log_append_time_ms


def play(stage: Stage, text: str) -> None:
    stage.play_steps(parse("retried batches", f"# A part of a story.\n3 brokers\n{text}").steps[1:])


@pytest.mark.conformance
def test_duplicates_of_the_last_five_batches_get_their_offsets_after_a_failover(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, kafka=runs_on_kafka())
    try:
        stage.play_steps(parse("retried batches", "# Two replicas.\n2 brokers 1 controllers").steps)
        play(stage, "topic t replicas 1 2 min-isr 1")
        for number in range(BATCHES):
            assert send(stage, 1, number) == (ErrorCode.NONE, number * RECORDS_EACH, NEW)
        play(stage, "kill broker 1\nexpect leader of t = 2")
        check_known(stage, first_known=BATCHES - 5)
        # After a clean stop at least the last batch is known.
        play(stage, "stop broker 2\nstart broker 2\nexpect leader of t = 2")
        last = (BATCHES - 1) * RECORDS_EACH
        assert send(stage, 2, BATCHES - 1) == (ErrorCode.NONE, last, TIMESTAMP + BATCHES - 1)
        refused = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(stage, 2, BATCHES - 6)[:2] == (refused, -1)
        assert send(stage, 2, BATCHES) == (ErrorCode.NONE, last + RECORDS_EACH, NEW)
    finally:
        stage.close()


def check_known(stage: Stage, first_known: int) -> None:
    for number in range(BATCHES):
        response = send(stage, 2, number)
        if number < first_known:
            assert response[:2] == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), number
        else:
            # The response to a duplicate has its timestamp with both timestamp types.
            expected = (ErrorCode.NONE, number * RECORDS_EACH, TIMESTAMP + number)
            assert response == expected, number
