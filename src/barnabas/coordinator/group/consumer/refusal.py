"""An error that refuses a request of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.errors import ErrorCode


class RefusalError(Exception):
    """The request is refused, and its records are not written."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
