"""Settings of OAUTHBEARER, from Kafka's keys: on a listener, and for a node's own logins.

With `sasl.oauthbearer.jwks.endpoint.url`, a listener's tokens need a signature. Without it, Kafka
accepts tokens without a signature. This broker accepts them only if the configuration says so: by
the callback handler, or by an option `unsecuredValidator...` of the login module.

With `sasl.oauthbearer.token.endpoint.url`, the server of an issuer gives the tokens of a node, or a
file contains one. Without it, the node makes unsecured tokens, if its login module names their
user.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from barnabas.sasl.oauthbearer import check_extensions
from barnabas.sasl.token_claims import ClaimRules
from barnabas.sasl.token_login import (
    CLAIM_OPTION,
    EXTENSION_OPTION,
    ClientCredentials,
    TokenSource,
    is_file_url,
    options_with_prefix,
    token_file,
    unsecured,
)
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.sasl.jaas import LoginModule
    from barnabas.server.configs.sasl_keys import KeysOfListener


_PREFIX = "sasl.oauthbearer."
_KEYS_URL = f"{_PREFIX}jwks.endpoint.url"
_SERVER_HANDLER = "sasl.server.callback.handler.class"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
VALIDATOR = f"{_PACKAGE}OAuthBearerValidatorCallbackHandler"
UNSECURED = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
# Before Kafka 4.0 the class was in another package.
_VALIDATORS = (VALIDATOR, f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler")
_OPTION = "unsecuredValidator"


class KeySource(msgspec.Struct, frozen=True):
    """Source of the issuer's keys. All times are in ms."""

    url: str
    refresh_ms: int
    retry_ms: int
    retry_max_ms: int

    @property
    def path(self) -> str | None:
        """Path of a file; None for a server."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None


class OAuthSettings(msgspec.Struct, frozen=True):
    """Settings for the check of tokens."""

    rules: ClaimRules
    # Source of the keys that verify signatures. None if tokens have no signature.
    keys: KeySource | None


def oauth_settings(keys: KeysOfListener, module: LoginModule) -> OAuthSettings:
    """Return the settings of a listener.

    Raises:
        ConfigError: a key is missing or wrong, or the package that checks signatures is missing.
    """
    handler = keys.optional_string(_SERVER_HANDLER)
    url = keys.optional_string(_KEYS_URL)
    options = {name: text for name, text in module.options.items() if name.startswith(_OPTION)}
    if handler not in (None, UNSECURED, *_VALIDATORS):
        allowed = f"{VALIDATOR}, or for development {UNSECURED}"
        raise ConfigError(keys.name_of(_SERVER_HANDLER), handler, allowed)
    if handler == UNSECURED or (handler is None and url is None and options):
        return OAuthSettings(_unsecured_rules(options), None)
    if url is None:
        raise ConfigError(
            keys.name_of(_KEYS_URL),
            None,
            f"the address of the keys that sign tokens, because OAUTHBEARER is enabled; for "
            f"development without signatures: {_SERVER_HANDLER}={UNSECURED}",
        )
    if urlsplit(url).scheme not in ("https", "http", "file"):
        raise ConfigError(keys.name_of(_KEYS_URL), url, "https://..., http://... or file:///...")
    if not find_spec("jwt"):
        allowed = "other mechanisms, as long as the extra `oauth` (PyJWT) is not installed; in a "
        allowed += "clone it is installed by: pip install '.[oauth]'"
        raise ConfigError("sasl.enabled.mechanisms", "OAUTHBEARER", allowed)
    return OAuthSettings(
        _rules(keys),
        KeySource(
            url,
            keys.integer(f"{_PREFIX}jwks.endpoint.refresh.ms"),
            keys.integer(f"{_PREFIX}jwks.endpoint.retry.backoff.ms"),
            keys.integer(f"{_PREFIX}jwks.endpoint.retry.backoff.max.ms"),
        ),
    )


def _rules(keys: KeysOfListener) -> ClaimRules:
    audiences = keys.strings(f"{_PREFIX}expected.audience")
    issuer = keys.optional_string(f"{_PREFIX}expected.issuer")
    for name, given in (("audience", bool(audiences)), ("issuer", issuer is not None)):
        unverified = f"{_PREFIX}allow.unverified.{name}"
        if not given and not keys.boolean(unverified):
            # As in Kafka 4.4: tokens for other services of the issuer must not be valid here.
            raise ConfigError(
                keys.name_of(f"{_PREFIX}expected.{name}"),
                None,
                f"the {name} of tokens for this cluster; {unverified}=true to accept any",
            )
    return ClaimRules(
        audiences=tuple(audiences),
        issuer=issuer,
        skew_ms=1000 * keys.integer(f"{_PREFIX}clock.skew.seconds"),
        subject_claim=keys.string(f"{_PREFIX}sub.claim.name"),
        scope_claim=keys.string(f"{_PREFIX}scope.claim.name"),
    )


def _unsecured_rules(options: dict[str, str]) -> ClaimRules:
    """Return the rules of Kafka's handler for development."""
    skew = options.get(f"{_OPTION}AllowableClockSkewMs", "0")
    if not skew.isascii() or not skew.isdigit():
        raise ConfigError(f"{_OPTION}AllowableClockSkewMs", skew, "a number of milliseconds")
    return ClaimRules(
        skew_ms=int(skew),
        subject_claim=options.get(f"{_OPTION}PrincipalClaimName", "sub"),
        scope_claim=options.get(f"{_OPTION}ScopeClaimName", "scope"),
        scopes=tuple(options.get(f"{_OPTION}RequiredScope", "").split()),
        needs_issue_time=False,
    )


_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_TOKEN_URL = f"{_PREFIX}token.endpoint.url"
_ID = f"{_PREFIX}client.credentials.client.id"
_SECRET = f"{_PREFIX}client.credentials.client.secret"
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
        ConfigError: a key is missing or wrong, or the package that checks signatures is missing.
    """
    handler = keys.optional_string(_LOGIN_HANDLER)
    if handler not in _HANDLERS:
        allowed = f"{_OF_ISSUER}, or for development {_UNSECURED}"
        raise ConfigError(keys.name_of(_LOGIN_HANDLER), handler, allowed)
    url = keys.optional_string(_TOKEN_URL)
    if url is not None and handler != _UNSECURED:
        return _of_issuer(keys, url, options)
    claims = options_with_prefix(options, CLAIM_OPTION)
    if "sub" not in claims or handler not in (None, _UNSECURED):
        allowed = (
            f"the address of the server that issues the tokens of this node, because the listener"
            f" {name} uses SASL; for development without signatures, {CLAIM_OPTION}sub in the login"
            f" module"
        )
        raise ConfigError(keys.name_of(_TOKEN_URL), url, allowed)
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
        raise ConfigError(keys.name_of(_TOKEN_URL), url, "https://..., http://... or file:///...")
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
        raise ConfigError(keys.name_of(_TOKEN_URL), url, str(error)) from None
