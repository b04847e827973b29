"""OAUTHBEARER of clients and nodes: tokens from the user's code, an issuer's server, or a file.

A token is used for all connections until most of its lifetime has passed.

`sasl.oauthbearer.token.endpoint.url` names a file as `file:///PATH`, as an agent or Kubernetes
mounts it (Kafka: FileJwtRetriever, KIP-768). The file is read again for each new token, so that the
agent can replace it.

The login sends the content of the file to a broker. So a configuration from another person must not
be able to name a secret file of this machine. Kafka allows only the files of a Java system
property. Here, a file must contain a JSON Web Token, and an environment variable can limit the
files.
"""

from __future__ import annotations

import base64
import inspect
import json
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

import msgspec

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import environment
from barnabas.runtime.tls.contexts import client_context
from barnabas.runtime.tls.tls_options import TlsOptions, TlsOptionsError, TrustSource
from barnabas.runtime.web import WebRequest, fetch
from barnabas.sasl.mechanism import SaslError
from barnabas.sasl.oauthbearer import OAUTHBEARER, OAuthBearerClient
from barnabas.sasl.token_claims import claims_of, make_unsecured

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import OnBegun


# Prefixes of options of the login module: SASL extensions, and claims of unsecured tokens.
EXTENSION_OPTION = "extension_"
CLAIM_OPTION = "unsecuredLoginStringClaim_"

# Part of a token's lifetime after which the login requests a new token, as in Kafka.
_REFRESH_FACTOR = 0.8
# How long an unsecured token is valid, as in Kafka.
_UNSECURED_S = 3600


class Token(msgspec.Struct, frozen=True):
    """A token and its expiry."""

    text: str
    # In ms since 1970; None if it is unknown. The token is then used once.
    expiry_ms: int | None = None
    # Extensions that are sent with it.
    extensions: dict[str, str] = msgspec.field(default_factory=dict)


class TokenSource(Protocol):
    """Gets tokens."""

    def __call__(self, now_ms: int) -> Token:
        """Return a new token. It may block, and is called outside of the event loop.

        Raises:
            SaslError: there is none.
        """
        ...


class TokenLogin:
    """The login of a client by tokens."""

    def __init__(self, source: TokenSource, subject: str, runtime: Runtime) -> None:
        """Create without a token.

        Args:
            source: gets tokens.
            subject: name of the client, for error messages.
            runtime: clock and executor.
        """
        self._source = source
        self.subject = subject
        self.mechanism = OAUTHBEARER
        self.executor: Executor = runtime.executor
        self._clock: Clock = runtime.clock
        # The last token, and until when it is used (wall clock, ms). None: request a new one.
        self._token: Token | None = None
        self._used_until_ms = 0.0
        # Logins that wait for a token. A request for one is running if there are any.
        self._waiting: list[OnBegun] = []

    def begin(self, on_begun: OnBegun) -> None:
        """Begin an exchange as soon as there is a token."""
        if self._token is not None and self._clock.wall_ms() < self._used_until_ms:
            on_begun(_exchange(self._token), None)
            return
        self._waiting.append(on_begun)
        if len(self._waiting) == 1:
            self.executor.submit(lambda: self._source(self._clock.wall_ms()), self._on_token)

    def note_failure(self, reason: str) -> None:
        """Request a new token for the next login: the broker may have rejected this one."""
        self._token = None

    def _on_token(self, token: Token | None, error: BaseException | None) -> None:
        waiting, self._waiting = self._waiting, []
        if token is None:
            problem = error if isinstance(error, SaslError) else SaslError(f"no token: {error}")
            for on_begun in waiting:
                on_begun(None, problem)
            return
        now_ms = self._clock.wall_ms()
        self._token = token
        if token.expiry_ms is not None:
            self._used_until_ms = now_ms + _REFRESH_FACTOR * (token.expiry_ms - now_ms)
        else:
            self._used_until_ms = 0.0
        for on_begun in waiting:
            on_begun(_exchange(token), None)


class ClientCredentials(msgspec.Struct, frozen=True):
    """A client at the server of an issuer (RFC 6749, section 4.4)."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    extensions: dict[str, str] = msgspec.field(default_factory=dict)
    # Trusted certificates of the server.
    trust: TrustSource = TrustSource()
    # Whether id and secret are URL-encoded (RFC 6749, section 2.3.1).
    has_encoded_header: bool = False

    def __repr__(self) -> str:
        return f"ClientCredentials({self.url}, {self.client_id!r})"

    def __call__(self, now_ms: int) -> Token:
        """Request a token from the server.

        Raises:
            SaslError: the server was not reached, or has answered without a token.
        """
        words = (self.client_id, self.client_secret)
        if self.has_encoded_header:
            words = (quote_plus(self.client_id), quote_plus(self.client_secret))
        pair = base64.b64encode(":".join(words).encode()).decode()
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {pair}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        try:
            body = urlencode(form).encode()
            response = fetch(WebRequest(self.url, headers, body, tls=self._tls()))
        except OSError as error:
            reason = f"sasl.oauthbearer.token.endpoint.url has no token: {error}"
            raise SaslError(reason, is_transient=True) from None
        return self._token(response, now_ms)

    def _tls(self) -> ssl.SSLContext | None:
        """Return the trusted certificates; None for those of the system."""
        if self.trust == TrustSource():
            return None
        try:
            return client_context(TlsOptions(trust=self.trust)).ssl_context
        except TlsOptionsError as error:
            raise SaslError(f"https.ca.location: {error.reason}") from None

    def _token(self, response: bytes, now_ms: int) -> Token:
        try:
            found = json.loads(response)
        except (ValueError, RecursionError):
            found = None
        text = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(text, str) or not text:
            raise SaslError(f"{self.url} has answered without an access_token")
        lifetime_s = found.get("expires_in")
        if isinstance(lifetime_s, int | float) and not isinstance(lifetime_s, bool):
            return Token(text, now_ms + int(lifetime_s * 1000), self.extensions)
        return Token(text, expiry_of(text), self.extensions)


def from_provider(provider: object, extensions: dict[str, str]) -> TokenSource:
    """Return a source that calls the user's code.

    Args:
        provider: a function, or an object with a method `token`, as kafka-python and aiokafka know
            it. It returns a token as text.
        extensions: extensions that are sent with each token.
    """
    found = getattr(provider, "token", provider)

    def get(now_ms: int) -> Token:  # noqa: ARG001 - the token has its time
        assert callable(found), "the configuration is checked"
        try:
            text = found()
        except Exception as error:
            reason = f"sasl.oauth.token.provider failed: {type(error).__name__}: {error}"
            raise SaslError(reason, is_transient=True) from error
        if inspect.iscoroutine(text):
            text.close()
            raise SaslError("sasl.oauth.token.provider is a coroutine: give a plain function")
        if not isinstance(text, str) or not text:
            raise SaslError("sasl.oauth.token.provider has returned no text")
        return Token(text, expiry_of(text), {**extensions, **_extensions_of(provider)})

    return get


def unsecured(claims: dict[str, Any], extensions: dict[str, str] | None = None) -> TokenSource:
    """Return a source of tokens without a signature, for development."""

    def get(now_ms: int) -> Token:
        issued_s = now_ms // 1000
        made = make_unsecured({**claims, "iat": issued_s, "exp": issued_s + _UNSECURED_S})
        return Token(made, 1000 * (issued_s + _UNSECURED_S), extensions or {})

    return get


def options_with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the options of a login module whose names have the prefix, without it."""
    return {
        name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)
    }


def _exchange(token: Token) -> OAuthBearerClient:
    return OAuthBearerClient(token.text, token.extensions)


def _extensions_of(provider: object) -> dict[str, str]:
    """Return the extensions of a provider that has a method for them."""
    found = getattr(provider, "extensions", None)
    made = found() if callable(found) else None
    return {str(key): str(value) for key, value in made.items()} if isinstance(made, dict) else {}


def expiry_of(text: str) -> int | None:
    """Return the expiry that a token names; None if it names none."""
    expiry_s = claims_of(text).get("exp")
    if isinstance(expiry_s, bool) or not isinstance(expiry_s, int | float):
        return None
    return int(1000 * expiry_s) if 0 <= expiry_s < 1 << 40 else None


# Comma-separated paths. If it is set, no other file is read.
ALLOWED_FILES = "BARNABAS_OAUTHBEARER_ALLOWED_FILES"
# A token has a few kilobytes.
_BYTES_MAX = 1 << 20
_DOTS = 2


class TokenFile(msgspec.Struct, frozen=True):
    """A file with a JSON Web Token."""

    path: str
    extensions: dict[str, str] = msgspec.field(default_factory=dict)

    def __call__(self, now_ms: int) -> Token:
        """Read the token.

        Raises:
            SaslError: the file cannot be read or contains no token. The text does not quote it.
        """
        disk = RealDisk()
        try:
            # A pipe or device has the size 0, and perhaps no end.
            if not 0 < disk.size(self.path) <= _BYTES_MAX:
                raise SaslError(f"{self.path} does not have the size of a token", is_transient=True)
            data = disk.read(self.path)
        except OSError as error:
            reason = f"no token in {self.path}: {error.strerror or error}"
            raise SaslError(reason, is_transient=True) from None
        text = data.decode("ascii", "replace").strip()
        if text.count(".") != _DOTS or not claims_of(text):
            # An agent may be writing the file.
            raise SaslError(f"{self.path} contains no JSON Web Token", is_transient=True)
        return Token(text, expiry_of(text), self.extensions)


def is_file_url(url: str) -> bool:
    """Return whether a URL names a file."""
    return url.lower().startswith("file:")


def token_file(
    url: str, extensions: dict[str, str], variables: Mapping[str, str] | None = None
) -> TokenFile:
    """Return the source of tokens that a URL of a file names.

    Args:
        url: file:///PATH.
        extensions: extensions that are sent with each token.
        variables: the environment; that of the process if None.

    Raises:
        ValueError: the URL names no local file by its absolute path, or a file that is not allowed.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ValueError("a file is named by its absolute path: file:///PATH")
    disk = RealDisk()
    listed = (environment() if variables is None else variables).get(ALLOWED_FILES)
    if listed is not None:
        allowed = {disk.absolute(each.strip()) for each in listed.split(",") if each.strip()}
        if disk.absolute(path) not in allowed:
            raise ValueError(f"the environment variable {ALLOWED_FILES} does not list this file")
    return TokenFile(path, extensions)
