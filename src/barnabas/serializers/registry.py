"""Client of a schema registry: the REST interface of Confluent's Schema Registry, version 1.

Apicurio Registry (below /apis/ccompat/v7) and Karapace have the same interface. A schema never
changes once it has an id, so that ids and schemas are cached without an expiry; lists, levels and
modes are not cached. All calls block; the serializers are used by asyncio clients without blocking
the loop (see `lookups`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

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
    from collections.abc import Mapping, Sequence


T = TypeVar("T")

# Error codes of the interface.
SUBJECT_NOT_FOUND = 40401
_SCHEMA_NOT_FOUND = 40403
# The subject or the version was deleted before, or has no level or mode of its own.
_DELETED_BEFORE = (40404, 40406)
_NOT_SET = (SUBJECT_NOT_FOUND, 40408, 40409)
_NOT_FOUND = 404
_UNAUTHORIZED = (401, 403)
# Rounds over all URLs, and the pause (s) before the second; it doubles with each round.
_ROUNDS = 3
_PAUSE_S = 0.2
# Limits for the schemas to which a schema refers, directly or by others.
_REFERENCES_MAX = 200
_REFERENCE_DEPTH_MAX = 20
_CACHE_SIZE = 1000
# A prefix that begins so selects a context: the names of its subjects may begin otherwise.
_CONTEXT_MARK = ":"
# The prefix that selects the subjects of all contexts.
_ALL_CONTEXTS = ":*:"
# Schemas in one response; a registry limits their number, too.
_SCHEMAS_A_RESPONSE = 500
_LARGE_RESPONSE_BYTES_MAX = 64 * 1024 * 1024
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


class SubjectVersion(msgspec.Struct, frozen=True):
    """A version of a subject without its text, as lists of schemas have it."""

    subject: str = ""
    version: int = 0
    schema_id: _SchemaId = msgspec.field(name="id", default=0)
    kind: SchemaType = msgspec.field(name="schemaType", default=SchemaType.AVRO)


class _IdResponse(msgspec.Struct):
    id: _SchemaId


class _ErrorResponse(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class _CheckResponse(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


class _LevelResponse(msgspec.Struct):
    # Responses name it differently: those of GET by the first name, those of PUT by the second.
    compatibilityLevel: str = ""  # noqa: N815 - the name in the protocol
    compatibility: str = ""


class _ModeResponse(msgspec.Struct):
    mode: str


class _PlaceResponse(msgspec.Struct):
    subject: str
    version: int


class _Request(msgspec.Struct, frozen=True):
    """A request to a registry: the path with its query, and what differs from a plain GET."""

    path: str
    body: bytes | None = None
    method: str | None = None
    response_bytes_max: int = web.RESPONSE_BYTES_MAX


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
        if isinstance(urls, dict):
            raise ValueError(
                "the schema registry takes no dictionary: write SchemaRegistry(URL, user_info=...)"
            )
        self._make = partial(SchemaRegistry, urls, **options)
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        unknown = set(options) - set(RegistryOptions.__annotations__)
        if unknown:
            raise ValueError(f"unknown option of a schema registry: {', '.join(sorted(unknown))}")
        user_info = options.get("user_info", "")
        self._urls: list[str] = []
        for url in given:
            plain, found = web.without_user(url.strip())
            self._urls.append(plain)
            user_info = user_info or found
        if not self._urls:
            raise ValueError("the URL of the schema registry is missing")
        self._headers = _headers(user_info, options.get("token", ""))
        self._timeout_s = options.get("timeout_s", 10.0)
        self._tls = web.client_context(
            options.get("ca_file"), options.get("certificate_file"), options.get("key_file")
        )
        size = options.get("cache_size", _CACHE_SIZE)
        self._by_id: BoundedCache[int, Schema] = BoundedCache(size)
        self._ids: BoundedCache[tuple[str, Schema], int] = BoundedCache(size)
        self._found: BoundedCache[tuple[str, Schema], RegisteredSchema] = BoundedCache(size)
        self._versions: BoundedCache[tuple[str, int], RegisteredSchema] = BoundedCache(size)
        self._latest: BoundedCache[str, RegisteredSchema] = BoundedCache(size)

    def __reduce__(self) -> tuple[partial[SchemaRegistry], tuple[()]]:
        """Return how another process makes the client, without what is cached."""
        return self._make, ()

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
            response = self._send(_Request(f"/schemas/ids/{schema_id}"), _SchemaResponse)
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
            path = f"{_subject(subject)}/versions{_query(normalize=normalize)}"
            cached = self._send(_Request(path, _body(schema)), _IdResponse).id
            self._ids.put((subject, schema), cached)
        return cached

    def find(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Return the version of a subject that has this schema.

        Raises:
            RegistryError: Also if it is not registered (status 404).
        """
        cached = self._found.get((subject, schema))
        if cached is None:
            path = f"{_subject(subject)}{_query(normalize=normalize)}"
            response = self._send(_Request(path, _body(schema)), _VersionResponse)
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

    def version(self, subject: str, number: int, *, deleted: bool = False) -> RegisteredSchema:
        """Return a version of a subject; with `deleted` also one that was deleted softly.

        Raises:
            RegistryError: Also if there is no such version (status 404).
        """
        found = self._versions.get((subject, number))
        if found is None:
            found = self._version(subject, str(number), deleted=deleted)
            self._versions.put((subject, number), found)
        return found

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

    def _version(self, subject: str, version: str, *, deleted: bool = False) -> RegisteredSchema:
        path = f"{_subject(subject)}/versions/{version}{_query(deleted=deleted)}"
        response = self._send(_Request(path), _VersionResponse)
        schema = response.as_schema()
        self._by_id.put(response.id, schema)
        return RegisteredSchema(response.subject, response.version, response.id, schema)

    # Subjects

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Return the names of all subjects, or of those with this prefix.

        Args:
            prefix: The prefix. It may begin with a context, such as ":.east:", or ":*:" for all.
            deleted: Whether to return those too whose versions were all deleted softly.

        Raises:
            RegistryError: The registry was not reached, or refused the request.
        """
        query = _query(subjectPrefix=prefix, deleted=deleted)
        found = self._send(_Request(f"/subjects{query}"), list[str])
        if prefix.startswith(_CONTEXT_MARK):
            return found
        # Some registries ignore the prefix.
        return [name for name in found if name.startswith(prefix)]

    def latest_versions(self, *, deleted: bool = False) -> list[SubjectVersion] | None:
        """Return the newest version of each subject in all contexts, without the texts.

        Args:
            deleted: Whether to return those too that were deleted softly.

        Returns:
            None if the registry's list of schemas does not name the subjects (Apicurio Registry).

        Raises:
            RegistryError: The registry was not reached, or refused the request.
        """
        # A registry without contexts finds no subject with the prefix of all contexts.
        found = self._latest_versions(_ALL_CONTEXTS, deleted) or self._latest_versions("", deleted)
        return found if all(each.subject for each in found) else None

    def _latest_versions(self, prefix: str, deleted: bool) -> list[SubjectVersion]:
        found: list[SubjectVersion] = []
        chosen = _query(latestOnly=True, deleted=deleted, subjectPrefix=prefix)
        while True:
            path = f"/schemas{chosen}&offset={len(found)}&limit={_SCHEMAS_A_RESPONSE}"
            request = _Request(path, response_bytes_max=_LARGE_RESPONSE_BYTES_MAX)
            found += (part := self._send(request, list[SubjectVersion]))
            if len(part) != _SCHEMAS_A_RESPONSE:
                return found

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the numbers of a subject's versions, those deleted softly too with `deleted`.

        Raises:
            RegistryError: Also if there is no such subject (status 404).
        """
        return self._send(
            _Request(f"{_subject(subject)}/versions{_query(deleted=deleted)}"), list[int]
        )

    def places(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects and versions that have the schema with an id.

        Raises:
            RegistryError: Also if the registry has no such schema (status 404).
        """
        found = self._send(_Request(f"/schemas/ids/{schema_id}/versions"), list[_PlaceResponse])
        return [(each.subject, each.version) for each in found]

    def referring(self, subject: str, number: int) -> list[int]:
        """Return the ids of the schemas that refer to a version of a subject.

        Raises:
            RegistryError: Also if there is no such version (status 404).
        """
        return self._send(
            _Request(f"{_subject(subject)}/versions/{number}/referencedby"), list[int]
        )

    def delete(
        self, subject: str, number: int | None = None, *, permanent: bool = False
    ) -> list[int]:
        """Delete a version of a subject, or all versions; return the numbers of those deleted.

        A soft deletion keeps the schema for records that were written with it, and its number.

        Args:
            subject: The subject.
            number: The version; None for all.
            permanent: Whether to remove what a soft deletion keeps. What was not deleted softly
                before is so first, as registries demand.

        Raises:
            RegistryError: Also if there is no such subject or version (status 404), or a schema
                refers to it (status 422).
        """
        for each in (self._versions, self._latest, self._ids, self._found):
            each.clear()
        path = _subject(subject) + ("" if number is None else f"/versions/{number}")
        if permanent:
            try:
                self._delete(path)
            except RegistryError as error:
                if error.code not in _DELETED_BEFORE:
                    raise
            path += "?permanent=true"
        return self._delete(path)

    def _delete(self, path: str) -> list[int]:
        kind: Any = int | list[int]
        deleted = self._send(_Request(path, method="DELETE"), kind)
        return [deleted] if isinstance(deleted, int) else deleted

    # Compatibility and mode

    def incompatibilities(
        self,
        subject: str,
        schema: Schema,
        version: int | str | None = None,
        *,
        normalize: bool = False,
    ) -> list[str]:
        """Return what makes a schema incompatible with versions of a subject; empty if nothing.

        Args:
            subject: The subject.
            schema: The schema.
            version: A number or "latest"; None for the versions that a registration checks.
            normalize: Whether the registry compares schemas in a normal form.

        Raises:
            RegistryError: Also if the schema is invalid (status 422), or there is no such version
                (status 404).
        """
        path = f"/compatibility{_subject(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        path += _query(verbose=True, normalize=normalize)
        response = self._send(_Request(path, _body(schema)), _CheckResponse)
        if response.is_compatible:
            return []
        return response.messages or ["the registry gives no reason"]

    def compatibility(self, subject: str = "") -> str | None:
        """Return the compatibility level of a subject, None if it has none; or that of all others.

        Raises:
            RegistryError: The registry was not reached, or refused the request.
        """
        found = self._setting(f"/config{_named(subject)}", _LevelResponse)
        return None if found is None else found.compatibilityLevel or found.compatibility

    def set_compatibility(self, level: str | None, subject: str = "") -> None:
        """Set the compatibility level of a subject, or of all that have none; None removes it.

        Raises:
            RegistryError: Also if there is no such level (status 422).
        """
        self._set(f"/config{_named(subject)}", "compatibility", level)

    def mode(self, subject: str = "") -> str | None:
        """Return the mode of a subject, None if it has none; or that of all others.

        Raises:
            RegistryError: The registry was not reached, or refused the request.
        """
        found = self._setting(f"/mode{_named(subject)}", _ModeResponse)
        return None if found is None else found.mode

    def set_mode(self, mode: str | None, subject: str = "", *, force: bool = False) -> None:
        """Set the mode of a subject, or of all that have none; None removes it.

        Args:
            mode: READWRITE, READONLY, or IMPORT, in which clients choose the ids of schemas.
            subject: The subject; "" for all that have no mode.
            force: Whether IMPORT is allowed where there are schemas.

        Raises:
            RegistryError: Also if there is no such mode (status 422).
        """
        self._set(f"/mode{_named(subject)}{_query(force=force)}", "mode", mode)

    def _setting(self, path: str, kind: type[T]) -> T | None:
        try:
            return self._send(_Request(path), kind)
        except RegistryError as error:
            if error.code in _NOT_SET:
                return None
            raise

    def _set(self, path: str, name: str, value: str | None) -> None:
        request = _Request(path, method="DELETE")
        if value is not None:
            request = _Request(path, msgspec.json.encode({name: value}), "PUT")
        self._send(request, Any)

    # Requests

    def _send(self, request: _Request, kind: type[T]) -> T:
        """Send a request to the first URL that responds, and decode the response."""
        failure: RegistryError | None = None
        # A repeated deletion fails if the first one was executed and its response was lost.
        for number in range(1 if request.method == "DELETE" else _ROUNDS):
            if number:
                web.pause(_PAUSE_S * (1 << (number - 1)))
            for url in self._urls:
                try:
                    return self._exchange(url, request, kind)
                except RegistryError as error:
                    if not error.retriable:
                        raise
                    failure = error
        assert failure is not None
        raise failure

    def _exchange(self, url: str, wanted: _Request, kind: type[T]) -> T:
        request = web.WebRequest(
            url + wanted.path,
            self._headers,
            wanted.body,
            self._timeout_s,
            self._tls,
            wanted.method,
            wanted.response_bytes_max,
        )
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
    elif refusal.error_code == SUBJECT_NOT_FOUND:
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


def _subject(subject: str) -> str:
    return f"/subjects{_named(subject)}"


def _named(subject: str) -> str:
    """Return the part of a path that names a subject; "" for all subjects."""
    return f"/{quote(subject, safe='')}" if subject else ""


def _query(**given: str | bool) -> str:
    """Return the query with the parameters that are not empty or False."""
    words = {name: "true" if value is True else value for name, value in given.items() if value}
    return f"?{urlencode(words)}" if words else ""


def _headers(user_info: str, token: str) -> Mapping[str, str]:
    headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE}
    try:
        return {**headers, **web.authorization(user_info, token)}
    except ValueError as error:
        raise ValueError(f"schema registry: {error}") from None
