"""A response that a coordinator completes in a later event.

A write operation returns most responses, and the runtime sends them after the commit of the
operation's records. Some responses need another client's request or a timer first: a JoinGroup
request is answered when all members have joined. Such a response is a `PendingResponse`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


class PendingResponse(Generic[R]):
    """The response of one request. It is sent once."""

    __slots__ = ("_has_failed", "_send")

    def __init__(self, send: Callable[[R], None]) -> None:
        # Sends the response. None after it was sent.
        self._send: Callable[[R], None] | None = send
        # Whether the response was sent because its write failed.
        self._has_failed = False

    @property
    def is_sent(self) -> bool:
        """Whether the response was sent."""
        return self._send is None

    def complete(self, response: R) -> None:
        """Send the response.

        If the write of the request has failed, the client already has an error: ignore the late
        response.
        """
        if self._has_failed:
            return
        send, self._send = self._send, None
        assert send is not None, f"EveryRequestAnsweredOnce: second response {response!r}"
        send(response)

    def on_written(self, error: ErrorCode, failed: Callable[[ErrorCode], R]) -> None:
        """Send a failure if the write of the request failed and the response is not yet sent.

        Args:
            error: the result of the write.
            failed: returns the response with an error.
        """
        if error is not ErrorCode.NONE and not self.is_sent:
            self.complete(failed(error))
            self._has_failed = True
