"""Settings of a node that logs in to other nodes by OAUTHBEARER, from Kafka's keys.

With `sasl.oauthbearer.token.endpoint.url`, the server of an issuer gives the tokens, or a file
contains one. Without it, the node makes unsecured tokens, if its login module names their user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.sasl.oauthbearer_messages import check_extensions
from barnabas.sasl.token_file import is_file_url, token_file
from barnabas.sasl.token_login import (
    CLAIM_OPTION,
    EXTENSION_OPTION,
    ClientCredentials,
    TokenSource,
    options_with_prefix,
    unsecured,
)
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.configs.security.keys_of_listener import KeysOfListener

_HANDLER = "sasl.login.callback.handler.class"
_PREFIX = "sasl.oauthbearer."
_URL = f"{_PREFIX}token.endpoint.url"
_ID = f"{_PREFIX}client.credentials.client.id"
_SECRET = f"{_PREFIX}client.credentials.client.secret"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_OF_ISSUER = f"{_PACKAGE}OAuthBearerLoginCallbackHandler"
_UNSECURED = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
# Before Kafka 4.0 the class was in another package.
_HANDLERS = (None, _OF_ISSUER, f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler", _UNSECURED)


class TokenLoginSettings(msgspec.Struct, frozen=True):
    """The source of a node's tokens."""

    source: TokenSource
    # Name of the node, for error messages.
    subject: str

    def __repr__(self) -> str:
        return f"TokenLoginSettings({self.subject})"


def token_login_settings(
    keys: KeysOfListener, options: Mapping[str, str], name: str
) -> TokenLoginSettings:
    """Return how this node gets its tokens for a listener of other nodes.

    Args:
        keys: reads the keys of the listener with OAUTHBEARER.
        options: of the login module.
        name: name of the listener in upper case.

    Raises:
        ConfigError: a key is missing or wrong.
    """
    handler = keys.optional_string(_HANDLER)
    if handler not in _HANDLERS:
        allowed = f"{_OF_ISSUER}, or for development {_UNSECURED}"
        raise ConfigError(keys.name_of(_HANDLER), handler, allowed)
    url = keys.optional_string(_URL)
    if url is not None and handler != _UNSECURED:
        return _of_issuer(keys, url, options)
    claims = options_with_prefix(options, CLAIM_OPTION)
    if "sub" not in claims or handler not in (None, _UNSECURED):
        allowed = (
            f"the address of the server that issues the tokens of this node, because the listener"
            f" {name} uses SASL; for development without signatures, {CLAIM_OPTION}sub in the login"
            f" module"
        )
        raise ConfigError(keys.name_of(_URL), url, allowed)
    return TokenLoginSettings(unsecured(dict(claims)), f"user {claims['sub']!r}")


def _of_issuer(keys: KeysOfListener, url: str, options: Mapping[str, str]) -> TokenLoginSettings:
    extensions = options_with_prefix(options, EXTENSION_OPTION)
    try:
        check_extensions(extensions)
    except ValueError as error:
        raise ConfigError(keys.name_of("sasl.jaas.config"), "[hidden]", str(error)) from None
    if is_file_url(url):
        return _of_file(keys, url, extensions)
    if not url.lower().startswith(("https://", "http://")):
        raise ConfigError(keys.name_of(_URL), url, "https://..., http://... or file:///...")
    # Kafka before 4.1 has the credentials in the login module.
    client_id = keys.optional_string(_ID) or options.get("clientId")
    if not client_id:
        raise ConfigError(keys.name_of(_ID), None, "the name of this node at the issuer")
    secret = keys.optional_string(_SECRET) or options.get("clientSecret")
    if not secret:
        raise ConfigError(keys.name_of(_SECRET), None, "the secret of this node at the issuer")
    scope = keys.optional_string(f"{_PREFIX}scope") or options.get("scope")
    source = ClientCredentials(url, client_id, secret, scope, extensions)
    return TokenLoginSettings(source, f"client {client_id!r}")


def _of_file(keys: KeysOfListener, url: str, extensions: dict[str, str]) -> TokenLoginSettings:
    try:
        return TokenLoginSettings(token_file(url, extensions), f"the token of {url}")
    except ValueError as error:
        raise ConfigError(keys.name_of(_URL), url, str(error)) from None
