"""Keys of TLS (Kafka: SslConfigs, BrokerSecurityConfigs), and their values for one listener.

Each key can be set for one listener, as `listener.name.NAME.KEY` with the name in lower case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.tls.tls_options import ClientAuth, KeySource, TlsOptions, TrustSource
from barnabas.settings.definition import (
    ConfigDefinition,
    ConfigError,
    ConfigKey,
    ConfigType,
    DynamicMode,
)
from barnabas.settings.key import each_one_of, one_of, satisfying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.configs.endpoints import SecurityProtocol
    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.key import ConfigValue, Range

_STRING, _PASSWORD, _LIST = ConfigType.STRING, ConfigType.PASSWORD, ConfigType.LIST
_READ_ONLY, _PER_BROKER = DynamicMode.READ_ONLY, DynamicMode.PER_BROKER
_CLIENT_AUTH = "ssl.client.auth"
_VERSIONS = ("TLSv1.3", "TLSv1.2", "TLSv1.1", "TLSv1", "SSLv3")


def _is_store_type(value: ConfigValue) -> bool:
    return isinstance(value, str) and value.upper() in ("JKS", "PKCS12", "PEM")


_STORE_TYPE = satisfying("JKS, PKCS12 or PEM", _is_store_type)


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    allowed: Range | None = None,
    mode: DynamicMode = _PER_BROKER,
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, allowed, mode)


TLS_KEYS = ConfigDefinition(
    [
        _key(
            "ssl.keystore.location",
            _STRING,
            None,
            "A file with the private key and the certificates of this node.",
        ),
        _key(
            "ssl.keystore.type",
            _STRING,
            "JKS",
            "The format of the key store. With JKS, the content decides which of the three it is.",
            _STORE_TYPE,
        ),
        _key("ssl.keystore.password", _PASSWORD, None, "The password of the key store."),
        _key(
            "ssl.key.password", _PASSWORD, None, "The password of the private key, in PEM or JKS."
        ),
        _key(
            "ssl.keystore.key",
            _PASSWORD,
            None,
            "The private key as PEM text (PKCS8), in place of a key store.",
        ),
        _key(
            "ssl.keystore.certificate.chain",
            _PASSWORD,
            None,
            "The certificates as PEM text, that of this node first.",
        ),
        _key(
            "ssl.truststore.location",
            _STRING,
            None,
            "A file with the trusted certificates. Without it, the certificates that the system"
            " trusts.",
        ),
        _key(
            "ssl.truststore.type",
            _STRING,
            "JKS",
            "The format of the trust store; see ssl.keystore.type.",
            _STORE_TYPE,
        ),
        _key("ssl.truststore.password", _PASSWORD, None, "The password of the trust store."),
        _key(
            "ssl.truststore.certificates",
            _PASSWORD,
            None,
            "The trusted certificates as PEM text, in place of a trust store.",
        ),
        _key(
            _CLIENT_AUTH,
            _STRING,
            "none",
            "Whether clients need a certificate: required, requested (it may be missing), none.",
            one_of("required", "requested", "none"),
        ),
        _key(
            "ssl.enabled.protocols",
            _LIST,
            ["TLSv1.2", "TLSv1.3"],
            "The versions of TLS. Versions before 1.2 are never used.",
            each_one_of(*_VERSIONS),
        ),
        _key(
            "ssl.cipher.suites",
            _LIST,
            [],
            "The allowed cipher suites, by the names of Java or OpenSSL; empty: all usual ones.",
            None,
        ),
        _key(
            "ssl.endpoint.identification.algorithm",
            _STRING,
            "https",
            "Whether this node checks the host names in certificates of other nodes: https, or"
            " empty for no check.",
            satisfying("https, or empty", lambda value: str(value).lower() in ("https", "")),
        ),
        _key(
            "ssl.principal.mapping.rules",
            _STRING,
            "DEFAULT",
            "How the name of a principal is made from the subject of a client's certificate:"
            " DEFAULT, or RULE:PATTERN/REPLACEMENT/[LU], separated by commas.",
            None,
            _READ_ONLY,
        ),
        _key(
            "ssl.allow.dn.changes",
            ConfigType.BOOLEAN,
            False,
            "Whether a key store that is changed while the broker runs may have another subject.",
            None,
            _READ_ONLY,
        ),
        _key(
            "ssl.allow.san.changes",
            ConfigType.BOOLEAN,
            False,
            "Whether a key store that is changed while the broker runs may lack names of the old"
            " one.",
            None,
            _READ_ONLY,
        ),
    ]
)
# Keys that may change while the broker runs.
DYNAMIC_TLS_KEYS = tuple(key.name for key in TLS_KEYS if key.mode is _PER_BROKER)
# Keys of key stores and trust stores. They may change only for a single listener.
STORE_KEYS = frozenset(
    name for name in DYNAMIC_TLS_KEYS if name.startswith(("ssl.key", "ssl.truststore."))
)

# Keys that name a Java class, with the name of Kafka's own class. No other class can be loaded.
_CLASSES = {
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    ),
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
}


class UnusableKeyStoreError(ConfigError):
    """A key store or another value of TLS that is well formed but cannot be used."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, None, reason)
        self.args = (f"{key}: {reason}",)


class ListenerValues:
    """The values of TLS keys for one listener."""

    def __init__(self, config: ParsedConfig, given: Mapping[str, str], listener: str) -> None:
        """Store the configuration.

        Args:
            config: the parsed configuration.
            given: all given properties, which include keys of single listeners.
            listener: name of the listener, in any case.
        """
        self._config = config
        self._given = given
        self._prefix = listener_prefix(listener)

    def is_own(self, key: str) -> bool:
        """Return whether the key is set for this listener alone."""
        return f"{self._prefix}{key}" in self._given

    def value(self, key: str) -> ConfigValue:
        """Return the value of a key.

        Raises:
            ConfigError: the value for this listener is invalid.
        """
        text = self._given.get(f"{self._prefix}{key}")
        if text is None:
            return self._config[key]
        return self._config.definition.parse_value(key, text)

    def text(self, key: str) -> str | None:
        """Return the value of a STRING or PASSWORD key; None if it is not set or empty."""
        value = self.value(key)
        assert value is None or isinstance(value, str), key
        return value or None


def listener_prefix(listener: str) -> str:
    """Return the prefix of keys for one listener."""
    return f"listener.name.{listener.lower()}."


def tls_options(
    config: ParsedConfig, given: Mapping[str, str], listener: str, protocol: SecurityProtocol
) -> TlsOptions:
    """Return the options of a listener, for accepted and for outgoing connections.

    Raises:
        ConfigError: a value for this listener is invalid.
    """
    values = ListenerValues(config, given, listener)
    protocols, suites = values.value("ssl.enabled.protocols"), values.value("ssl.cipher.suites")
    assert isinstance(protocols, list), protocols
    assert isinstance(suites, list), suites
    return TlsOptions(
        _key_source(values),
        TrustSource(
            values.text("ssl.truststore.location"),
            _type(values, "ssl.truststore.type"),
            values.text("ssl.truststore.password"),
            values.text("ssl.truststore.certificates"),
        ),
        tuple(protocols),
        tuple(suites),
        check_host_name=values.text("ssl.endpoint.identification.algorithm") is not None,
        client_auth=_client_auth(values, protocol),
    )


def check_classes(given: Mapping[str, str]) -> None:
    """Refuse classes that cannot be loaded.

    Raises:
        ConfigError: a class of Java other than Kafka's own.
    """
    for key, usual in _CLASSES.items():
        for name, text in given.items():
            if (name == key or name.endswith(f".{key}")) and text.strip() not in ("", usual):
                raise ConfigError(name, text, f"{usual} (no other Java class can be loaded)")


def _key_source(values: ListenerValues) -> KeySource:
    return KeySource(
        values.text("ssl.keystore.location"),
        _type(values, "ssl.keystore.type"),
        values.text("ssl.keystore.password"),
        values.text("ssl.key.password"),
        values.text("ssl.keystore.key"),
        values.text("ssl.keystore.certificate.chain"),
    )


def _type(values: ListenerValues, key: str) -> str | None:
    """Return the type of a store, or None for Java's default, which Java recognizes by content."""
    text = values.text(key)
    return None if text is None or text.upper() == "JKS" else text.upper()


def _client_auth(values: ListenerValues, protocol: SecurityProtocol) -> ClientAuth:
    """Return whether clients need certificates.

    On a listener with SASL, only a value for this listener counts, as in Kafka.
    """
    if protocol.has_sasl and not values.is_own(_CLIENT_AUTH):
        return ClientAuth.NONE
    return ClientAuth(values.value(_CLIENT_AUTH))
