"""The validator of a listener's tokens, from its settings."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.sasl.token_claims import identity_of
from barnabas.sasl.unsecured_token import read_unsecured
from barnabas.settings.key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.server_mechanism import Identity
    from barnabas.server.configs.oauth_settings import KeySource, OAuthSettings

_log = logging.getLogger(__name__)


def token_validator(settings: OAuthSettings, runtime: Runtime) -> Callable[[str], Identity]:
    """Return a function that checks a token, and begin to load the keys of the issuer.

    Raises:
        ConfigError: the packages that check signatures are not installed.
    """
    rules, source = settings.rules, settings.keys
    if source is None:
        _log.warning(
            "OAUTHBEARER accepts tokens without a signature: any client can be any user. This is "
            "for development only"
        )
        return lambda token: identity_of(read_unsecured(token), rules, runtime.clock.wall_ms())
    try:
        from barnabas.server.security.sasl.issuer_keys import IssuerKeys
        from barnabas.server.security.sasl.signed_tokens import SignedTokens
    except ImportError as error:
        raise ConfigError(
            "sasl.enabled.mechanisms",
            "OAUTHBEARER",
            f"OAUTHBEARER with the packages PyJWT and cryptography: pip install "
            f"'barnabas[oauth]' ({error})",
        ) from error
    keys = IssuerKeys(source, runtime, _loading(source, runtime))
    keys.start()
    return SignedTokens(keys, rules, runtime.clock).validate


def _loading(source: KeySource, runtime: Runtime) -> Callable[[], bytes]:
    path = source.path
    if path is not None:
        return partial(runtime.disk.read, path)
    from barnabas.runtime.web import WebRequest, fetch

    return partial(fetch, WebRequest(source.url, {"Accept": "application/json"}))
