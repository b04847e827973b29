"""A request that came in an envelope, as its handler sees it: its client's, not its broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.server.envelope import wrap_response
from barnabas.server.request import EXEMPT, RequestContext, give_up

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.schema import Message
    from barnabas.server.envelope import ForwardedHeader
    from barnabas.server.request_statistics import ApiStatistics


class ForwardedRequest(msgspec.Struct, frozen=True):
    """What the envelope says."""

    header: ForwardedHeader
    user: str
    address: str


class ForwardedContext(RequestContext):
    """Answers through the envelope's own context."""

    __slots__ = ("_envelope", "_forwarded")

    def __init__(
        self, envelope: RequestContext, forwarded: ForwardedRequest, statistics: ApiStatistics
    ) -> None:
        super().__init__(
            envelope.connection,
            envelope._slot,  # never answered by this one
            forwarded.header,
            envelope.request_bytes,
            envelope._services,
            statistics,
        )
        self._envelope = envelope
        self._forwarded = forwarded

    @property
    def user(self) -> str:
        """Who asked the broker."""
        return self._forwarded.user

    @property
    def address(self) -> str:
        """From where."""
        return self._forwarded.address

    def _respond_in_steps(self, response: Message) -> Generator[None, None, None]:
        # The envelope's answer is bytes.
        self.respond(response)
        yield

    def respond(self, response: Message, throttle_ms: int = 0, *, is_clean: bool = False) -> None:
        """Answer in the envelope.

        Only what the controller counts, its mutations, holds the client back here: the broker
        counts the rest, and it is the one that reads from the client no more.
        """
        statistics = self._statistics
        if throttle_ms > 0 and throttle_ms != EXEMPT and statistics.has_throttle_time:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        if not is_clean:
            statistics.looked_into += 1
        codes = [0] * len(statistics.errors)
        statistics.count_errors(response, codes)
        for code, count in enumerate(codes):
            statistics.errors[code] += count
        if codes[ErrorCode.NOT_CONTROLLER]:
            self._envelope.respond(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        try:
            data = wrap_response(self.correlation_id, response, self.version)
        except Exception as error:  # noqa: BLE001
            # As with an answer to a client: whoever brought it about has others to tell.
            give_up(self.connection, error, statistics.name, self.version)
            return
        self._envelope.respond(EnvelopeResponse(response_data=data, error_code=ErrorCode.NONE))
