"""The one exception of this package: bytes that are not what they claim, or values that do not fit.

A peer that makes us raise it loses its connection; nothing else happens.
"""

from __future__ import annotations


class ProtocolError(ValueError):
    """Bytes that cannot be decoded, or a message that cannot be encoded at the asked version."""
