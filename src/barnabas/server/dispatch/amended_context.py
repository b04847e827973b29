"""Context of a request of which a part was rejected before its handler was called.

The handler serves the rest. The errors of the rejected part are added to its response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from barnabas.server.dispatch.request import M, RequestContext

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.principal import Principal
    from barnabas.protocol.schema import Message

    # Adds the errors of the rejected part to a response.
    Amend = Callable[[Message], Message]


class AmendedContext(RequestContext):
    """Passes the response, once amended, to the context of the whole request."""

    __slots__ = ("_amend", "_inner", "_is_amended")

    def __init__(self, inner: RequestContext, amend: Amend) -> None:
        """Args:
        inner: the context of the whole request.
        amend: adds the errors of the rejected part to the response.
        """
        super().__init__(
            inner.connection,
            inner._slot,  # only `inner` completes the slot
            (0, inner.version, inner.correlation_id, inner.client_id, 0),
            inner.request_bytes,
            inner._dependencies,
            inner._statistics,
        )
        self._inner = inner
        self._amend = amend
        # Whether the response has the errors of the rejected part. Never reset.
        self._is_amended = False

    @property
    def principal(self) -> Principal:
        """Identity of the client that sent the request."""
        return self._inner.principal

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has proven its identity."""
        return self._inner.is_authenticated

    @property
    def address(self) -> str:
        """HOST:PORT of the client, or its IP address if the request was forwarded."""
        return self._inner.address

    @property
    def host(self) -> str:
        """IP address of the client."""
        return self._inner.host

    def amended(self, response: Message) -> Message:
        """Add the errors of the rejected part to the response, unless this has been done."""
        if self._is_amended:
            return response
        self._is_amended = True
        return self._amend(response)

    def respond(self, response: Message, throttle_ms: int = 0, *, is_clean: bool = False) -> None:
        """Send the amended response, which has errors."""
        self._inner.respond(self.amended(response), throttle_ms)

    def in_slices(self, steps: Generator[None, None, M | None]) -> M | None:
        """Serve the request with a generator. See `RequestContext.in_slices`."""
        # An amended response has the type of the response.
        return cast("M | None", self._inner.in_slices(self._amended_steps(steps)))

    def _amended_steps(
        self, steps: Generator[None, None, Message | None]
    ) -> Generator[None, None, Message | None]:
        response = yield from steps
        return None if response is None else self.amended(response)
