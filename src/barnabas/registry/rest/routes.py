"""The REST interface: a handler for each path and method of Confluent's API, version 1.

A handler returns a value that becomes JSON, or a finished response. Handlers of changes run on the
leader; other processes forward the whole request to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from barnabas.registry.errors import (
    NOT_FOUND,
    RegistryError,
    config_not_found,
    mode_not_found,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from barnabas.registry.merging import has_properties
from barnabas.registry.records import AVRO, RULES, reference_members
from barnabas.registry.requests import read_config, read_mode, read_schema
from barnabas.registry.rest.http_call import Call, Route
from barnabas.registry.schemas import SCHEMA_TYPES
from barnabas.registry.security.access import Right
from barnabas.registry.state import ALL, Deleted
from barnabas.registry.subjects import (
    ANY_CONTEXT,
    DEFAULT_CONTEXT,
    Subject,
    check_scope,
    check_subject,
    context_of,
    in_context,
    parse_version,
)
from barnabas.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from barnabas.registry.operations import Registry
    from barnabas.registry.records import StoredSchema
    from barnabas.registry.requests import SchemaRequest
    from barnabas.registry.security.access import Access

    Handler: TypeAlias = Callable[[Call], Awaitable[object]]

_SEARCH_MAX = 1000
_METHOD_NOT_ALLOWED = 405


class Forwarder(Protocol):
    """Knows whether this process leads, and reaches the leader otherwise."""

    async def forwarded(self, call: Call, body: bytes) -> Response | None:
        """Return the leader's response; None if this process is the leader.

        Raises:
            RegistryError: The leader is unknown or does not answer.
        """
        ...


class Identity(NamedTuple):
    """Names of the cluster that the registry serves."""

    cluster_id: str
    group_id: str


class Routes:
    """The handlers.

    Args:
        registry: The registry.
        forwarder: Reaches the leader.
        access: Checks rights.
        identity: The names in `/v1/metadata/id`.
    """

    def __init__(
        self, registry: Registry, forwarder: Forwarder, access: Access, identity: Identity
    ) -> None:
        self._registry = registry
        self._state = registry.state
        self._forwarder = forwarder
        self._access = access
        self._identity = identity
        config: dict[str, Handler] = {
            "GET": self._config,
            "PUT": self._set_config,
            "DELETE": self._delete_config,
        }
        subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
        self._table: dict[str, dict[str, Handler]] = {
            "/": {"GET": self._root},
            "/subjects": {"GET": self._subjects},
            subject: {"POST": self._look_up, "DELETE": self._delete_subject},
            f"{subject}/versions": {"GET": self._versions, "POST": self._register},
            f"{subject}/metadata": {"GET": self._latest_with_metadata},
            version: {"GET": self._version, "DELETE": self._delete_version},
            f"{version}/schema": {"GET": self._version_text},
            f"{version}/referencedby": {"GET": self._referenced_by},
            "/schemas": {"GET": self._schemas},
            "/schemas/types": {"GET": self._types},
            "/schemas/ids/{id}": {"GET": self._by_id},
            "/schemas/ids/{id}/schema": {"GET": self._text_by_id},
            "/schemas/ids/{id}/subjects": {"GET": self._subjects_by_id},
            "/schemas/ids/{id}/versions": {"GET": self._versions_by_id},
            "/compatibility/subjects/{subject}/versions": {"POST": self._check_all},
            "/compatibility/subjects/{subject}/versions/{version}": {"POST": self._check_one},
            "/config": config,
            "/config/{subject}": config,
            "/mode": {"GET": self._mode, "PUT": self._set_mode},
            "/mode/{subject}": {
                "GET": self._mode,
                "PUT": self._set_mode,
                "DELETE": self._delete_mode,
            },
            "/contexts": {"GET": self._contexts},
            "/v1/metadata/id": {"GET": self._cluster_id},
            "/v1/metadata/version": {"GET": self._server_version},
        }
        self._patterns = [(pattern.split("/")[1:], pattern) for pattern in self._table]

    def find(self, parts: list[str], context: str) -> Route:
        """Return the route of a path.

        Raises:
            RegistryError: There is no such path.
        """
        for names, pattern in self._patterns:
            if len(names) != len(parts):
                continue
            pairs = list(zip(names, parts, strict=True))
            if all(name == part or (name[:1] == "{" and part) for name, part in pairs):
                found = {name[1:-1]: part for name, part in pairs if name[:1] == "{"}
                return Route(pattern, found, context)
        raise RegistryError(NOT_FOUND, "HTTP 404 Not Found")

    async def handle(self, call: Call) -> object:
        """Return what the response to a request contains.

        Raises:
            RegistryError: The request is refused.
        """
        method = "GET" if call.request.method == "HEAD" else call.request.method
        handler = self._table[call.route.pattern].get(method)
        if handler is None:
            raise RegistryError(_METHOD_NOT_ALLOWED, "HTTP 405 Method Not Allowed")
        return await handler(call)

    # The registry

    async def _root(self, _call: Call) -> object:
        return {}

    async def _types(self, _call: Call) -> object:
        return list(SCHEMA_TYPES)

    async def _contexts(self, call: Call) -> object:
        names = self._state.subjects(which=ALL)
        wholes = [Subject(each, "").qualified for each in self._state.contexts]
        readable = await self._access.readable(call.caller, [*names, *wholes])
        found = {context_of(each) for each in readable}
        return [each for each in self._state.contexts if each in found or each == DEFAULT_CONTEXT]

    async def _cluster_id(self, _call: Call) -> object:
        clusters = {
            "kafka-cluster": self._identity.cluster_id,
            "schema-registry-cluster": self._identity.group_id,
        }
        return {"id": "", "scope": {"path": [], "clusters": clusters}}

    async def _server_version(self, _call: Call) -> object:
        return {"version": __version__, "commitId": ""}

    # Subjects

    async def _subjects(self, call: Call) -> object:
        prefix = self._prefix(call)
        names = self._state.subjects(prefix, _deleted(call))
        return call.page(await self._access.readable(call.caller, names))

    @staticmethod
    def _prefix(call: Call) -> str:
        given = call.text("subjectPrefix", ANY_CONTEXT)
        whole = call.scope
        return given if whole is None else whole + given.removeprefix(ANY_CONTEXT)

    async def _versions(self, call: Call) -> object:
        await self._access.check(call.caller, Right.READ, call.subject)
        which = _deleted(call)
        known = Deleted(included=which.included or which.only)
        if not self._state.has_versions(call.subject, known):
            raise subject_not_found(call.subject)
        return call.page([each.version for each in self._state.versions(call.subject, which)])

    async def _found_version(self, call: Call, *, is_deleted_found: bool = False) -> StoredSchema:
        await self._access.check(call.caller, Right.READ, call.subject)
        version = parse_version(call.version)
        which = ALL if is_deleted_found or call.flag("deleted") else Deleted()
        found = self._state.get(call.subject, version, which)
        if found is not None:
            return found
        if not self._state.has_versions(call.subject, which):
            raise subject_not_found(call.subject)
        raise version_not_found(version)

    async def _version(self, call: Call) -> object:
        found = await self._found_version(call)
        text = await self._registry.formatted(found, call.text("format"))
        return _members(found, text)

    async def _latest_with_metadata(self, call: Call) -> object:
        await self._access.check(call.caller, Right.READ, call.subject)
        # Confluent's clients give keys and values in the same order.
        wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
        which = Deleted(included=call.flag("deleted"))
        versions = self._state.versions(call.subject, which)
        if not versions:
            raise subject_not_found(call.subject)
        matching = [each for each in versions if has_properties(each.more, wanted)]
        if not matching:
            raise schema_not_found()
        found = matching[-1]
        return _members(found, await self._registry.formatted(found, call.text("format")))

    async def _version_text(self, call: Call) -> object:
        found = await self._found_version(call)
        return _Text(await self._registry.formatted(found, call.text("format")))

    async def _referenced_by(self, call: Call) -> object:
        found = await self._found_version(call, is_deleted_found=True)
        users = self._state.referents(found.subject, found.version)
        return call.page(sorted({each.id for each in users}))

    async def _schema_request(self, call: Call, body: bytes) -> SchemaRequest:
        """Return the schema in a body, whose references the principal may read.

        Without this check, the schema's resolved text would show what it refers to.
        """
        request = read_schema(body)
        context = context_of(call.subject)
        for name in sorted({in_context(context, each.subject) for each in request.references}):
            await self._access.check(call.caller, Right.READ, name)
        return request

    async def _look_up(self, call: Call) -> object:
        await self._access.check(call.caller, Right.READ, call.subject)
        request = await self._schema_request(call, await call.body())
        found = await self._registry.look_up(
            call.subject, request, normalize=call.flag("normalize"), which=_deleted(call)
        )
        return _members(found, found.content.text)

    async def _register(self, call: Call) -> object:
        await self._access.check(call.caller, Right.WRITE, call.subject)
        body = await call.body()
        request = await self._schema_request(call, body)
        subject, normalize = call.subject, call.flag("normalize")
        check_subject(subject)
        found = await self._registry.find_registered(subject, request, normalize=normalize)
        if found is None:
            response = await self._forwarder.forwarded(call, body)
            if response is not None:
                return response
            found = await self._registry.register(subject, request, normalize=normalize)
        return {"id": found.id}

    async def _delete_version(self, call: Call) -> object:
        await self._access.check(call.caller, Right.DELETE, call.subject)
        version = parse_version(call.version)
        return await self._forwarder.forwarded(call, b"") or (
            await self._registry.delete_version(
                call.subject, version, permanent=call.flag("permanent")
            )
        )

    async def _delete_subject(self, call: Call) -> object:
        await self._access.check(call.caller, Right.DELETE, call.subject)
        return await self._forwarder.forwarded(call, b"") or (
            await self._registry.delete_subject(call.subject, permanent=call.flag("permanent"))
        )

    # Schemas by id

    async def _schemas(self, call: Call) -> object:
        names = self._state.subjects(self._prefix(call), _deleted(call))
        readable = await self._access.readable(call.caller, names)
        found: list[StoredSchema] = []
        for name in readable:
            versions = self._state.versions(name, _deleted(call))
            found += versions[-1:] if call.flag("latestOnly") else versions
        return [_members(each, each.content.text) for each in call.page(found, _SEARCH_MAX)]

    async def _uses(self, call: Call, which: Deleted = ALL) -> list[StoredSchema]:
        """Return the versions with the id of a call that the principal may read."""
        schema_id = call.id
        context = self._registry.containing(call.query_subject(), schema_id)
        uses = [] if context is None else self._state.uses_of(context, schema_id, ALL)
        names = sorted({each.subject for each in uses})
        readable = set(await self._access.readable(call.caller, names))
        if not readable:
            raise schema_not_found(schema_id)
        return [each for each in uses if each.subject in readable and which.admits(each)]

    async def _by_id(self, call: Call) -> object:
        found = (await self._uses(call))[0]
        text = await self._registry.formatted(found, call.text("format"))
        members: dict[str, Any] = {"schema": text, **_further_members(found)}
        if call.flag("fetchMaxId"):
            context = self._registry.containing(call.query_subject(), call.id)
            members["maxId"] = self._state.last_id(context or "")
        return members

    async def _text_by_id(self, call: Call) -> object:
        found = (await self._uses(call))[0]
        return _Text(await self._registry.formatted(found, call.text("format")))

    async def _subjects_by_id(self, call: Call) -> object:
        uses = await self._uses(call, _deleted(call))
        return call.page(sorted({each.subject for each in uses}))

    async def _versions_by_id(self, call: Call) -> object:
        uses = await self._uses(call, _deleted(call))
        pairs = [{"subject": each.subject, "version": each.version} for each in uses]
        return call.page(pairs)

    # Compatibility

    async def _check_all(self, call: Call) -> object:
        return await self._compatibility(call, None)

    async def _check_one(self, call: Call) -> object:
        return await self._compatibility(call, parse_version(call.version))

    async def _compatibility(self, call: Call, version: int | None) -> object:
        await self._access.check(call.caller, Right.READ, call.subject)
        request = await self._schema_request(call, await call.body())
        problems = await self._registry.incompatibilities(
            call.subject, version, request, normalize=call.flag("normalize")
        )
        members: dict[str, Any] = {"is_compatible": not problems}
        if call.flag("verbose"):
            members["messages"] = problems
        return members

    # Configurations and modes

    async def _config(self, call: Call) -> object:
        await self._access.check(call.caller, Right.SHOW_CONFIG, call.scope)
        if call.flag("defaultToGlobal"):
            return dict(self._state.config_in_scope(call.scope))
        found = self._state.config(call.scope)
        if found is None:
            raise config_not_found(call.scope or "")
        return dict(found)

    async def _set_config(self, call: Call) -> object:
        await self._access.check(call.caller, Right.CONFIGURE, call.scope)
        check_scope(call.scope)
        body = await call.body()
        request = read_config(body)
        response = await self._forwarder.forwarded(call, body)
        if response is not None:
            return response
        await self._registry.set_config(call.scope, request)
        given = {"compatibility": request.level, "normalize": request.normalize, **request.more}
        return {name: value for name, value in given.items() if value is not None}

    async def _delete_config(self, call: Call) -> object:
        await self._access.check(call.caller, Right.CONFIGURE, call.scope)
        response = await self._forwarder.forwarded(call, b"")
        return response or {**await self._registry.delete_config(call.scope)}

    async def _mode(self, call: Call) -> object:
        await self._access.check(call.caller, Right.SHOW_CONFIG, call.scope)
        if call.flag("defaultToGlobal"):
            return {"mode": self._state.mode_in_scope(call.scope)}
        found = self._state.mode(call.scope)
        if found is None:
            raise mode_not_found(call.scope or "")
        return {"mode": found}

    async def _set_mode(self, call: Call) -> object:
        await self._access.check(call.caller, Right.CONFIGURE, call.scope)
        check_scope(call.scope)
        body = await call.body()
        mode = read_mode(body)
        response = await self._forwarder.forwarded(call, body)
        if response is not None:
            return response
        await self._registry.set_mode(call.scope, mode, force=call.flag("force"))
        return {"mode": mode}

    async def _delete_mode(self, call: Call) -> object:
        await self._access.check(call.caller, Right.CONFIGURE, call.scope)
        response = await self._forwarder.forwarded(call, b"")
        return response or {"mode": await self._registry.delete_mode(call.subject)}


class _Text(NamedTuple):
    """A response that is a schema's text itself."""

    text: str


def text_of(value: object) -> str | None:
    """Return the text of a response that is a schema itself; None for JSON."""
    return value.text if isinstance(value, _Text) else None


def _deleted(call: Call) -> Deleted:
    return Deleted(included=call.flag("deleted"), only=call.flag("deletedOnly"))


def _further_members(schema: StoredSchema) -> dict[str, Any]:
    """Return the members that a schema need not have."""
    members: dict[str, Any] = {}
    if schema.content.schema_type != AVRO:
        members["schemaType"] = schema.content.schema_type
    if schema.content.references:
        members["references"] = [reference_members(each) for each in schema.content.references]
    members.update({name: schema.more[name] for name in RULES if name in schema.more})
    return members


def _members(schema: StoredSchema, text: str) -> dict[str, Any]:
    """Return a version as JSON members."""
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        **_further_members(schema),
        "schema": text,
    }
