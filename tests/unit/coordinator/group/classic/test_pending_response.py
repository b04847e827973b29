"""A response that a coordinator completes later is sent once."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.classic_member import PendingResponse
from barnabas.protocol.errors import ErrorCode


def failed(error: ErrorCode) -> str:
    return f"failed with {error.name}"


def test_a_completed_response_is_sent_once() -> None:
    sent: list[str] = []
    pending = PendingResponse(sent.append)
    pending.complete("first")
    assert pending.is_sent
    with pytest.raises(AssertionError, match="EveryRequestAnsweredOnce: second response 'second'"):
        pending.complete("second")
    assert sent == ["first"]


def test_a_successful_write_leaves_the_response_pending() -> None:
    sent: list[str] = []
    pending = PendingResponse(sent.append)
    pending.on_written(ErrorCode.NONE, failed)
    assert not pending.is_sent
    pending.complete("later")
    assert sent == ["later"]


def test_a_failed_write_sends_the_error_and_later_responses_are_ignored() -> None:
    sent: list[str] = []
    pending = PendingResponse(sent.append)
    pending.on_written(ErrorCode.REQUEST_TIMED_OUT, failed)
    pending.complete("later")
    assert sent == ["failed with REQUEST_TIMED_OUT"]


def test_a_write_that_fails_after_the_response_was_sent_changes_nothing() -> None:
    sent: list[str] = []
    pending = PendingResponse(sent.append)
    pending.complete("first")
    pending.on_written(ErrorCode.NOT_COORDINATOR, failed)
    assert sent == ["first"]
