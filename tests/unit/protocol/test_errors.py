"""Error codes."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from barnabas.protocol.errors import ErrorCode


def test_codes_names_and_retriability_are_kafkas() -> None:
    for theirs in KioErrorCode:
        ours = ErrorCode(int(theirs))
        assert ours.name == theirs.name.upper()
        assert ours.retriable is theirs.retriable


def test_codes_leave_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


def test_every_error_has_words_of_its_own() -> None:
    messages = [code.message for code in ErrorCode]
    assert all(messages)
    assert len(set(messages)) == len(messages)


def test_a_code_from_the_future_counts_as_unexpected() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(12345) is ErrorCode.UNKNOWN_SERVER_ERROR
