"""All schemas, configurations and modes in memory: the topic `_schemas` as read so far.

`apply` is the only way to change it. Reads of the REST interface are lookups here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from barnabas.registry.config import DEFAULT_LEVEL, READONLY_OVERRIDE, READWRITE
from barnabas.registry.records import (
    LEVEL,
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
)
from barnabas.registry.subjects import (
    ANY_CONTEXT,
    DEFAULT_CONTEXT,
    LATEST,
    Subject,
    context_of,
    in_context,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.registry.records import Content, Record, StoredSchema

_log = logging.getLogger(__name__)


class Deleted(NamedTuple):
    """Which versions a request asks for."""

    included: bool = False
    only: bool = False

    def admits(self, schema: StoredSchema) -> bool:
        """Return whether a version is asked for."""
        if self.only:
            return schema.deleted
        return self.included or not schema.deleted


UNDELETED = Deleted()
ALL = Deleted(included=True)


class _Id:
    """An id of one context."""

    __slots__ = ("content", "used_by")

    def __init__(self, content: Content) -> None:
        self.content = content
        # Subject and version of each use, also of soft deleted ones; never empty.
        self.used_by: set[tuple[str, int]] = set()


class _Context:
    """The ids of one context."""

    __slots__ = ("by_content", "ids", "last_id")

    def __init__(self) -> None:
        self.ids: dict[int, _Id] = {}
        self.by_content: dict[Content, int] = {}
        # The largest id that was read; never moves back.
        self.last_id = 0


class RegistryState:
    """What the topic says; changed by `apply` only.

    Args:
        level: The compatibility level where none was set.
    """

    def __init__(self, level: str = DEFAULT_LEVEL) -> None:
        self._default_level = level
        self.clear()

    def clear(self) -> None:
        """Forget everything: the topic is read again from its beginning."""
        # Versions by number, ascending, by the qualified name of the subject.
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._contexts: dict[str, _Context] = {DEFAULT_CONTEXT: _Context()}
        self._configs: dict[str | None, Mapping[str, Any]] = {}
        self._modes: dict[str | None, str] = {}
        # Users of a version, deleted ones too: (subject, version) by (subject, version).
        self._referents: dict[tuple[str, int], set[tuple[str, int]]] = {}

    # Changes

    def apply(self, record: Record) -> None:
        """Change the state as a record of the topic says."""
        match record:
            case SchemaRecord():
                self._put(record)
            case ConfigRecord(subject, config):
                _put_or_remove(self._configs, subject, config)
            case ModeRecord(subject, mode):
                _put_or_remove(self._modes, subject, mode)
            case DeleteSubjectRecord(subject, version):
                self._delete_up_to(subject, version or 0)
            case ClearSubjectRecord(subject, is_cleared):
                if is_cleared:
                    self._clear(subject)
            case ContextRecord(context, exists):
                if exists:
                    self._context(context)
            case NoopRecord(last_ids):
                for name, last_id in last_ids.items():
                    found = self._context(name)
                    found.last_id = max(found.last_id, last_id)
            case _:
                assert_never(record)

    def _context(self, name: str) -> _Context:
        found = self._contexts.get(name)
        if found is None:
            found = self._contexts[name] = _Context()
        return found

    def _put(self, record: SchemaRecord) -> None:
        versions = self._subjects.setdefault(record.subject, {})
        old = versions.pop(record.version, None)
        if old is not None:
            self._remove_use(old)
        new = record.schema
        if new is not None:
            is_newest = new.version > next(reversed(versions), 0)
            versions[new.version] = new
            if not is_newest:
                self._subjects[record.subject] = dict(sorted(versions.items()))
            self._add_use(new)
        elif not versions:
            del self._subjects[record.subject]

    def _add_use(self, schema: StoredSchema) -> None:
        context = self._context(context_of(schema.subject))
        context.last_id = max(context.last_id, schema.id)
        found = context.ids.get(schema.id)
        if found is None:
            found = context.ids[schema.id] = _Id(schema.content)
            context.by_content.setdefault(schema.content, schema.id)
        elif found.content != schema.content:
            _log.warning(
                "two schemas have one id, the earlier one stays: id=%d subject=%s version=%d",
                *(schema.id, schema.subject, schema.version),
            )
        use = (schema.subject, schema.version)
        found.used_by.add(use)
        for each in _referred(schema):
            self._referents.setdefault(each, set()).add(use)

    def _remove_use(self, schema: StoredSchema) -> None:
        context = self._context(context_of(schema.subject))
        use = (schema.subject, schema.version)
        found = context.ids[schema.id]
        found.used_by.discard(use)
        if not found.used_by:
            del context.ids[schema.id]
            if context.by_content.get(found.content) == schema.id:
                del context.by_content[found.content]
        for each in _referred(schema):
            users = self._referents.get(each, set())
            users.discard(use)
            if not users:
                self._referents.pop(each, None)

    def _delete_up_to(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        for number, schema in versions.items():
            if number <= version:
                versions[number] = schema._replace(deleted=True)

    def _clear(self, subject: str | None) -> None:
        for name in self._matching(subject):
            for schema in list(self._subjects[name].values()):
                if schema.deleted:
                    self._put(SchemaRecord(name, schema.version, None))

    # Subjects and versions

    def _matching(self, subject: str | None) -> list[str]:
        """Return a subject, all subjects of a context, or all subjects for None."""
        if subject is None:
            return sorted(self._subjects)
        wanted = split(subject)
        if wanted.name:
            return [subject] if subject in self._subjects else []
        return [each for each in sorted(self._subjects) if split(each).context == wanted.context]

    def subjects(self, prefix: str = ANY_CONTEXT, which: Deleted = UNDELETED) -> list[str]:
        """Return the qualified names of subjects, in order.

        Args:
            prefix: The beginning of the names. `:*:` at its beginning stands for all contexts.
            which: Each subject has a version of this kind.
        """
        return [
            name
            for name in sorted(self._subjects)
            if _has_prefix(name, prefix)
            and any(which.admits(each) for each in self._subjects[name].values())
        ]

    def has_versions(self, subject: str | None, which: Deleted = UNDELETED) -> bool:
        """Return whether a subject, a context or, for None, the registry has versions."""
        return any(
            which.admits(each)
            for name in self._matching(subject)
            for each in self._subjects[name].values()
        )

    def all_versions(self, subject: str | None, which: Deleted = ALL) -> list[StoredSchema]:
        """Return the versions of a subject, a context or, for None, the registry."""
        return [
            each
            for name in self._matching(subject)
            for each in self._subjects[name].values()
            if which.admits(each)
        ]

    def versions(self, subject: str, which: Deleted = UNDELETED) -> list[StoredSchema]:
        """Return the versions of a subject, ascending."""
        return [each for each in self._subjects.get(subject, {}).values() if which.admits(each)]

    def get(self, subject: str, version: int, which: Deleted = UNDELETED) -> StoredSchema | None:
        """Return a version of a subject, or the newest for `LATEST`; None if there is none."""
        if version == LATEST:
            found = self.versions(subject, which)
            return found[-1] if found else None
        schema = self._subjects.get(subject, {}).get(version)
        return schema if schema is not None and which.admits(schema) else None

    def next_version(self, subject: str) -> int:
        """Return the number of the next version of a subject."""
        return max(self._subjects.get(subject, {}), default=0) + 1

    def referents(self, subject: str, version: int) -> list[StoredSchema]:
        """Return the undeleted versions that refer to a version."""
        users = (self.get(*use) for use in sorted(self._referents.get((subject, version), ())))
        return [each for each in users if each is not None]

    # Ids

    def id_of(self, context: str, content: Content) -> int | None:
        """Return the id of a content in a context."""
        found = self._contexts.get(context)
        return None if found is None else found.by_content.get(content)

    def content_of(self, context: str, schema_id: int) -> Content | None:
        """Return the content of an id in a context."""
        found = self._contexts.get(context)
        entry = None if found is None else found.ids.get(schema_id)
        return None if entry is None else entry.content

    def uses_of(
        self, context: str, schema_id: int, which: Deleted = UNDELETED
    ) -> list[StoredSchema]:
        """Return the versions with an id, by subject and version."""
        found = self._contexts.get(context)
        entry = None if found is None else found.ids.get(schema_id)
        uses = sorted(entry.used_by) if entry is not None else []
        return [
            self._subjects[name][version]
            for name, version in uses
            if which.admits(self._subjects[name][version])
        ]

    def last_id(self, context: str) -> int:
        """Return the largest id of a context; 0 without one."""
        found = self._contexts.get(context)
        return 0 if found is None else found.last_id

    @property
    def last_ids(self) -> dict[str, int]:
        """The largest id of each context that has used ids."""
        return {name: each.last_id for name, each in self._contexts.items() if each.last_id}

    def find(
        self, subject: str, content: Content, which: Deleted = UNDELETED
    ) -> StoredSchema | None:
        """Return the newest version of a subject with this content."""
        versions = self._subjects.get(subject, {})
        for version in reversed(versions.values()):
            if version.content == content and which.admits(version):
                return version
        return None

    # Contexts, configurations, modes

    @property
    def contexts(self) -> list[str]:
        """The names of all contexts, in order."""
        return sorted(self._contexts)

    def config(self, subject: str | None) -> Mapping[str, Any] | None:
        """Return the configuration of exactly this subject, context or, with None, registry."""
        found = self._configs.get(subject)
        if found is None and subject is None:
            return {LEVEL: self._default_level}
        return found

    def config_in_scope(self, subject: str | None) -> Mapping[str, Any]:
        """Return the configuration that applies to a subject."""
        found: dict[str, Any] = {}
        for scope in reversed(list(_scopes(subject))):
            given = self.config(scope) or {}
            # A member that is null has the value of the wider scope.
            found.update({name: each for name, each in given.items() if each is not None})
        return found

    def level(self, subject: str) -> str:
        """Return the compatibility level that applies to a subject."""
        return str(self.config_in_scope(subject).get(LEVEL, self._default_level)).upper()

    def mode(self, subject: str | None) -> str | None:
        """Return the mode of exactly this subject, context or, with None, of the registry."""
        if self._modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        found = self._modes.get(subject)
        return READWRITE if found is None and subject is None else found

    def mode_in_scope(self, subject: str | None) -> str:
        """Return the mode that applies to a subject."""
        found = (self.mode(scope) for scope in _scopes(subject))
        return next(each for each in found if each is not None)


def _referred(schema: StoredSchema) -> Iterator[tuple[str, int]]:
    """Yield the versions that a schema refers to."""
    context = context_of(schema.subject)
    for each in schema.content.references:
        yield in_context(context, each.subject), each.version


def _put_or_remove(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _has_prefix(name: str, prefix: str) -> bool:
    if prefix.startswith(ANY_CONTEXT):
        return split(name).name.startswith(prefix.removeprefix(ANY_CONTEXT))
    if prefix.startswith(":"):
        return name.startswith(prefix)
    return split(name).context == DEFAULT_CONTEXT and name.startswith(prefix)


def _scopes(subject: str | None) -> Iterator[str | None]:
    """Yield where a setting of a subject may be: the subject, its context, the registry."""
    if subject is not None:
        yield subject
        context = context_of(subject)
        whole = Subject(context, "").qualified
        if context != DEFAULT_CONTEXT and whole != subject:
            yield whole
    yield None
