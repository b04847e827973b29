"""Proof of another user's log-in by a SASL log-in at the brokers.

The schema registry and the console have no users of their own. The brokers decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Keys of the log-in of the program itself, which the log-in of another user does not have.
_OWN_LOGIN = ("sasl_", "enable_sasl")


def password_login(user: str, password: str, mechanism: str) -> dict[str, str]:
    """Return the keys of a client that logs in by name and password."""
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def without_login(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a client, with underscores, without those of its log-in."""
    spelled = {name.replace(".", "_"): value for name, value in client.items()}
    return {name: value for name, value in spelled.items() if not name.startswith(_OWN_LOGIN)}


async def is_login_accepted(
    bootstrap: str, client: Mapping[str, Any], login: Mapping[str, Any], timeout_ms: int
) -> bool:
    """Return whether the brokers accept a log-in.

    Args:
        bootstrap: Addresses of brokers.
        client: Keys of a client without a log-in: protocol and trusted certificates.
        login: Keys of the log-in.
        timeout_ms: How long the brokers have to decide (ms).

    Raises:
        ClientError: The brokers cannot decide now.
    """
    # Imported only for log-ins: commands need the mechanisms for their options.
    from barnabas.client.aio.admin import Admin

    limits = {"request_timeout_ms": timeout_ms, "default_api_timeout_ms": timeout_ms}
    try:
        async with Admin(bootstrap, **{**client, **login, **limits}) as admin:
            await admin.describe_cluster()
    except AuthenticationError:
        return False
    return True
