"""One request of the REST interface: its path, parameters, body and media types.

The path is split before it is decoded, so that `a%2Fb` is one subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.responses import Response

from barnabas.registry.errors import NOT_FOUND, RegistryError, forbidden
from barnabas.registry.subjects import DEFAULT_CONTEXT, Subject, in_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import Headers
    from starlette.requests import Request

    from barnabas.registry.security.access import Caller
    from barnabas.registry.shares import RequestMemory

# Types of responses, the best one first.
_V1 = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES = (_V1, "application/vnd.schemaregistry+json", "application/json")
_BODY_TYPES = (*MEDIA_TYPES, "application/octet-stream")
BODY_BYTES_MAX = 2 * 1024 * 1024
_UNAUTHORIZED = 401
_NOT_ACCEPTABLE, _UNSUPPORTED, _TOO_LARGE = 406, 415, 413
_INT_MAX = 2**31 - 1
_HAS_BODY = ("POST", "PUT")


class Route(NamedTuple):
    """What a path means."""

    # Names of its parts; parts in braces are parameters.
    pattern: str
    parameters: Mapping[str, str]
    # The context in the path; the default one without it.
    context: str


def split_path(raw_path: bytes) -> tuple[list[str], str]:
    """Return the decoded parts of a path, and the context that it begins with.

    `/contexts/.staging/subjects` is the path `/subjects` in the context `.staging`.
    """
    parts = [unquote(part) for part in raw_path.decode("ascii", "replace").split("/")[1:]]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    context = DEFAULT_CONTEXT
    if len(parts) > 2 and parts[0] == "contexts":
        given = parts[1].strip(":")
        context = given if given.startswith(DEFAULT_CONTEXT) else DEFAULT_CONTEXT + given
        parts = parts[2:]
    return parts, context


def accepted_type(accept: str | None) -> str:
    """Return the media type of the response.

    Raises:
        RegistryError: The client accepts none of the types.
    """
    if not accept:
        return _V1
    wanted = [_range(each) for each in accept.split(",")]
    best, best_quality = "", 0.0
    for media_type in MEDIA_TYPES:
        quality = max((q for name, q in wanted if _admits(name, media_type)), default=0.0)
        if quality > best_quality:
            best, best_quality = media_type, quality
    if not best:
        raise RegistryError(_NOT_ACCEPTABLE, "HTTP 406 Not Acceptable")
    return best


def _range(given: str) -> tuple[str, float]:
    """Return a media range of Accept, and its quality."""
    name, *parameters = (part.strip().lower() for part in given.split(";"))
    quality = 1.0
    for each in parameters:
        if each.startswith("q="):
            try:
                quality = float(each[2:])
            except ValueError:
                quality = 0.0
    return name, quality


def _admits(wanted: str, media_type: str) -> bool:
    return wanted in ("*/*", "*", "application/*", media_type)


def check_content_type(method: str, content_type: str | None) -> None:
    """Check the media type of a body.

    Raises:
        RegistryError: It is not one of the registry's.
    """
    if method not in _HAS_BODY or not content_type:
        return
    if content_type.split(";")[0].strip().lower() not in _BODY_TYPES:
        raise RegistryError(_UNSUPPORTED, "HTTP 415 Unsupported Media Type")


def check_origin(headers: Headers) -> None:
    """Refuse requests that a page of another site makes in a browser.

    Other clients send none of these headers.

    Raises:
        RegistryError: The page is of another site.
    """
    origin = headers.get("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != headers.get("host")
    if is_foreign or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise forbidden("pages of other sites may not use this registry")


def _too_large() -> RegistryError:
    return RegistryError(_TOO_LARGE, f"the limit of a request is {BODY_BYTES_MAX} bytes")


class Call:
    """A request whose route is known.

    Args:
        request: The request.
        route: What its path means.
        caller: The client.
        memory: Counts the bytes of the body.
    """

    __slots__ = ("_memory", "_pairs", "_query", "caller", "request", "route")

    def __init__(
        self, request: Request, route: Route, caller: Caller, memory: RequestMemory
    ) -> None:
        self.request = request
        self._memory = memory
        self.route = route
        self.caller = caller
        query = request.scope["query_string"].decode("ascii", "replace")
        self._pairs = parse_qsl(query, keep_blank_values=True)
        self._query: dict[str, str] = dict(self._pairs)

    async def body(self) -> bytes:
        """Return the body of the request.

        Raises:
            RegistryError: It is too large; then it is not read to its end.
        """
        announced = self.request.headers.get("content-length", "0")
        is_number = announced.isascii() and announced.isdigit()
        if is_number and int(announced[:20]) > BODY_BYTES_MAX:
            raise _too_large()
        body = bytearray()
        async for part in self.request.stream():
            self._memory.take(len(part))
            body += part
            if len(body) > BODY_BYTES_MAX:
                raise _too_large()
        return bytes(body)

    @property
    def subject(self) -> str:
        """The qualified name of the subject in the path."""
        return in_context(self.route.context, self.route.parameters["subject"])

    @property
    def scope(self) -> str | None:
        """The subject in the path, else the context in the path; None for the whole registry."""
        if "subject" in self.route.parameters:
            found = self.subject
            # `:.:` names the default context, whose settings are those of the registry.
            return found or None
        if self.route.context == DEFAULT_CONTEXT:
            return None
        return Subject(self.route.context, "").qualified

    @property
    def version(self) -> str:
        """The version in the path, as it was given."""
        return self.route.parameters["version"]

    @property
    def id(self) -> int:
        """The id in the path.

        Raises:
            RegistryError: It is not a number.
        """
        return self._number(self.route.parameters["id"])

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self._query.get(name, default)

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter of the query."""
        return [value for given, value in self._pairs if given == name]

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is `true`."""
        return self._query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return a number of the query.

        Raises:
            RegistryError: It is not a number.
        """
        given = self._query.get(name)
        return default if not given else self._number(given)

    def query_subject(self) -> str:
        """Return the qualified subject of the query; the whole context without one."""
        return in_context(self.route.context, self.text("subject"))

    @staticmethod
    def _number(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_INT_MAX))):
            raise RegistryError(NOT_FOUND, "HTTP 404 Not Found")
        return int(text)

    def page(self, found: list[Any], default_limit: int = -1) -> list[Any]:
        """Return the part of a list that `offset` and `limit` select."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", default_limit)
        if limit <= 0 or (0 < default_limit < limit):
            limit = default_limit
        return found[offset : offset + limit] if limit > 0 else found[offset:]


def json_response(value: object, media_type: str, status: int = 200) -> Response:
    """Return a response with JSON."""
    return Response(msgspec.json.encode(value), status, media_type=media_type)


def error_response(error: RegistryError, media_type: str) -> Response:
    """Return the response for a refused request; a 401 says how to log in."""
    response = json_response(
        {"error_code": error.code, "message": error.message}, media_type, error.status
    )
    if error.status == _UNAUTHORIZED:
        response.headers["www-authenticate"] = 'Basic realm="schema registry"'
    return response
