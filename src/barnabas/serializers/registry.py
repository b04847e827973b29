"""Client of a schema registry: the REST interface of Confluent's Schema Registry, version 1.

Apicurio Registry (below /apis/ccompat/v7) and Karapace have the same interface. A schema never
changes once it has an id, so that ids and schemas are cached without an expiry. All calls block;
the serializers are used by asyncio clients without blocking the loop (see `lookups`).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from barnabas.runtime import web
from barnabas.serializers.caches import BoundedCache
from barnabas.serializers.errors import CONFLICT, RegistryError, SchemaError, UnknownSchemaError
from barnabas.serializers.schema import (
    ID_MAX,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaType,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence


T = TypeVar("T")

# Error codes of the interface.
_SUBJECT_NOT_FOUND = 40401
_SCHEMA_NOT_FOUND = 40403
_NOT_FOUND = 404
_UNAUTHORIZED = (401, 403)
# Rounds over all URLs, and the pause (s) before the second; it doubles with each round.
_ROUNDS = 3
_PAUSE_S = 0.2
# Limits for the schemas to which a schema refers, directly or by others.
_REFERENCES_MAX = 200
_REFERENCE_DEPTH_MAX = 20
_CACHE_SIZE = 1000
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryOptions(TypedDict, total=False):
    """The keyword arguments of `SchemaRegistry`."""

    user_info: str
    token: str
    ca_file: str
    certificate_file: str
    key_file: str
    timeout_s: float
    cache_size: int


# Ids have four bytes in records, and are not negative.
_SchemaId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]


class _SchemaResponse(msgspec.Struct):
    """A schema in a response. A registry omits the type of Avro schemas."""

    schema: str
    schemaType: SchemaType = SchemaType.AVRO  # noqa: N815 - the name in the protocol
    references: tuple[SchemaReference, ...] | None = None

    def as_schema(self) -> Schema:
        return Schema(self.schema, self.schemaType, self.references or ())


class _VersionResponse(_SchemaResponse, kw_only=True):
    subject: str
    version: int
    id: _SchemaId


class _IdResponse(msgspec.Struct):
    id: _SchemaId


class _ErrorResponse(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class SchemaRegistry:
    """A schema registry, with a cache.

    Args:
        urls: The base URL, or several of the same registry, which are tried in order. A user and a
            password may be in the URL.
        options: `user_info`: "USER:PASSWORD" for basic authentication. `token`: for bearer
            authentication. `ca_file`: PEM file of trusted certificates, instead of the system's.
            `certificate_file` and `key_file`: PEM files, for registries that authenticate clients
            by TLS. `timeout_s`: limit for a request (10). `cache_size`: limit for cached schemas
            and ids (1000 each).

    Raises:
        ValueError: A URL or an option is invalid.
        OSError: A file cannot be read.
    """

    def __init__(self, urls: str | Sequence[str], **options: Unpack[RegistryOptions]) -> None:
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        unknown = set(options) - set(RegistryOptions.__annotations__)
        if unknown:
            raise ValueError(f"unknown option of a schema registry: {', '.join(sorted(unknown))}")
        user_info = options.get("user_info", "")
        self._urls: list[str] = []
        for url in given:
            plain, found = _without_user(url.strip())
            self._urls.append(plain)
            user_info = user_info or found
        if not self._urls:
            raise ValueError("the URL of the schema registry is missing")
        self._headers = _headers(user_info, options.get("token", ""))
        self._timeout_s = options.get("timeout_s", 10.0)
        self._tls = _tls(options)
        size = options.get("cache_size", _CACHE_SIZE)
        self._by_id: BoundedCache[int, Schema] = BoundedCache(size)
        self._ids: BoundedCache[tuple[str, Schema], int] = BoundedCache(size)
        self._found: BoundedCache[tuple[str, Schema], RegisteredSchema] = BoundedCache(size)
        self._versions: BoundedCache[tuple[str, int], RegisteredSchema] = BoundedCache(size)
        self._latest: BoundedCache[str, RegisteredSchema] = BoundedCache(size)

    @property
    def url(self) -> str:
        """The URL that is tried first, without the password."""
        return self._urls[0]

    # Schemas

    def schema(self, schema_id: int) -> Schema:
        """Return the schema with an id.

        Raises:
            UnknownSchemaError: The registry has no such schema.
            RegistryError: The registry was not reached, or refused the request.
        """
        cached = self._by_id.get(schema_id)
        if cached is not None:
            return cached
        try:
            response = self._send(f"/schemas/ids/{schema_id}", _SchemaResponse)
        except RegistryError as error:
            if error.code == _SCHEMA_NOT_FOUND or error.status == _NOT_FOUND:
                raise UnknownSchemaError(schema_id, self.url) from None
            raise
        schema = response.as_schema()
        self._by_id.put(schema_id, schema)
        return schema

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register a schema under a subject, unless it is registered already; return its id.

        Raises:
            RegistryError: Also if the schema is invalid (status 422), or not compatible with
                earlier versions (status 409).
        """
        cached = self._ids.get((subject, schema))
        if cached is None:
            path = f"/subjects/{quote(subject, safe='')}/versions{_query(normalize)}"
            cached = self._send(path, _IdResponse, _body(schema)).id
            self._ids.put((subject, schema), cached)
        return cached

    def find(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Return the version of a subject that has this schema.

        Raises:
            RegistryError: Also if it is not registered (status 404).
        """
        cached = self._found.get((subject, schema))
        if cached is None:
            path = f"/subjects/{quote(subject, safe='')}{_query(normalize)}"
            response = self._send(path, _VersionResponse, _body(schema))
            cached = RegisteredSchema(response.subject, response.version, response.id, schema)
            self._found.put((subject, schema), cached)
        return cached

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject, as of the first call for this subject.

        Raises:
            RegistryError: Also if there is no such subject (status 404).
        """
        found = self._latest.get(subject)
        if found is None:
            found = self._version(subject, "latest")
            self._latest.put(subject, found)
        return found

    def version(self, subject: str, number: int) -> RegisteredSchema:
        """Return a version of a subject.

        Raises:
            RegistryError: Also if there is no such version (status 404).
        """
        found = self._versions.get((subject, number))
        if found is None:
            found = self._version(subject, str(number))
            self._versions.put((subject, number), found)
        return found

    def subjects(self) -> list[str]:
        """Return the names of all subjects.

        Raises:
            RegistryError: The registry was not reached, or refused the request.
        """
        return self._send("/subjects", list[str])

    def referenced(self, schema: Schema) -> dict[str, Schema]:
        """Return all schemas that a schema uses, by their names in references.

        A schema stands behind those that it refers to itself.

        Raises:
            SchemaError: There are too many references, or they form a circle.
            RegistryError: A reference was not found.
        """
        found: dict[str, Schema] = {}
        self._collect(schema, found, 0)
        return found

    def _collect(self, schema: Schema, found: dict[str, Schema], depth: int) -> None:
        if depth > _REFERENCE_DEPTH_MAX:
            raise SchemaError(f"references of schemas are nested over {_REFERENCE_DEPTH_MAX} deep")
        for reference in schema.references:
            if reference.name in found:
                continue
            target = self.version(reference.subject, reference.version).schema
            self._collect(target, found, depth + 1)
            found[reference.name] = target
            if len(found) > _REFERENCES_MAX:
                raise SchemaError(f"a schema has more than {_REFERENCES_MAX} references")

    def _version(self, subject: str, version: str) -> RegisteredSchema:
        response = self._send(
            f"/subjects/{quote(subject, safe='')}/versions/{version}", _VersionResponse
        )
        schema = response.as_schema()
        self._by_id.put(response.id, schema)
        return RegisteredSchema(response.subject, response.version, response.id, schema)

    # Requests

    def _send(self, path: str, kind: type[T], body: bytes | None = None) -> T:
        """Send a request to the first URL that responds, and decode the response."""
        failure: RegistryError | None = None
        for number in range(_ROUNDS):
            if number:
                web.pause(_PAUSE_S * (1 << (number - 1)))
            for url in self._urls:
                try:
                    return self._exchange(url, path, kind, body)
                except RegistryError as error:
                    if not error.retriable:
                        raise
                    failure = error
        assert failure is not None
        raise failure

    def _exchange(self, url: str, path: str, kind: type[T], body: bytes | None) -> T:
        request = web.WebRequest(url + path, self._headers, body, self._timeout_s, self._tls)
        try:
            response = web.exchange(request)
        except OSError as error:
            raise RegistryError(
                f"the schema registry was not reached: {error}. Check its URL and that it runs"
            ) from None
        if not 200 <= response.status < 300:
            raise _refusal(request.url, response)
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryError(
                f"{request.url} responded with something else than a schema registry does "
                f"({error}): check the URL and its path",
                response.status,
            ) from None


def _refusal(url: str, response: web.WebResponse) -> RegistryError:
    """Return the error of a response with an error status."""
    status = response.status
    try:
        refusal = msgspec.json.decode(response.body, type=_ErrorResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = _ErrorResponse()
    said = f": {refusal.message[:1000].rstrip('.')}" if refusal.message else ""
    hint = ""
    if status in _UNAUTHORIZED:
        hint = ". Check the user and the password, or the token"
    elif status == CONFLICT:
        hint = ". Give new fields a default, or change the compatibility level of the subject"
    elif status == _NOT_FOUND and not refusal.message:
        hint = ". Check the path of the registry's URL"
    elif refusal.error_code == _SUBJECT_NOT_FOUND:
        hint = ". Register a schema for this subject first"
    return RegistryError(
        f"the schema registry answered {url} with status {status}{said}{hint}",
        status,
        refusal.error_code,
    )


def _body(schema: Schema) -> bytes:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind is not SchemaType.AVRO:
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = schema.references
    return msgspec.json.encode(body)


def _query(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _without_user(url: str) -> tuple[str, str]:
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


def _headers(user_info: str, token: str) -> Mapping[str, str]:
    headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE}
    if user_info and token:
        raise ValueError("give the schema registry either user_info or a token")
    if user_info:
        if ":" not in user_info:
            raise ValueError("user_info of the schema registry: write USER:PASSWORD")
        headers["Authorization"] = f"Basic {base64.b64encode(user_info.encode()).decode()}"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _tls(options: RegistryOptions) -> ssl.SSLContext | None:
    ca_file, certificate = options.get("ca_file"), options.get("certificate_file")
    if ca_file is None and certificate is None:
        return None
    context = web.verifying_context(ca_file)
    if certificate is not None:
        context.load_cert_chain(certificate, options.get("key_file"))
    return context
