"""The properties of a registry, with the names of Confluent's, as settings.

A file `schema-registry.properties` of Confluent's registry can be used: keys that have no effect
here are named in a warning. In the properties of a broker, the keys have the prefix
`barnabas.registry.`, and `barnabas.registry.listener` is the address.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.registry.config import (
    CLIENT_PREFIX,
    NONE,
    REGISTRY_KEYS,
    SUB_CLAIM,
    RegistrySettings,
)
from barnabas.settings.key import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)

_TLS_PREFIX = "ssl."
_TRUST_PREFIX = "ssl.truststore."
# Keys of Confluent's registry that are not keys of its clients, without the prefix.
_NO_CLIENT_KEYS = (
    *("connection.url", "group.id", "timeout.ms", "init.timeout.ms", "topic.skip.validation"),
    *("write.max.retries", "write.retry.backoff.ms", "update.handlers", "checkpoint.dir"),
)


def read_registry_properties(
    properties: Mapping[str, str], client: Mapping[str, str], bootstrap: str | None
) -> RegistrySettings:
    """Return the settings in properties.

    Args:
        properties: The properties.
        client: Configuration of the clients from elsewhere; that in the properties overrides it.
        bootstrap: Addresses of brokers; None for those in the properties.

    Raises:
        ConfigError: A value is not allowed.
    """
    parsed = REGISTRY_KEYS.parse(properties)
    servers = bootstrap or parsed.text("kafkastore.bootstrap.servers")
    if not servers:
        raise ConfigError("kafkastore.bootstrap.servers", None, "HOST:PORT,...")
    of_client = _client_keys(properties)
    keys: dict[str, Any] = {**client, **of_client}
    try:
        checked = ClientConfig.parse({"bootstrap.servers": servers, **keys})
    except ClientConfigError as error:
        raise ConfigError("kafkastore", None, str(error)) from None
    _warn_of_unknown(parsed)
    scheme, host, port = parse_listener(parsed.string("listeners"))
    has_login = _has_login(parsed, checked)
    tls = _listener_tls(properties) if scheme == "https" else None
    return RegistrySettings(
        bootstrap=servers,
        client=keys,
        host=host,
        port=port,
        advertised=parsed.text("host.name") or "",
        topic=parsed.string("kafkastore.topic"),
        replication_factor=parsed.integer("kafkastore.topic.replication.factor"),
        group_id=parsed.string("schema.registry.group.id"),
        leader_eligibility=parsed.boolean("leader.eligibility"),
        level=parsed.string("schema.compatibility.level").upper(),
        tls=None if tls is None else tls.server,
        peer_tls=None if tls is None else tls.peers,
        has_login=has_login,
        sub_claim=parsed.string(SUB_CLAIM),
        mechanism=checked.sasl_mechanism or "PLAIN",
        allows_by_default=parsed.boolean("allow.everyone.if.no.acl.found"),
        super_users=frozenset(
            each.strip() for each in parsed.string("super.users").split(";") if each.strip()
        ),
    )


def _client_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of the registry's clients, without their prefix."""
    found = {
        name.removeprefix(CLIENT_PREFIX): value
        for name, value in properties.items()
        if name.startswith(CLIENT_PREFIX) and name not in REGISTRY_KEYS
    }
    for name in _NO_CLIENT_KEYS:
        if found.pop(name, None) is not None:
            _log.warning("%s%s has no effect on this registry", CLIENT_PREFIX, name)
    return found


def _has_login(parsed: ParsedConfig, client: ClientConfig) -> bool:
    """Return whether clients must log in: by default if the registry itself does.

    Raises:
        ConfigError: The brokers have no logins that could prove those of clients.
    """
    method = parsed.text("authentication.method")
    is_sasl = client.security_protocol.startswith("SASL")
    if method is None or method == NONE:
        return method is None and is_sasl
    if not is_sasl:
        raise ConfigError(
            "authentication.method", method, "NONE, unless kafkastore.security.protocol has SASL"
        )
    return True


def parse_listener(text: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a listener: SCHEME://HOST:PORT or HOST:PORT.

    Raises:
        ConfigError: The text is neither.
    """
    whole = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    is_known = whole.startswith(("http://", "https://"))
    if not is_known or host is None or port is None or parts.path.strip("/"):
        raise ConfigError("listeners", text, "http://HOST:PORT or https://HOST:PORT")
    return parts.scheme, host, port


def _warn_of_unknown(parsed: ParsedConfig) -> None:
    for name in parsed.unknown:
        # The value is not logged: it may be a secret.
        if not name.startswith((CLIENT_PREFIX, _TLS_PREFIX)):
            _log.warning("%s has no effect: this registry does not know the key", name)


class _ListenerTls(NamedTuple):
    """The TLS contexts of a listener with https."""

    # For clients.
    server: ssl.SSLContext
    # For requests to the leader; None for the certificates that the system trusts.
    peers: ssl.SSLContext | None


def _listener_tls(properties: Mapping[str, str]) -> _ListenerTls:
    """Return the TLS contexts, from the keys that brokers have, too.

    Raises:
        ConfigError: A value cannot be used.
    """
    from barnabas.runtime.tls.contexts import client_context, server_context
    from barnabas.runtime.tls.tls_options import TlsOptionsError
    from barnabas.server.configs.endpoints import SecurityProtocol
    from barnabas.server.configs.tls_config import TLS_KEYS, tls_options

    parsed = TLS_KEYS.parse(properties)
    options = tls_options(parsed, properties, "registry", SecurityProtocol.SSL)
    has_trusted = any(name.startswith(_TRUST_PREFIX) for name in properties)
    try:
        return _ListenerTls(
            server_context(options).ssl_context,
            client_context(options).ssl_context if has_trusted else None,
        )
    except TlsOptionsError as error:
        raise ConfigError("ssl", None, str(error)) from None
