"""Detects peers that are not Kafka brokers by the first bytes of their response."""

from __future__ import annotations

__all__ = ["foreign_protocol"]

# A TLS record of type alert (21) or handshake (22), version 3.x.
_TLS_STARTS = (b"\x15\x03", b"\x16\x03")
_TEXTS = {
    b"HTTP": "a web server (HTTP) listens there, not a broker",
    b"SSH-": "an SSH server listens there, not a broker",
}


def foreign_protocol(start: bytes) -> str | None:
    """Return a description of the peer's protocol, or None if it is unknown.

    Args:
        start: the first four received bytes. In Kafka they are the length of a response.
    """
    if start.startswith(_TLS_STARTS):
        return (
            "it answered with TLS: the listener wants TLS, and this client has "
            "security.protocol=PLAINTEXT"
        )
    return _TEXTS.get(start)
