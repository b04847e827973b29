"""The changes and checks of the registry: what a request means, and which records it writes.

A change runs on the leader only. Changes of one subject run one after the other. Parsing and
comparing schemas takes place outside the lock of all writes, so a large schema delays only the
requests for its own subject. A change has succeeded when its record was read back.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.registry.config import IMPORT, LEVELS, MODES, READONLY, READONLY_OVERRIDE, READWRITE
from barnabas.registry.errors import (
    id_does_not_match,
    incompatible,
    invalid_level,
    invalid_mode,
    invalid_schema,
    level_note,
    not_permitted,
    reference_exists,
    schema_not_found,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from barnabas.registry.merging import GROUP, merged, property_of, with_version
from barnabas.registry.records import (
    LEVEL,
    ClearSubjectRecord,
    ConfigRecord,
    Content,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
    StoredSchema,
    rules_of,
)
from barnabas.registry.references import Resolver
from barnabas.registry.schemas import (
    SCHEMA_TYPES,
    InvalidSchemaError,
    Reference,
    ResolvedReference,
    compared_versions,
)
from barnabas.registry.state import ALL, UNDELETED, Deleted
from barnabas.registry.subjects import (
    DEFAULT_CONTEXT,
    LATEST,
    Subject,
    context_of,
    split,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from barnabas.registry.requests import ConfigRequest, SchemaRequest
    from barnabas.registry.state import RegistryState

# Texts of earlier versions that are compared in one step: their copies need memory.
_PART_CHARACTERS = 8 << 20


class SchemaText(NamedTuple):
    """A schema with the schemas that it refers to, as the parser gets it."""

    schema_type: str
    text: str
    references: tuple[ResolvedReference, ...] = ()


class ExaminedSchema(NamedTuple):
    """A valid schema: the text that is stored, and its references, perhaps in another order."""

    text: str
    references: tuple[Reference, ...]


class Examiner(Protocol):
    """Parses and compares schemas outside the event loop.

    The methods raise InvalidSchemaError for a schema that is invalid or takes too long.
    """

    async def parse(self, schema: SchemaText, *, normalize: bool) -> ExaminedSchema:
        """Return the canonical or the normalized form of a schema."""
        ...

    async def format(self, schema: SchemaText, name: str) -> str:
        """Return the text of a schema in the format with this name."""
        ...

    async def check(self, level: str, new: SchemaText, earlier: Sequence[SchemaText]) -> list[str]:
        """Return why a new schema breaks a compatibility level; empty if it does not."""
        ...


class Store(Protocol):
    """The topic of the registry."""

    async def write(self, records: Sequence[Record]) -> None:
        """Append records and wait until they were read back.

        Raises:
            RegistryError: The records were not written, or not read back in time.
        """
        ...


class Registry:
    """The changes and checks of one registry.

    Args:
        state: What was read of the topic.
        store: Writes the topic.
        examiner: Parses and compares schemas.
    """

    def __init__(self, state: RegistryState, store: Store, examiner: Examiner) -> None:
        self.state = state
        self._store = store
        self._examiner = examiner
        # Held from the choice of an id until its record was read back.
        self._writing = asyncio.Lock()
        # Locks of the subjects that are being changed, with the number of their users.
        self._locks: dict[str | None, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def _changing(self, subject: str | None) -> AsyncIterator[None]:
        """Wait for other changes of a subject."""
        lock, users = self._locks.get(subject, (asyncio.Lock(), 0))
        self._locks[subject] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[subject]
            if users == 1:
                del self._locks[subject]
            else:
                self._locks[subject] = (lock, users - 1)

    # Schemas

    async def examine(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Content:
        """Return the content of a schema in a request.

        Raises:
            RegistryError: The schema is invalid, or a reference is missing.
        """
        if request.schema_type not in SCHEMA_TYPES:
            raise invalid_schema(f"Invalid schema type {request.schema_type}")
        if not request.text.strip():
            latest = self.state.get(subject, LATEST)
            if latest is None:
                raise invalid_schema("Empty schema")
            # The same schema with other metadata or rules.
            request = request._replace(
                schema_type=latest.content.schema_type,
                text=latest.content.text,
                references=latest.content.references,
            )
        given = self._text_of(
            subject, Content(request.schema_type, request.text, request.references)
        )
        normalize = normalize or self.state.config_in_scope(subject).get("normalize") is True
        try:
            found = await self._examiner.parse(given, normalize=normalize)
        except InvalidSchemaError as error:
            raise invalid_schema(
                f"Invalid schema of type {request.schema_type}, details: {error}"
            ) from None
        return Content(request.schema_type, found.text, found.references, request.rules)

    def _text_of(self, subject: str, content: Content) -> SchemaText:
        resolver = Resolver(self.state, context_of(subject))
        return SchemaText(content.schema_type, content.text, resolver.resolve(content.references))

    async def formatted(self, schema: StoredSchema, name: str) -> str:
        """Return the text of a stored schema in a format; as it is stored for an empty name."""
        if not name:
            return schema.content.text
        try:
            return await self._examiner.format(self._text_of(schema.subject, schema.content), name)
        except InvalidSchemaError as error:
            raise invalid_schema(str(error)) from None

    async def look_up(
        self, subject: str, request: SchemaRequest, *, normalize: bool, which: Deleted
    ) -> StoredSchema:
        """Return the version of a subject that has the schema of a request.

        Raises:
            RegistryError: There is no such subject or version.
        """
        content = await self.examine(subject, request, normalize=normalize)
        if not self.state.has_versions(subject, which):
            raise subject_not_found(subject)
        found = self._find(subject, request, content, which)
        if found is None:
            raise schema_not_found()
        return found

    def _find(
        self,
        subject: str,
        request: SchemaRequest,
        content: Content,
        which: Deleted = UNDELETED,
    ) -> StoredSchema | None:
        """Return the version with a content, or with what a registration would make of it."""
        found = self.state.find(subject, content, which)
        if found is None:
            rules = rules_of(self._merged(subject, request))
            found = self.state.find(subject, content._replace(rules=rules), which)
        return found

    def _merged(self, subject: str, request: SchemaRequest) -> Mapping[str, Any]:
        """Return metadata and rule set of a version with the schema of a request."""
        if self.state.mode_in_scope(subject) == IMPORT:
            return request.more
        latest = self.state.get(subject, LATEST)
        config = self.state.config_in_scope(subject)
        return merged(config, request.more, {} if latest is None else latest.more)

    def _compared(self, subject: str, request: SchemaRequest) -> list[StoredSchema]:
        """Return the versions that a new one is compared with: those of its group."""
        versions = self.state.versions(subject)
        group = self.state.config_in_scope(subject).get(GROUP)
        if not group:
            return versions
        wanted = property_of(self._merged(subject, request), group)
        return [each for each in versions if property_of(each.more, group) == wanted]

    async def find_registered(
        self, subject: str, request: SchemaRequest, *, normalize: bool
    ) -> StoredSchema | None:
        """Return the version that makes a registration unnecessary; None if there is none."""
        if request.version is not None or not self.state.has_versions(subject):
            return None
        content = await self.examine(subject, request, normalize=normalize)
        found = self._find(subject, request, content)
        return found if found is not None and request.id in (None, found.id) else None

    async def register(
        self, subject: str, request: SchemaRequest, *, normalize: bool
    ) -> StoredSchema:
        """Register a schema, unless the subject has it already; return its version.

        Raises:
            RegistryError: The schema is invalid or incompatible, the mode of the subject forbids
                it, or the topic was not written.
        """
        async with self._changing(subject):
            self._check_register_mode(subject, request)
            content = await self.examine(subject, request, normalize=normalize)
            found = self._find(subject, request, content)
            if found and request.version is None and request.id in (None, found.id):
                return found
            is_import = self.state.mode_in_scope(subject) == IMPORT
            if not is_import:
                level = self.state.level(subject)
                earlier = self._compared(subject, request)
                problems = await self._problems(level, subject, content, earlier)
                if problems:
                    raise incompatible(subject, problems, level)
            async with self._writing:
                # Another subject may have changed during the check.
                self._text_of(subject, content)
                self._check_register_mode(subject, request)
                request = request._replace(more=self._merged(subject, request))
                content = content._replace(rules=request.rules)
                return await self._write_version(subject, request, content)

    async def _write_version(
        self, subject: str, request: SchemaRequest, content: Content
    ) -> StoredSchema:
        state = self.state
        context = context_of(subject)
        version = self._version_for(subject, request)
        schema_id = self._id_for(context, request, content)
        records: list[Record] = []
        if context != DEFAULT_CONTEXT and context not in state.contexts:
            records.append(ContextRecord(context))
        # A deleted version with the same id gives way to the new one.
        records += [
            SchemaRecord(subject, each.version, None)
            for each in state.versions(subject, Deleted(only=True))
            if each.id == schema_id and each.version < version
        ]
        if state.get(subject, version, ALL) is not None:
            # An import replaces the version, and perhaps the only record of its id.
            records.append(NoopRecord(state.last_ids))
        new = StoredSchema(
            subject, version, schema_id, content, more=with_version(request.more, version)
        )
        records.append(SchemaRecord(subject, version, new))
        await self._store.write(records)
        return new

    def _version_for(self, subject: str, request: SchemaRequest) -> int:
        following = self.state.next_version(subject)
        if request.version is None:
            return following
        if request.version != following and self.state.mode_in_scope(subject) != IMPORT:
            raise invalid_schema("Version is not one more than previous version")
        return request.version

    def _id_for(self, context: str, request: SchemaRequest, content: Content) -> int:
        known = self.state.id_of(context, content)
        if request.id is None:
            return known if known is not None else self.state.last_id(context) + 1
        if known is not None and known != request.id:
            raise id_does_not_match(request.id, known)
        there = self.state.content_of(context, request.id)
        if there is not None and there != content:
            raise not_permitted(f"Overwrite new schema with id {request.id} is not permitted.")
        return request.id

    def _check_register_mode(self, subject: str, request: SchemaRequest) -> None:
        self._check_writable(subject)
        mode = self.state.mode_in_scope(subject)
        if request.id is not None and mode != IMPORT:
            raise not_permitted(f"Subject {subject} is not in import mode")
        if request.id is None and mode != READWRITE:
            raise not_permitted(f"Subject {subject} is not in read-write mode")

    def _check_writable(self, subject: str | None) -> None:
        if self.state.mode_in_scope(subject) in (READONLY, READONLY_OVERRIDE):
            raise not_permitted(f"Subject {subject} is in read-only mode")

    async def _problems(
        self, level: str, subject: str, content: Content, earlier: Sequence[StoredSchema]
    ) -> list[str]:
        compared = compared_versions(level, earlier)
        if not compared:
            return []
        new = self._text_of(subject, content)
        try:
            for part in in_parts(compared, _PART_CHARACTERS):
                texts = [self._text_of(subject, each.content) for each in part]
                problems = await self._examiner.check(level, new, texts)
                if problems:
                    return problems
        except InvalidSchemaError as error:
            raise invalid_schema(f"Invalid schema: {error}") from None
        return []

    async def incompatibilities(
        self, subject: str, version: int | None, request: SchemaRequest, *, normalize: bool
    ) -> list[str]:
        """Return why a schema does not fit the versions of a subject; empty if it does.

        Args:
            version: The only version to compare with; None for those that the level says.

        Raises:
            RegistryError: The schema is invalid, or there is no such version.
        """
        earlier = self._compared(subject, request)
        if version is not None:
            found = self.state.get(subject, version)
            if found is None and version != LATEST:
                # Also if there is no such subject, as in Confluent's registry.
                raise version_not_found(version)
            earlier = [] if found is None else [found]
        content = await self.examine(subject, request, normalize=normalize)
        level = self.state.level(subject)
        problems = await self._problems(level, subject, content, earlier)
        return [*problems, level_note(level)] if problems else []

    # Deletions

    async def delete_version(self, subject: str, version: int, *, permanent: bool) -> int:
        """Delete a version; return its number.

        Raises:
            RegistryError: There is no such version, other schemas refer to it, it was not soft
                deleted before, or the mode forbids it.
        """
        async with self._changing(subject), self._writing:
            schema = self.state.get(subject, version, ALL if permanent else UNDELETED)
            if schema is None:
                raise self._missing_version(subject, version)
            self._check_writable(subject)
            self._check_unreferenced(schema)
            if permanent and not schema.deleted:
                raise version_not_soft_deleted(subject, schema.version)
            if permanent:
                records = self._removed([schema])
            else:
                records = [SchemaRecord(subject, schema.version, schema._replace(deleted=True))]
                if self.state.versions(subject) == [schema]:
                    records += self._settings_removed(subject)
            await self._store.write(records)
            return schema.version

    def _missing_version(self, subject: str, version: int) -> Exception:
        deleted = self.state.get(subject, version, ALL)
        if deleted is not None:
            return version_soft_deleted(subject, deleted.version)
        if not self.state.has_versions(subject, ALL):
            return subject_not_found(subject)
        return version_not_found(version)

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject; return their numbers.

        Raises:
            RegistryError: There is no such subject, other schemas refer to a version, it was not
                soft deleted before, or the mode forbids it.
        """
        async with self._changing(subject), self._writing:
            # A whole context, such as `:.staging:`, is not a subject.
            if not self.state.versions(subject, ALL):
                raise subject_not_found(subject)
            versions = self.state.versions(subject, ALL if permanent else UNDELETED)
            if not versions:
                raise subject_soft_deleted(subject)
            self._check_writable(subject)
            for schema in versions:
                self._check_unreferenced(schema)
                if permanent and not schema.deleted:
                    raise subject_not_soft_deleted(subject)
            records: list[Record]
            if permanent:
                records = self._removed(versions)
            else:
                records = [DeleteSubjectRecord(subject, versions[-1].version)]
                records += self._settings_removed(subject)
            await self._store.write(records)
            return [each.version for each in versions]

    def _removed(self, versions: Sequence[StoredSchema]) -> list[Record]:
        """Return the tombstones of versions, after a record that keeps the last ids."""
        tombstones = (SchemaRecord(each.subject, each.version, None) for each in versions)
        return [NoopRecord(self.state.last_ids), *tombstones]

    def _check_unreferenced(self, schema: StoredSchema) -> None:
        if self.state.referents(schema.subject, schema.version):
            raise reference_exists(schema.subject, schema.version)

    def _settings_removed(self, subject: str) -> list[Record]:
        """Return the tombstones of the settings of a subject that has no versions any more."""
        removed: list[Record] = []
        if self.state.mode(subject) is not None:
            removed.append(ModeRecord(subject, None))
        if self.state.config(subject) is not None:
            removed.append(ConfigRecord(subject, None))
        return removed

    # Configurations and modes

    async def set_config(self, subject: str | None, request: ConfigRequest) -> None:
        """Change the configuration of a subject, a context or, with None, of the registry.

        Raises:
            RegistryError: The level is unknown, or the mode forbids the change.
        """
        if request.level not in (None, *LEVELS) or request == (None, None, {}):
            raise invalid_level()
        async with self._changing(subject), self._writing:
            self._check_writable(subject)
            changed: dict[str, Any] = dict(self.state.config(subject) or {})
            if request.level is not None:
                changed[LEVEL] = request.level
            if request.normalize is not None:
                changed["normalize"] = request.normalize
            changed.update(request.more)
            await self._store.write([ConfigRecord(subject, changed)])

    async def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Remove the configuration of a subject; return it.

        Raises:
            RegistryError: The subject has none, or the mode forbids the change.
        """
        async with self._changing(subject), self._writing:
            found = self.state.config(subject)
            if found is None:
                assert subject is not None
                # A read of a missing level has another code, as in Confluent's registry.
                raise subject_not_found(subject)
            self._check_writable(subject)
            await self._store.write([ConfigRecord(subject, None)])
            return dict(found)

    async def set_mode(self, subject: str | None, mode: str, *, force: bool) -> None:
        """Change the mode of a subject, a context or, with None, of the registry.

        Raises:
            RegistryError: The mode is unknown, or there are versions and the new mode is IMPORT.
        """
        if mode not in MODES:
            raise invalid_mode()
        async with self._changing(subject), self._writing:
            records: list[Record] = []
            if mode == IMPORT and self.state.mode_in_scope(subject) != IMPORT and not force:
                if self.state.has_versions(subject):
                    raise not_permitted("Cannot import since found existing subjects")
                deleted = self.state.all_versions(subject)
                for each in deleted:
                    self._check_unreferenced(each)
                records = self._removed(deleted)
                records.append(ClearSubjectRecord(subject))
            await self._store.write([*records, ModeRecord(subject, mode)])

    async def delete_mode(self, subject: str) -> str:
        """Remove the mode of a subject; return it.

        Raises:
            RegistryError: The subject has none.
        """
        async with self._changing(subject), self._writing:
            found = self.state.mode(subject)
            if found is None:
                raise subject_not_found(subject)
            await self._store.write([ModeRecord(subject, None)])
            return found

    # Contexts

    def containing(self, subject: str, schema_id: int) -> str | None:
        """Return the context in which a request finds an id; None if there is none.

        Args:
            subject: The subject of the request, which may have no versions; empty without one.
            schema_id: The id.
        """
        context, name = split(subject)
        if self.state.content_of(context, schema_id) is not None:
            return context
        if context != DEFAULT_CONTEXT or not name:
            return None
        # As Confluent's registry: a subject without a context is searched for in all of them.
        for each in self.state.contexts:
            uses = self.state.uses_of(each, schema_id, ALL)
            if any(use.subject == Subject(each, name).qualified for use in uses):
                return each
        return None


def in_parts(versions: Sequence[StoredSchema], characters: int) -> Iterator[Sequence[StoredSchema]]:
    """Yield all versions in parts, the newest part first.

    Args:
        versions: The versions, the oldest first.
        characters: A part ends with the version that reaches this length of the texts.
    """
    end, size = len(versions), 0
    for index in range(len(versions) - 1, -1, -1):
        size += len(versions[index].content.text)
        if size >= characters:
            yield versions[index:end]
            end, size = index, 0
    if end:
        yield versions[:end]
