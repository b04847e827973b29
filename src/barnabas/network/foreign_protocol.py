"""Names what answered where a Kafka broker was expected, by the first bytes that it sent."""

from __future__ import annotations

__all__ = ["foreign_protocol"]

# A TLS record of the type alert (21) or handshake (22), version 3.x.
_TLS_STARTS = (b"\x15\x03", b"\x16\x03")
_TEXTS = {
    b"HTTP": "a web server (HTTP) listens there, not a broker",
    b"SSH-": "an SSH server listens there, not a broker",
}


def foreign_protocol(start: bytes) -> str | None:
    """Return what the peer speaks instead of Kafka's protocol, None if the bytes do not tell.

    Args:
        start: the first four bytes that came, where Kafka has the length of a response.
    """
    if start.startswith(_TLS_STARTS):
        return (
            "it answered with TLS: the listener wants TLS, and this client has "
            "security.protocol=PLAINTEXT"
        )
    return _TEXTS.get(start)
