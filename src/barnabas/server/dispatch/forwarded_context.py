"""Context of a request in an envelope, with the principal and address of the original client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import EnvelopeResponse
from barnabas.server.dispatch.envelope import wrap_response
from barnabas.server.dispatch.request import EXEMPT, RequestContext, give_up

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.network.principal import Principal
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.envelope import ForwardedHeader
    from barnabas.server.dispatch.request_statistics import ApiStatistics


class ForwardedRequest(msgspec.Struct, frozen=True):
    """Header, principal and client address of a request in an envelope."""

    header: ForwardedHeader
    principal: Principal
    address: str


class ForwardedContext(RequestContext):
    """Responds in an envelope, through the context of the envelope request."""

    __slots__ = ("_envelope", "_forwarded")

    def __init__(
        self, envelope: RequestContext, forwarded: ForwardedRequest, statistics: ApiStatistics
    ) -> None:
        super().__init__(
            envelope.connection,
            envelope._slot,  # this context never completes the slot
            forwarded.header,
            envelope.request_bytes,
            envelope._dependencies,
            statistics,
        )
        self._envelope = envelope
        self._forwarded = forwarded

    @property
    def principal(self) -> Principal:
        """Identity of the client that sent the request to the broker."""
        return self._forwarded.principal

    @property
    def is_authenticated(self) -> bool:
        """Return True: the broker has checked it where it matters."""
        return True

    @property
    def address(self) -> str:
        """IP address of the client."""
        return self._forwarded.address

    @property
    def host(self) -> str:
        """IP address of the client."""
        return self._forwarded.address

    def _respond_in_steps(self, response: Message) -> Generator[None, None, None]:
        # An envelope contains the encoded response, so encode it in one step.
        self.respond(response)
        yield

    def respond(self, response: Message, throttle_ms: int = 0, *, is_clean: bool = False) -> None:
        """Send the response in the envelope.

        Only the mutation quota of the controller throttles the client here. The broker counts the
        other quotas, and it stops reading from the client.
        """
        statistics = self._statistics
        if throttle_ms > 0 and throttle_ms != EXEMPT and statistics.has_throttle_time:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # the class has it
        if not is_clean:
            statistics.error_searches += 1
        codes = [0] * len(statistics.errors)
        statistics.count_errors(response, codes)
        for code, count in enumerate(codes):
            statistics.errors[code] += count
        if codes[ErrorCode.NOT_CONTROLLER]:
            self._envelope.respond_exempt(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        try:
            data = wrap_response(self.correlation_id, response, self.version)
        except Exception as error:  # noqa: BLE001 - only this request fails
            # As for a response to a client: the caller has other requests to complete.
            give_up(self.connection, error, statistics.name, self.version)
            return
        self._envelope.respond_exempt(
            EnvelopeResponse(response_data=data, error_code=ErrorCode.NONE)
        )
