"""The exception of this package: bytes or values that do not match the protocol.

A peer whose bytes cause this error loses its connection, without further effects.
"""

from __future__ import annotations


class ProtocolError(ValueError):
    """Bytes that cannot be decoded, or a message that cannot be encoded."""
