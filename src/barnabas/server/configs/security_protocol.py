"""Security protocols of listeners, with Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """How the connections of a listener are protected."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        """Whether the connections use TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
