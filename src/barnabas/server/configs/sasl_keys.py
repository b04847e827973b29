"""Configuration keys of SASL, and their values for one listener or mechanism.

Names and defaults are those of BrokerSecurityConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.key import ConfigValue


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
    ConfigKey("sasl.oauthbearer.expected.issuer", ConfigType.STRING, None, "The issuer of tokens."),
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


class KeysOfListener:
    """Reads keys of a listener. A key of its mechanism has precedence, a global key is last."""

    def __init__(
        self,
        config: ParsedConfig,
        given: Mapping[str, str],
        listener: str,
        mechanism: str | None = None,
    ) -> None:
        """Create the view of one listener's keys.

        Args:
            config: the parsed configuration.
            given: all given properties, which include keys of single listeners.
            listener: name of the listener, in any case.
            mechanism: name of the mechanism; None for keys of the listener alone.
        """
        self._config = config
        self._given = given
        self._prefix = f"listener.name.{listener.lower()}."
        # Prefixes of a key, the most specific first.
        self._prefixes = [self._prefix]
        if mechanism is not None:
            self._prefixes.insert(0, f"{self._prefix}{mechanism.lower()}.")

    def name_of(self, key: str) -> str:
        """Return the full name of a given key. If it is not given, return the name to set."""
        for prefix in self._prefixes:
            if prefix + key in self._given:
                return prefix + key
        return key if key in self._given else self._prefixes[0] + key

    def own_text(self, key: str) -> str | None:
        """Return the text of a key with the most specific prefix only; None if it is not given."""
        return self._given.get(self._prefixes[0] + key)

    def value(self, key: str) -> ConfigValue:
        """Return the value of a key.

        Raises:
            ConfigError: the given text is not allowed.
        """
        for prefix in self._prefixes:
            text = self._given.get(prefix + key)
            if text is not None:
                return self._config.definition.parse_value(key, text)
        return self._config[key]

    def integer(self, key: str) -> int:
        """Return the value of an integer key."""
        value = self.value(key)
        assert isinstance(value, int), key
        return value

    def boolean(self, key: str) -> bool:
        """Return the value of a BOOLEAN key."""
        value = self.value(key)
        assert isinstance(value, bool), key
        return value

    def string(self, key: str) -> str:
        """Return the value of a text key, which must not be null."""
        value = self.value(key)
        assert isinstance(value, str), key
        return value

    def optional_string(self, key: str) -> str | None:
        """Return the value of a text key, which may be null."""
        return None if self.value(key) is None else self.string(key)

    def strings(self, key: str) -> list[str]:
        """Return the value of a LIST key."""
        value = self.value(key)
        assert isinstance(value, list), key
        return value
