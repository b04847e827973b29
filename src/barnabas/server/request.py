"""One request on its way: what the handler knows of it, and how it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.headers import encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.connection import Connection, ResponseSlot
    from barnabas.protocol.schema import Message

    # A response, or None when the request is parked: then context.respond is called later.
    Handle = Callable[["RequestContext", Any], Message | None]


class RequestContext:
    """A request's header and its place in its connection's order of answers."""

    __slots__ = (
        "_slot",
        "client_id",
        "connection",
        "correlation_id",
        "listener_name",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        slot: ResponseSlot,
        header: tuple[int, int, int, str | None, int],
        listener_name: str,
    ) -> None:
        self.connection = connection
        # Completed or skipped exactly once.
        self._slot = slot
        _, self.version, self.correlation_id, self.client_id, _ = header
        # Of the listener that the request came in by: clients are told addresses of this one.
        self.listener_name = listener_name

    def respond(self, response: Message) -> None:
        """Answer; the bytes leave when all earlier requests of the connection are answered."""
        self._slot.complete(encode_response(self.correlation_id, response, self.version))

    def respond_nothing(self) -> None:
        """The request has no answer (Produce with acks=0)."""
        self._slot.skip()

    def close_connection(self) -> None:
        """The only way to tell a producer that asked for no answers that something failed."""
        self._slot.skip()
        self.connection.close()
