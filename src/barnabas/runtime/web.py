"""HTTP requests to servers that issue tokens and publish keys. They block: use the executor."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

# An answer is a few kilobytes. A larger one is an error, so that it cannot fill the memory.
ANSWER_BYTES_MAX = 1 << 20


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
    """Send a request over HTTP or HTTPS, and return the body of the answer.

    Raises:
        OSError: the server was not reached, did not answer in time, or answered with an error.
    """
    if not request.url.lower().startswith(("http://", "https://")):
        raise OSError(f"{request.url} is no address of HTTP")
    opener = urllib.request.build_opener(_NoRedirects())
    made = urllib.request.Request(  # noqa: S310 - the scheme is checked
        request.url, request.body, dict(request.headers)
    )
    try:
        with opener.open(made, timeout=request.timeout_s) as answer:
            body: bytes = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise OSError(f"{request.url} answered with status {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{request.url}: {error.reason}") from None
    except ValueError as error:
        raise OSError(f"{request.url}: {error}") from None
    if len(body) > ANSWER_BYTES_MAX:
        raise OSError(f"{request.url} answered with more than {ANSWER_BYTES_MAX} bytes")
    return body
