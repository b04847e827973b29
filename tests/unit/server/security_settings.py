"""Settings of a simulated broker whose only listener has SASL."""

from __future__ import annotations

from barnabas.sasl.jaas import PLAIN_MODULE

LISTENER = "SECURE"
PREFIX = f"listener.name.{LISTENER.lower()}"
USERS = f'{PLAIN_MODULE} required user_alice="alice-secret" user_bob="bob-secret";'


def sasl_settings(mechanisms: str = "PLAIN,SCRAM-SHA-256", **more: str) -> dict[str, str]:
    """Return the keys of a listener with these mechanisms; `more` has `_` for `.`."""
    return {
        "listeners": f"{LISTENER}://broker:9092",
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": mechanisms,
        f"{PREFIX}.plain.sasl.jaas.config": USERS,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
