"""From when to when a client may be used: until it is closed, and in the process that made it."""

from __future__ import annotations

from barnabas.client.errors import ClientClosedError, ForkedClientError
from barnabas.runtime.process import process_id

__all__ = ["Lifetime"]


class Lifetime:
    """Whether a face of the client is still to be used; `what` names it in messages."""

    __slots__ = ("_pid", "_what", "is_closed")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = process_id()
        self.is_closed = False

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that made the client: the sockets are not ours."""
        return self._pid != process_id()

    def check(self) -> None:
        """Raise unless calls may be made.

        Raises:
            ForkedClientError: the process was forked meanwhile.
            ClientClosedError: it was closed.
        """
        if self.is_forked:
            raise ForkedClientError
        if self.is_closed:
            raise ClientClosedError(f"the {self._what} is closed")

    def end(self) -> bool:
        """Note that it is closed; whether there are connections of ours to close now."""
        was_closed, self.is_closed = self.is_closed, True
        return not was_closed and not self.is_forked
