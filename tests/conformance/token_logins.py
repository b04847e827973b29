"""Settings of clients that log in with a password or a delegation token."""

from __future__ import annotations

import base64

from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE


def plain(name: str) -> dict[str, str]:
    """Return the properties of a user of PLAIN."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="{name}" password="{name}-secret";',
    }


def by_token(token_id: str, secret: bytes, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    """Return the properties of a client that logs in by a token, as in Kafka's documentation."""
    password = base64.b64encode(secret).decode()
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="{token_id}" '
        f'password="{password}" tokenauth="true";',
    }
