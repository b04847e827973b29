"""Errors that only the share consumer raises."""

from __future__ import annotations

from barnabas.client.errors import ClientError

__all__ = ["IllegalAcknowledgementError"]


class IllegalAcknowledgementError(ClientError, RuntimeError):
    """A call does not fit the state of the acquired records (Java's IllegalStateException).

    For example, the record is not waiting for its acknowledgement, a poll begins while records are
    unacknowledged in explicit mode, or a record is acknowledged in implicit mode.
    """
