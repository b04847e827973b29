"""Error of clients without a principal."""

from __future__ import annotations


class UnknownPrincipalError(ValueError):
    """The client is authenticated, but its principal cannot be determined."""
