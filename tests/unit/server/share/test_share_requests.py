"""The form of acknowledgements, the batches of a read, and the order of writes."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_consumers import AcknowledgementBatch
from barnabas.protocol.messages.write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from barnabas.record.builder import BatchBuilder
from barnabas.server.handlers.records.share_acknowledge import are_valid
from barnabas.server.share.records.acquisition import cut, scan
from barnabas.server.share.share_partition import member_error
from barnabas.server.share.state_writer import SharePartitionKey, StateWriter, WrittenOffsets
from barnabas.storage.topic_partition import TopicIdPartition

KEY = SharePartitionKey("group", TopicIdPartition(bytes(16), "topic", 3))


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], True),
        ([(0, 3, [1])], True),
        ([(0, 1, [1, 2])], True),
        ([(0, 2, [1, 2])], False),
        ([(0, 2, [])], False),
        ([(3, 2, [1])], False),
        ([(0, 2, [1]), (2, 3, [1])], True),
        ([(0, 2, [1]), (1, 3, [1])], False),
        ([(-2, 0, [1])], False),
        ([(-1, 0, [1])], True),
        ([(0, 0, [5])], False),
        ([(0, 0, [-1])], False),
        ([(0, 0, [4])], False),
    ],
)
def test_batches_must_be_in_order_with_known_types(
    batches: list[tuple[int, int, list[int]]], expected: bool
) -> None:
    made = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in batches
    ]
    assert are_valid(made, 4, may_renew=False) is expected


def test_renewals_need_version_2_and_their_field() -> None:
    renewal = [AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[4])]
    assert are_valid(renewal, 4, may_renew=True)
    assert not are_valid(renewal, 3, may_renew=True)


def records(*sizes: int) -> bytes:
    made = b""
    offset = 0
    for size in sizes:
        builder = BatchBuilder()
        for _ in range(size):
            builder.append(0, None, b"value")
        batch = bytearray(builder.build())
        batch[:8] = offset.to_bytes(8, "big")
        made += bytes(batch)
        offset += size
    return made


def test_only_batches_with_acquired_records_are_sent() -> None:
    data = records(2, 3, 1)
    batches = scan(data, 5)
    assert [(each.first, each.last) for each in batches] == [(0, 1), (2, 4), (5, 5)]
    begin = batches[0].size
    assert cut(data, batches, 3, 4) == data[begin : begin + batches[1].size]
    assert cut(data, batches, 0, 5) == data
    assert cut(data, batches, 1, 2) == data[: begin + batches[1].size]
    # A last batch without its end is not sent.
    assert cut(data[:-1], scan(data[:-1], 5), 0, 4) == data[: begin + batches[1].size]
    assert cut(data, scan(data, 0), 0, 1) == data[:begin]


def test_a_read_is_scanned_up_to_the_last_acquirable_batch() -> None:
    data = records(2, 3, 1)
    assert [[each.last for each in scan(data, last)] for last in (1, 2, 4, 5)] == [
        [1],
        [1, 4],
        [1, 4],
        [1, 4, 5],
    ]
    assert [each.last for each in scan(data, 5, 2)] == [1, 4]


class FakePersister:
    """Keeps the requests until the test answers them."""

    def __init__(self) -> None:
        self.requests: list[object] = []
        self.answers: list[object] = []

    def write(self, request: object, on_response: object) -> None:
        self.requests.append(request)
        self.answers.append(on_response)

    def answer(self, error: ErrorCode) -> None:
        partition = PartitionResult(partition=3, error_code=error)
        result = WriteStateResult(topic_id=bytes(16), partitions=[partition])
        on_response = self.answers.pop(0)
        assert callable(on_response)
        on_response(WriteShareGroupStateResponse(results=[result]))


def test_changes_that_wait_are_written_together_and_in_order() -> None:
    persister = FakePersister()
    writer = StateWriter(KEY, persister, lambda: WrittenOffsets(1, 2, 10, 3))
    results: list[tuple[str, str]] = []
    for name, first in (("a", 10), ("b", 12), ("c", 14)):
        writer.write(
            [(first, first + 1, 2, 1)],
            lambda error, name=name: results.append((name, error.name)),  # type: ignore[misc]
        )
    assert len(persister.requests) == 1
    persister.answer(ErrorCode.NONE)
    assert results == [("a", "NONE")]
    written = persister.requests[1].topics[0].partitions[0]  # type: ignore[attr-defined]
    assert [each.first_offset for each in written.state_batches] == [12, 14]
    assert (written.state_epoch, written.leader_epoch, written.start_offset) == (1, 2, 10)
    persister.answer(ErrorCode.FENCED_STATE_EPOCH)
    assert results[1:] == [("b", "FENCED_STATE_EPOCH"), ("c", "FENCED_STATE_EPOCH")]
    writer.write([], lambda _: None)
    assert len(persister.requests) == 3


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("NONE", "NONE"),
        ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"),
        ("GROUP_ID_NOT_FOUND", "GROUP_ID_NOT_FOUND"),
        ("FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"),
        ("FENCED_STATE_EPOCH", "NOT_LEADER_OR_FOLLOWER"),
        ("INVALID_REQUEST", "UNKNOWN_SERVER_ERROR"),
        ("REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_errors_of_the_share_coordinator_are_translated(error: str, expected: str) -> None:
    assert member_error(ErrorCode[error]).name == expected
