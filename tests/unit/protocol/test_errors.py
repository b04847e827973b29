"""Error codes."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from barnabas.protocol.errors import ErrorCode, error_counter
from barnabas.protocol.messages.partition_changes import AlterPartitionResponse


def test_codes_names_and_retriability_equal_those_of_kafka() -> None:
    for theirs in KioErrorCode:
        ours = ErrorCode(int(theirs))
        assert ours.name == theirs.name.upper()
        assert ours.retriable is theirs.retriable


def test_codes_leave_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


def test_every_error_has_a_unique_message() -> None:
    messages = [code.message for code in ErrorCode]
    assert all(messages)
    assert len(set(messages)) == len(messages)


def test_an_unknown_code_is_unexpected() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(12345) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_unknown_error_codes_are_counted_as_unknown_server_error() -> None:
    """Responses of newer controllers are forwarded and counted with all their codes."""
    counts = [0] * (max(ErrorCode) + 2)
    count = error_counter(AlterPartitionResponse)
    for code in (0, 136, -1, 137, 32_767, -2, -32_768):
        count(AlterPartitionResponse(error_code=code, topics=[]), counts)
    assert (counts[0], counts[136], counts[-1]) == (1, 1, 5)
    assert sum(counts) == 7
