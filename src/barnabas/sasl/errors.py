"""Error of an authentication exchange."""

from __future__ import annotations


class SaslError(Exception):
    """The peer's message is malformed, or its credentials are not accepted.

    Args:
        reason: what failed, for the log of this side. It never contains a secret.
        shown: text for the peer. None for a generic text, which does not tell whether the user
            exists.
        is_transient: whether the same login may succeed later, because a third server did not
            respond.
    """

    def __init__(
        self, reason: str, shown: str | None = None, *, is_transient: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown
        self.is_transient = is_transient
