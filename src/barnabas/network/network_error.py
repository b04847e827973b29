"""Why a request got no answer: the outcome that a caller gets in place of a response.

Values, not exceptions thrown across layers; they are exceptions only so that a blocking face can
raise what it was handed.
"""

from __future__ import annotations

import enum


class NetworkErrorKind(enum.Enum):
    """What went wrong."""

    CONNECT_FAILED = "connect failed"
    DISCONNECTED = "disconnected"
    TIMED_OUT = "timed out"
    MALFORMED = "malformed response"
    CLOSED = "closed by this side"


class NetworkError(Exception):
    """A kind, and words for a human."""

    def __init__(self, kind: NetworkErrorKind, detail: str, *, is_refusal: bool = False) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail
        # Whether the peer's machine is there and says that nobody listens.
        self.is_refusal = is_refusal

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed over another connection."""
        return self.kind in _RETRIABLE


_RETRIABLE = frozenset(
    {
        NetworkErrorKind.CONNECT_FAILED,
        NetworkErrorKind.DISCONNECTED,
        NetworkErrorKind.TIMED_OUT,
    }
)
