"""HTTP requests to servers that issue tokens and publish keys. They block: use the executor."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

# A response is a few kilobytes. A response above this limit is an error, so that it cannot fill the
# memory.
RESPONSE_BYTES_MAX = 1 << 20


class WebRequest(msgspec.Struct, frozen=True):
    """A request. With a body it is a POST, else a GET."""

    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = 10.0


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
    if not request.url.lower().startswith(("http://", "https://")):
        raise OSError(f"{request.url} is not an HTTP or HTTPS address")
    opener = urllib.request.build_opener(_NoRedirects())
    made = urllib.request.Request(  # noqa: S310 - the scheme is checked
        request.url, request.body, dict(request.headers)
    )
    try:
        with opener.open(made, timeout=request.timeout_s) as response:
            body: bytes = response.read(RESPONSE_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise OSError(f"{request.url} answered with status {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{request.url}: {error.reason}") from None
    except ValueError as error:
        raise OSError(f"{request.url}: {error}") from None
    if len(body) > RESPONSE_BYTES_MAX:
        raise OSError(f"{request.url} responded with more than {RESPONSE_BYTES_MAX} bytes")
    return body
