"""Blocking HTTP requests: to issuers of tokens, publishers of keys, registries, Kafka Connect.

Code on an event loop calls these functions through the executor.
"""

from __future__ import annotations

import base64
import http.client
import io
import ssl
import time
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

# Most responses have a few kilobytes. A response above the limit of its request is an error, so
# that it cannot fill the memory.
RESPONSE_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 1 << 16


class WebRequest(msgspec.Struct, frozen=True):
    """A request. Without a method, it is a POST with a body, else a GET."""

    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = 10.0
    # Trusted certificates, and the own one; None for those of the system.
    tls: ssl.SSLContext | None = None
    method: str | None = None
    response_bytes_max: int = RESPONSE_BYTES_MAX


class WebResponse(NamedTuple):
    """The response of a server, whatever its status."""

    status: int
    body: bytes


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the credentials of a request are for its address only."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that the redirect is an error."""
        return


class _TimedReads(io.RawIOBase):
    """Reads of a socket that end at a deadline; the socket's own timeout is for one read."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer.

        Raises:
            TimeoutError: The deadline has passed.
        """
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(remaining)
        return self._connection.recv_into(buffer)


class _TimedResponse(http.client.HTTPResponse):
    """A response of which all parts arrive before a deadline, the status and the headers too."""

    def __init__(
        self, connection: socket.socket, *words: Any, deadline: float, **more: Any
    ) -> None:
        super().__init__(connection, *words, **more)
        # The file of the base keeps the socket open for the time of the response.
        self._plain = self.fp
        self.fp = io.BufferedReader(_TimedReads(connection, deadline))

    def close(self) -> None:
        """Close the response and its socket."""
        super().close()
        self._plain.close()


def _connecting(
    kind: type[http.client.HTTPConnection], deadline: float
) -> Callable[..., http.client.HTTPConnection]:
    """Return a function that makes connections whose responses end at a deadline."""

    def connect(host: str, **options: Any) -> http.client.HTTPConnection:
        connection = kind(host, **options)
        connection.response_class = partial(_TimedResponse, deadline=deadline)  # type: ignore[assignment] # it is only called
        return connection

    return connect


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._connect = _connecting(http.client.HTTPConnection, deadline)

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request over HTTP."""
        return self.do_open(self._connect, request)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = context
        self._connect = _connecting(http.client.HTTPSConnection, deadline)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request over HTTPS."""
        context = self._tls or verifying_context()
        return self.do_open(self._connect, request, context=context)


def verifying_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Return a TLS context that verifies servers.

    Args:
        ca_file: The trusted certificates (PEM); None for those of the system.

    Raises:
        OSError: the file cannot be read, or it has no certificate.
    """
    context = ssl.create_default_context(cafile=ca_file)
    # Strict checks are Python's default since 3.13. They refuse certificates without an authority
    # key identifier, as many private authorities issue them. Java and librdkafka accept those.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def client_context(
    ca_file: str | None, certificate_file: str | None, key_file: str | None
) -> ssl.SSLContext | None:
    """Return a TLS context with files of a client (PEM); None if there are no files.

    Raises:
        OSError: A file cannot be read, or has no certificate.
    """
    if ca_file is None and certificate_file is None:
        return None
    context = verifying_context(ca_file)
    if certificate_file is not None:
        context.load_cert_chain(certificate_file, key_file)
    return context


def authorization(user_info: str, token: str) -> dict[str, str]:
    """Return the header that logs a client in; empty without a user and a token.

    Args:
        user_info: "USER:PASSWORD" for basic authentication; "" if there is none.
        token: The token for bearer authentication; "" if there is none.

    Raises:
        ValueError: Both are given, or there is no password.
    """
    if user_info and token:
        raise ValueError("give either user_info or a token")
    if user_info:
        if ":" not in user_info:
            raise ValueError("user_info: write USER:PASSWORD")
        return {"Authorization": f"Basic {base64.b64encode(user_info.encode()).decode()}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def fetch(request: WebRequest) -> bytes:
    """Send a request over HTTP or HTTPS, and return the body of the response.

    Raises:
        OSError: the URL is not HTTP, the server was not reached, or the response is late, too
            large or an error.
    """
    response = exchange(request)
    if not 200 <= response.status < 300:
        raise OSError(f"{request.url} answered with status {response.status}")
    return response.body


def exchange(request: WebRequest) -> WebResponse:
    """Send a request over HTTP or HTTPS, and return the response; its status may be an error.

    Raises:
        OSError: the URL is not HTTP, the server was not reached, or the response is late, too
            large or no HTTP. `ConnectionRefusedError` if no server listens at the address.
    """
    if not request.url.lower().startswith(("http://", "https://")):
        raise OSError(f"{request.url} is not an HTTP or HTTPS address")
    deadline = time.monotonic() + request.timeout_s
    opener = urllib.request.build_opener(
        _NoRedirects(), _Plain(deadline), _Secure(deadline, request.tls)
    )
    try:
        prepared = urllib.request.Request(  # noqa: S310 - the scheme is checked
            request.url, request.body, dict(request.headers), method=request.method
        )
        try:
            with opener.open(prepared, timeout=request.timeout_s) as response:
                return WebResponse(response.status, _read(request, response))
        except urllib.error.HTTPError as error:
            with error:
                return WebResponse(error.code, _read(request, error))
    except TimeoutError:
        raise OSError(f"{request.url} did not respond within {request.timeout_s:g} s") from None
    except urllib.error.URLError as error:
        is_refused = isinstance(error.reason, ConnectionRefusedError)
        kind = ConnectionRefusedError if is_refused else OSError
        raise kind(f"{request.url}: {error.reason}") from None
    except (ValueError, http.client.HTTPException) as error:
        raise OSError(f"{request.url}: {error or type(error).__name__}") from None


def pause(seconds: float) -> None:
    """Wait before a request is repeated."""
    time.sleep(seconds)


def _read(
    request: WebRequest, response: http.client.HTTPResponse | urllib.error.HTTPError
) -> bytes:
    """Read the body."""
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > request.response_bytes_max:
            limit = request.response_bytes_max
            raise OSError(f"{request.url} responded with more than {limit} bytes")
    return bytes(body)


def without_user(url: str) -> tuple[str, str]:
    """Return a base URL without user, password and last slash, and "USER:PASSWORD" or ""."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()!r} is not the URL "
            f"of a schema registry: write http://HOST:PORT or https://HOST:PORT"
        )
    user, found, host = parts.netloc.rpartition("@")
    plain = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    return plain, unquote(user) if found else ""
