"""Configuration keys of SASL. Names and defaults are those of BrokerSecurityConfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import at_least

if TYPE_CHECKING:
    from collections.abc import Iterable

GSSAPI = "GSSAPI"
# Keys that belong to no listener.
_GLOBAL = frozenset({
    "connection.failed.authentication.delay.ms",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
})  # fmt: skip

_OAUTH_KEYS = [
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        ConfigType.STRING,
        None,
        "The keys that sign tokens: https://..., or file:///... for a file.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        3_600_000,
        "The keys are loaded again after this time.",
        at_least(1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "The delay after a failed attempt to load the keys. It doubles with each failure.",
        at_least(1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "The longest of these delays. An unknown key id loads the keys once in this time.",
        at_least(1),
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience",
        ConfigType.LIST,
        [],
        "The audience of tokens for this cluster: one of these.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer",
        ConfigType.STRING,
        None,
        "The issuer of tokens.",
    ),
    ConfigKey(
        "sasl.oauthbearer.allow.unverified.audience",
        ConfigType.BOOLEAN,
        False,
        "Whether sasl.oauthbearer.expected.audience may be missing.",
    ),
    ConfigKey(
        "sasl.oauthbearer.allow.unverified.issuer",
        ConfigType.BOOLEAN,
        False,
        "Whether sasl.oauthbearer.expected.issuer may be missing.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        ConfigType.INT,
        30,
        "The accepted difference between the clocks of the issuer and of this broker.",
        at_least(0),
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name",
        ConfigType.STRING,
        "scope",
        "The claim with the scopes of a token, which has to be a text or a list of texts.",
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name",
        ConfigType.STRING,
        "sub",
        "The claim with the user of a token.",
    ),
    ConfigKey(
        "sasl.login.callback.handler.class",
        ConfigType.CLASS,
        None,
        "With OAUTHBEARER: whether this node logs in to others by tokens of an issuer, or by"
        " unsecured ones. docs/security.md names the two classes.",
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url",
        ConfigType.STRING,
        None,
        "The server that issues the tokens by which this node logs in to others, https://..., or a"
        " file with a token, file:///...",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id",
        ConfigType.STRING,
        None,
        "The name of this node at the server that issues tokens.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret",
        ConfigType.PASSWORD,
        None,
        "The secret of this node at the server that issues tokens.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope",
        ConfigType.STRING,
        None,
        "The scope that this node asks for in its tokens.",
    ),
]

SASL_KEYS = ConfigDefinition([
    ConfigKey(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        [GSSAPI],
        "The mechanisms that SASL listeners offer: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,"
        " OAUTHBEARER. GSSAPI (Kerberos) is not implemented.",
        distinct=True,
    ),
    ConfigKey(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        "Users and passwords of a mechanism. Brokers read it with the listener and the mechanism"
        " only: listener.name.NAME.MECHANISM.sasl.jaas.config.",
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        GSSAPI,
        "The mechanism with which brokers log in to each other.",
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol",
        ConfigType.STRING,
        GSSAPI,
        "The mechanism with which nodes log in to controllers.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524_288,
        "The largest size of a frame before a client is authenticated.",
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "A client has to authenticate again within this time (KIP-368). 0: never.",
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "The delay of the response to a failed authentication, after which the connection closes.",
        at_least(0),
    ),
    ConfigKey(
        "sasl.server.callback.handler.class",
        ConfigType.CLASS,
        None,
        "With OAUTHBEARER: whether tokens need a signature. docs/security.md names the two"
        " classes.",
    ),
    *_OAUTH_KEYS,
])  # fmt: skip


def sasl_listener_keys(given: Iterable[str], names: list[str]) -> set[str]:
    """Return those of the given keys that set SASL for one of the listeners."""
    own = {key.name for key in SASL_KEYS} - _GLOBAL
    known: set[str] = set()
    for name in names:
        prefix = f"listener.name.{name.lower()}."
        for key in given:
            rest = key.removeprefix(prefix)
            if rest != key and (rest in own or rest.partition(".")[2] in own):
                known.add(key)
    return known
