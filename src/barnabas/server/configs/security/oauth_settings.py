"""Settings of OAUTHBEARER on a listener, from Kafka's keys.

With `sasl.oauthbearer.jwks.endpoint.url`, tokens need a signature. Without it, Kafka accepts tokens
without a signature. This broker accepts them only if the configuration says so: by the callback
handler, or by an option `unsecuredValidator...` of the login module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from barnabas.sasl.token_claims import ClaimRules
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from barnabas.sasl.jaas import LoginModule
    from barnabas.server.configs.security.keys_of_listener import KeysOfListener

_PREFIX = "sasl.oauthbearer."
_URL = f"{_PREFIX}jwks.endpoint.url"
_HANDLER = "sasl.server.callback.handler.class"
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
        ConfigError: a key is missing or wrong.
    """
    handler = keys.optional_string(_HANDLER)
    url = keys.optional_string(_URL)
    options = {name: text for name, text in module.options.items() if name.startswith(_OPTION)}
    if handler not in (None, UNSECURED, *_VALIDATORS):
        allowed = f"{VALIDATOR}, or for development {UNSECURED}"
        raise ConfigError(keys.name_of(_HANDLER), handler, allowed)
    if handler == UNSECURED or (handler is None and url is None and options):
        return OAuthSettings(_unsecured_rules(options), None)
    if url is None:
        raise ConfigError(
            keys.name_of(_URL),
            None,
            f"the address of the keys that sign tokens, because OAUTHBEARER is enabled; for "
            f"development without signatures: {_HANDLER}={UNSECURED}",
        )
    if urlsplit(url).scheme not in ("https", "http", "file"):
        raise ConfigError(keys.name_of(_URL), url, "https://..., http://... or file:///...")
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
