"""Blocking HTTP requests: to issuers of tokens, publishers of keys, and schema registries.

Code on an event loop calls these functions through the executor.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

# A response is a few kilobytes. A response above this limit is an error, so that it cannot fill the
# memory.
RESPONSE_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 1 << 16


class WebRequest(msgspec.Struct, frozen=True):
    """A request. With a body it is a POST, else a GET."""

    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = 10.0
    # Trusted certificates, and the own one; None for those of the system.
    tls: ssl.SSLContext | None = None


class WebResponse(NamedTuple):
    """The response of a server, whatever its status."""

    status: int
    body: bytes


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the credentials of a request are for its address only."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that the redirect is an error."""
        return


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
            large or no HTTP.
    """
    if not request.url.lower().startswith(("http://", "https://")):
        raise OSError(f"{request.url} is not an HTTP or HTTPS address")
    secure = urllib.request.HTTPSHandler(context=request.tls)
    opener = urllib.request.build_opener(_NoRedirects(), secure)
    deadline = time.monotonic() + request.timeout_s
    try:
        made = urllib.request.Request(  # noqa: S310 - the scheme is checked
            request.url, request.body, dict(request.headers)
        )
        try:
            with opener.open(made, timeout=request.timeout_s) as response:
                return WebResponse(response.status, _read(request, response, deadline))
        except urllib.error.HTTPError as error:
            with error:
                return WebResponse(error.code, _read(request, error, deadline))
    except urllib.error.URLError as error:
        raise OSError(f"{request.url}: {error.reason}") from None
    except (ValueError, http.client.HTTPException) as error:
        raise OSError(f"{request.url}: {error or type(error).__name__}") from None


def pause(seconds: float) -> None:
    """Wait before a request is repeated."""
    time.sleep(seconds)


def _read(
    request: WebRequest,
    response: http.client.HTTPResponse | urllib.error.HTTPError,
    deadline: float,
) -> bytes:
    """Read the body. The socket's timeout is for one read, the deadline for all."""
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > RESPONSE_BYTES_MAX:
            raise OSError(f"{request.url} responded with more than {RESPONSE_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise OSError(f"{request.url} did not respond within {request.timeout_s:g} s")
    return bytes(body)
