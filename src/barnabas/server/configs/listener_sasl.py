"""SASL settings of one listener, from Kafka's keys.

A key of a listener has the prefix `listener.name.NAME.`. If the key belongs to one mechanism, the
name of the mechanism follows: `listener.name.sasl_ssl.plain.sasl.jaas.config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.sasl.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    LoginModule,
    parse_jaas,
)
from barnabas.sasl.oauthbearer import OAUTHBEARER
from barnabas.sasl.plain import PLAIN
from barnabas.sasl.scram_keys import SCRAM_MECHANISMS
from barnabas.server.configs.sasl_keys import GSSAPI, KeysOfListener
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.configs.oauth_settings import OAuthSettings, TokenLoginSettings
    from barnabas.settings.definition import ParsedConfig


_ENABLED = "sasl.enabled.mechanisms"
_JAAS = "sasl.jaas.config"
_REAUTH = "connections.max.reauth.ms"
_RECEIVE = "sasl.server.max.receive.size"

# Class of the login module of each mechanism, for error messages.
MODULES = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
_HANDLER = "sasl.server.callback.handler.class"
_PACKAGE = "org.apache.kafka.common.security."
_SCRAM_HANDLER = f"{_PACKAGE}scram.internals.ScramServerCallbackHandler"
# Kafka's own classes that check passwords. No other class can be loaded.
_HANDLERS = {
    PLAIN: f"{_PACKAGE}plain.internals.PlainServerCallbackHandler",
    **dict.fromkeys(SCRAM_MECHANISMS, _SCRAM_HANDLER),
}
# Added to errors, because a configuration without these keys means Kerberos.
_NO_KERBEROS = "GSSAPI (Kerberos), Kafka's default, is not implemented"
# Mechanisms with which nodes log in to each other.
_NODE_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


class MechanismSettings(msgspec.Struct, frozen=True):
    """Settings of one mechanism of a listener."""

    # The login module. None if the mechanism does not need it and it is not configured.
    module: LoginModule | None
    # `connections.max.reauth.ms`
    session_ms_max: int
    # Settings for the check of tokens. None for mechanisms other than OAUTHBEARER.
    oauth: OAuthSettings | None = None


class ListenerSasl(msgspec.Struct, frozen=True):
    """Settings of one SASL listener."""

    # Enabled mechanisms in the order of the configuration.
    mechanisms: Mapping[str, MechanismSettings]
    # `sasl.server.max.receive.size`
    frame_bytes_max: int
    # `connection.failed.authentication.delay.ms`
    failure_delay_ms: int


class LoginSettings(msgspec.Struct, frozen=True):
    """User name and password of this node for a listener of other nodes."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"LoginSettings({self.mechanism}, {self.username!r})"


def login_settings(
    config: ParsedConfig, given: Mapping[str, str], name: str, mechanism_key: str
) -> LoginSettings | TokenLoginSettings:
    """Return the credentials of this node for a listener.

    Args:
        config: the parsed configuration.
        given: all given properties, which include keys of single listeners.
        name: name of the listener in upper case.
        mechanism_key: the key of the mechanism.

    Raises:
        ConfigError: the mechanism is not implemented, or the credentials are missing.
    """
    mechanism = config.string(mechanism_key)
    if mechanism not in _NODE_MECHANISMS:
        allowed = f"one of {', '.join(_NODE_MECHANISMS)}, because the listener {name} uses SASL"
        if mechanism == GSSAPI:
            allowed += f"; {_NO_KERBEROS}"
        raise ConfigError(mechanism_key, mechanism, allowed)
    keys = KeysOfListener(config, given, name, mechanism)
    module = _module(keys, mechanism)
    if mechanism == OAUTHBEARER:
        # Imported only for nodes that log in by tokens.
        from barnabas.server.configs.oauth_settings import token_login_settings

        return token_login_settings(keys, {} if module is None else module.options, name)
    if module is None or not module.username or not module.password:
        raise ConfigError(
            keys.name_of(_JAAS),
            None if module is None else "[hidden]",
            f"the credentials of this node for the other nodes: "
            f'{MODULES[mechanism]} required username="..." password="...";',
        )
    return LoginSettings(mechanism, module.username, module.password)


def listener_sasl(config: ParsedConfig, given: Mapping[str, str], name: str) -> ListenerSasl:
    """Return the SASL settings of a listener.

    Args:
        config: the parsed configuration.
        given: all given properties, which include keys of single listeners.
        name: name of the listener in upper case.

    Raises:
        ConfigError: a mechanism is not implemented, or a login module is missing or wrong.
    """
    keys = KeysOfListener(config, given, name)
    return ListenerSasl(
        {
            each: _mechanism(KeysOfListener(config, given, name, each), each)
            for each in _enabled(keys)
        },
        keys.integer(_RECEIVE),
        config.integer("connection.failed.authentication.delay.ms"),
    )


def _enabled(keys: KeysOfListener) -> list[str]:
    names = keys.strings(_ENABLED)
    if not names or not MODULES.keys() >= set(names):
        allowed = f"one or more of {', '.join(MODULES)}"
        if GSSAPI in names:
            allowed += f"; {_NO_KERBEROS}"
        raise ConfigError(_enabled_key(keys), ",".join(names), allowed)
    return names


def _enabled_key(keys: KeysOfListener) -> str:
    return _ENABLED if keys.own_text(_ENABLED) is None else keys.name_of(_ENABLED)


def _mechanism(keys: KeysOfListener, mechanism: str) -> MechanismSettings:
    session_ms_max = keys.integer(_REAUTH)
    module = _module(keys, mechanism)
    if mechanism == OAUTHBEARER:
        # Imported only for listeners with OAUTHBEARER.
        from barnabas.server.configs.oauth_settings import oauth_settings

        # Kafka requires a login module, which may have no options.
        module = module or LoginModule(OAUTHBEARER_MODULE, {})
        return MechanismSettings(module, session_ms_max, oauth_settings(keys, module))
    handler = keys.own_text(_HANDLER)
    if handler not in (None, _HANDLERS[mechanism]):
        # Another class would decide in place of the configured users.
        allowed = f"only {_HANDLERS[mechanism]}: this broker cannot load Java classes"
        raise ConfigError(keys.name_of(_HANDLER), handler, allowed)
    if module is None and mechanism == PLAIN:
        example = f'{PLAIN_MODULE} required user_billing="PASSWORD";'
        allowed = f"the users, because {mechanism} is enabled: {example}"
        raise ConfigError(keys.name_of(_JAAS), None, allowed)
    # SCRAM needs no login module. Kafka requires a module, but its server does not use it.
    return MechanismSettings(module, session_ms_max)


def _module(keys: KeysOfListener, mechanism: str) -> LoginModule | None:
    """Return the login module of a mechanism; None if it is not configured."""
    text = keys.own_text(_JAAS)
    if text is None:
        return None
    module = parse_jaas(keys.name_of(_JAAS), text)
    if module.class_name != MODULES[mechanism]:
        allowed = f"{MODULES[mechanism]} for {mechanism}"
        raise ConfigError(keys.name_of(_JAAS), module.class_name, allowed)
    return module
