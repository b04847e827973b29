"""Validation of signed tokens by the public keys of their issuer (RFC 7517), then of their claims.

The keys, a JSON Web Key Set, come from a file or a server. They are loaded at the start and again
after `sasl.oauthbearer.jwks.endpoint.refresh.ms`. A token with an unknown key id loads them too, at
most once in `..retry.backoff.max.ms`: the issuer may have changed its keys.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from jwt import PyJWK, get_unverified_header
from jwt.api_jws import decode_complete
from jwt.exceptions import PyJWTError

from barnabas.network.reconnect_backoff import exponential_ms
from barnabas.sasl.mechanism import SaslError
from barnabas.sasl.token_claims import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Clock
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.mechanism import Identity
    from barnabas.sasl.token_claims import ClaimRules
    from barnabas.server.configs.oauth_settings import KeySource


_log = logging.getLogger(__name__)

# Maximum number of keys of a set that are used. A usual set has a few keys.
_KEYS_MAX = 100
# Types of public keys. Symmetric keys are secrets, and must not be in a set.
_TYPES = ("RSA", "EC", "OKP")


class IssuerKeys:
    """The current keys, and the timer that loads them again."""

    def __init__(self, source: KeySource, runtime: Runtime, load: Callable[[], bytes]) -> None:
        """Create without keys.

        Args:
            source: source of the keys, and the times of loading.
            runtime: clock, timer and executor.
            load: returns the key set as text. It may block, and is called outside the event loop.
        """
        self._source = source
        self._runtime = runtime
        self._load = load
        # Keys by id. Keys without an id have the id "".
        self._keys: dict[str, list[PyJWK]] = {}
        self._is_loading = False
        # Consecutive failed attempts.
        self._failures = 0
        # When the last attempt began, on the monotonic clock; None before the first.
        self._begun_ms: float | None = None
        self._timer: Cancellable | None = None

    def start(self) -> None:
        """Load the keys now, and again at intervals."""
        self._begin()

    @property
    def is_loaded(self) -> bool:
        """Whether keys have been loaded."""
        return bool(self._keys)

    def find(self, key_id: str | None) -> list[PyJWK]:
        """Return the keys with an id, or all keys for None. The list is empty for an unknown id."""
        if key_id is None:
            return [key for keys in self._keys.values() for key in keys]
        found = self._keys.get(key_id, [])
        if not found:
            self._maybe_load_early()
        return found

    def _maybe_load_early(self) -> None:
        now_ms = self._runtime.clock.monotonic_ms()
        is_due = self._begun_ms is None or now_ms - self._begun_ms >= self._source.retry_max_ms
        if is_due and not self._is_loading:
            self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_loading = True
        self._begun_ms = self._runtime.clock.monotonic_ms()
        self._runtime.executor.submit(self._load, self._on_loaded)

    def _on_loaded(self, text: bytes | None, error: BaseException | None) -> None:
        self._is_loading = False
        try:
            if error is not None:
                raise error
            assert text is not None
            self._keys = parse_keys(text)
        except AssertionError:
            raise
        except Exception as problem:  # noqa: BLE001 - no error may end the repetition
            self._failures += 1
            _log.warning(
                "Keys of the issuer of tokens cannot be loaded: url=%s error=%s",
                self._source.url,
                problem,
            )
            delay_ms = exponential_ms(
                self._source.retry_ms, self._source.retry_max_ms, self._failures
            )
        else:
            self._failures = 0
            delay_ms = self._source.refresh_ms
        self._timer = self._runtime.timer.call_later(delay_ms, self._begin)


def parse_keys(text: bytes) -> dict[str, list[PyJWK]]:
    """Return the public signature keys of a set by id. Other keys are omitted.

    Raises:
        ValueError: the text is not a key set, or has no usable key.
    """
    try:
        entries = json.loads(text)["keys"]
    except (KeyError, TypeError, RecursionError):
        raise ValueError("the text is not a JSON Web Key Set") from None
    found: dict[str, list[PyJWK]] = {}
    for entry in entries[:_KEYS_MAX] if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") not in _TYPES:
            continue
        if entry.get("use", "sig") == "sig":
            _add_key(found, entry)
    if not found:
        raise ValueError("the key set has no key for signatures")
    return found


def _add_key(found: dict[str, list[PyJWK]], entry: dict[str, Any]) -> None:
    # A set should not contain private keys. Use only the public part of such a key.
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q")}
    try:
        key = PyJWK.from_dict(public)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return
    found.setdefault(str(entry.get("kid", "")), []).append(key)


# Algorithms by type of key. `none` and algorithms with a shared secret are not allowed.
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
# Maximum number of keys that are tried for a token without a key id.
_TRIED_MAX = 10
# Maximum length of a token. Usual tokens have a few kilobytes.
_TOKEN_CHARS_MAX = 64 * 1024


class SignedTokens:
    """Returns the user of a token."""

    def __init__(self, keys: IssuerKeys, rules: ClaimRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock

    def validate(self, token: str) -> Identity:
        """Check signature and claims.

        Raises:
            SaslError: the token is not accepted.
        """
        if len(token) > _TOKEN_CHARS_MAX:
            raise SaslError("the token is too long")
        try:
            header = get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError) as error:
            raise SaslError("the token is no signed JSON Web Token") from error
        return identity_of(self._claims(token, header), self._rules, self._clock.wall_ms())

    def _claims(self, token: str, header: dict[str, Any]) -> dict[str, Any]:
        key_id, algorithm = header.get("kid"), header.get("alg")
        keys = self._keys.find(None if key_id is None else str(key_id))
        if not self._keys.is_loaded:
            raise SaslError("the keys of the issuer are not loaded")
        if not keys:
            raise SaslError("the token is signed with an unknown key")
        for key in keys[:_TRIED_MAX]:
            payload = _verified(token, str(algorithm), key)
            if payload is not None:
                return _object(payload)
        raise SaslError("the signature of the token is wrong")


def _verified(token: str, algorithm: str, key: PyJWK) -> bytes | None:
    """Return the payload if the key has signed the token, else None."""
    if algorithm not in _ALGORITHMS.get(str(key.key_type), ()):
        return None
    try:
        payload: bytes = decode_complete(token, key.key, algorithms=[algorithm])["payload"]
    except (PyJWTError, ValueError, TypeError):
        return None
    return payload


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise SaslError("the claims of the token are no JSON") from error
    if not isinstance(found, dict):
        raise SaslError("the claims of the token are no JSON object")
    return found
