"""The lifetime of a client: until it is closed, and only in the process that created it."""

from __future__ import annotations

from barnabas.client.errors import ClientClosedError, ForkedClientError
from barnabas.runtime.system.process import process_id

__all__ = ["Lifetime"]


class Lifetime:
    """Whether a client may still be used; `kind` is the kind of client, for error messages."""

    __slots__ = ("_kind", "_pid", "is_closed")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._pid = process_id()
        self.is_closed = False

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the process that created the client.

        Its sockets must then not be used or closed here.
        """
        return self._pid != process_id()

    def check(self) -> None:
        """Raise unless calls may be made now.

        Raises:
            ForkedClientError: The process was forked after the client was created.
            ClientClosedError: The client is closed.
        """
        if self.is_forked:
            raise ForkedClientError
        if self.is_closed:
            raise ClientClosedError(f"the {self._kind} is closed")

    def end(self) -> bool:
        """Mark the client as closed; return whether the caller must close connections now."""
        was_closed, self.is_closed = self.is_closed, True
        return not was_closed and not self.is_forked
