"""Schemas of a registry: the list of subjects, one subject, and drafts of new versions."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.cli.schemas.commands import existing_versions
from barnabas.cli.schemas.incompatibilities import Incompatibilities
from barnabas.cli.schemas.options import parse_reference
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.differences import compare, schema_lines
from barnabas.console.forms import FormError, form_fields, query_fields
from barnabas.console.navigation import Entry
from barnabas.console.tables import Column, tabulate
from barnabas.registry.config import LEVELS, MODES
from barnabas.registry.subjects import split
from barnabas.serializers.errors import RegistryError
from barnabas.serializers.registry import SubjectVersion
from barnabas.serializers.schema import RegisteredSchema, Schema, SchemaType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.console import Console
    from barnabas.console.forms import Fields
    from barnabas.serializers.registry import SchemaRegistry

# Subjects of a registry that needs a request for each.
_SUBJECTS_MAX = 500
# Versions in the list of a subject, and schemas in the list of those that refer to it.
_VERSIONS_MAX = 50
_REFERRING_MAX = 50
# How long a list that is sorted by levels reads them (ms), and requests for levels at once.
_LEVELS_MS = 2_000
_LEVELS_AT_ONCE = 3
_SUFFIXES = ("-value", "-key")
_TOPICS_MS = 3_000
# Status for a schema that is malformed, and for an unknown subject.
_INVALID, NOT_FOUND = 422, 404


class SubjectRow(NamedTuple):
    """A subject in the list."""

    name: str
    latest: SubjectVersion
    is_deleted: bool
    # Its compatibility level, or the default one; None if it was not read.
    level: str | None = None
    has_own_level: bool = False

    @property
    def context(self) -> str:
        """The context, such as "." for the default one."""
        return split(self.name).context


_COLUMNS: tuple[Column[SubjectRow], ...] = (
    Column("name", "Subject", lambda row: row.name),
    Column("type", "Type", lambda row: str(row.latest.kind), "text"),
    Column("version", "Latest version", lambda row: row.latest.version, "number"),
    Column("id", "Id", lambda row: row.latest.schema_id, "number"),
    Column("compatibility", "Compatibility", lambda row: row.level),
    Column("context", "Context", lambda row: row.context, "text", is_shown=False),
)


def registry_of(console: Console) -> SchemaRegistry:
    """Return the registry of a console.

    Raises:
        HTTPException: The console has none (404).
    """
    if console.settings.registry is None:
        raise HTTPException(404, "the console has no schema registry: --registry adds one")
    return console.settings.registry


async def show_subjects(request: Request) -> Response:
    """Show all subjects."""
    console, query = console_of(request), query_fields(request)
    registry = console.settings.registry
    if registry is None:
        return console.page(request, "schemas.html", table=None)
    deleted = query.has("deleted")
    rows = await console.call_service(lambda: _load_subjects(registry, deleted=deleted))
    if rows is None:
        rows = await _load_each(console, registry)
    default_level = await console.call_service(registry.compatibility)
    by_level = query.stripped("sort").removeprefix("-") == "compatibility"
    if by_level:
        # A registry has a request for the level of each subject.
        rows = await _with_levels(console, registry, rows, default_level, _LEVELS_MS)
    table = tabulate(request, _COLUMNS, rows, text=_text, sort="name")
    if not by_level:
        shown = await _with_levels(console, registry, table.rows, default_level)
        table = replace(table, rows=shown)
    return console.page(
        request,
        "schemas.html",
        table=table,
        unsorted=sum(row.level is None for row in rows) if by_level and default_level else 0,
        url=registry.url,
        deleted=deleted,
        default_level=default_level,
        default_mode=await console.call_service(registry.mode),
        all_levels=LEVELS,
        all_modes=MODES,
    )


async def _with_levels(
    console: Console,
    registry: SchemaRegistry,
    rows: Sequence[SubjectRow],
    default_level: str | None,
    limit_ms: float = math.inf,
) -> list[SubjectRow]:
    """Return subjects with their compatibility levels.

    Args:
        console: The console.
        registry: The registry.
        rows: The subjects.
        default_level: The level of subjects that have none of their own.
        limit_ms: How long levels are read; those of the other subjects stay unknown.
    """
    ends_ms = console.clock.monotonic_ms() + limit_ms
    levels: dict[str, str | None] = {}

    def load(names: Sequence[str]) -> None:
        for name in names:
            if console.clock.monotonic_ms() > ends_ms:
                return
            levels[name] = registry.compatibility(name)

    names = [row.name for row in rows]
    parts = [names[first::_LEVELS_AT_ONCE] for first in range(_LEVELS_AT_ONCE)]
    await asyncio.gather(*(console.call_service(partial(load, part)) for part in parts if part))
    return [
        row._replace(level=levels[row.name] or default_level, has_own_level=bool(levels[row.name]))
        if row.name in levels
        else row
        for row in rows
    ]


def _text(row: SubjectRow) -> str:
    return f"{row.name} {row.latest.kind} {row.latest.schema_id}"


def _load_subjects(registry: SchemaRegistry, *, deleted: bool) -> list[SubjectRow] | None:
    """Return all subjects; None if the registry has no list of their newest versions."""
    latest = registry.latest_versions(deleted=deleted)
    if latest is None:
        return None
    existing = set(registry.subjects()) if deleted else {each.subject for each in latest}
    return [SubjectRow(each.subject, each, each.subject not in existing) for each in latest]


async def _load_each(console: Console, registry: SchemaRegistry) -> list[SubjectRow]:
    """Return the subjects of a registry, by requests for each of them."""

    def load(subject: str) -> SubjectRow:
        found = registry.version(subject, max(registry.versions(subject)))
        latest = SubjectVersion(subject, found.version, found.schema_id, found.schema.kind)
        return SubjectRow(subject, latest, is_deleted=False)

    names = sorted(await console.call_service(registry.subjects))[:_SUBJECTS_MAX]
    return await asyncio.gather(*(console.call_service(partial(load, name)) for name in names))


class VersionRow(NamedTuple):
    """A version of a subject."""

    schema: RegisteredSchema
    is_deleted: bool


_VERSION_COLUMNS: tuple[Column[VersionRow], ...] = (
    Column("version", "Version", lambda row: row.schema.version, numeric=True),
    Column("id", "Id", lambda row: row.schema.schema_id, numeric=True),
    Column("type", "Type", lambda row: str(row.schema.schema.kind), "text"),
    Column("references", "References", lambda row: len(row.schema.schema.references), "number"),
    Column("compare", "Compare"),
)


async def show_subject(request: Request) -> Response:
    """Show a subject and one of its versions."""
    console, query = console_of(request), query_fields(request)
    registry, subject = registry_of(console), query.stripped("subject")
    version, against = query.number("version", 0), query.number("against", 0)
    if not subject:
        schema_id = query.number("id")
        subject, version = await console.call_service(lambda: _place(registry, schema_id))
    found = await console.call_service(lambda: _load_subject(registry, subject, version, against))
    topic = await topic_of(console, subject)
    return console.page(
        request,
        "schema.html",
        subject=subject,
        topic=topic,
        context=split(subject).context,
        all_levels=LEVELS,
        all_modes=MODES,
        versions=tabulate(
            request,
            _VERSION_COLUMNS,
            found.pop("versions"),
            text=lambda row: f"{row.schema.version} {row.schema.schema_id}",
            sort="-version",
            prefix="versions.",
        ),
        **found,
    )


def _place(registry: SchemaRegistry, schema_id: int) -> tuple[str, int]:
    """Return a subject and its version that have the schema with an id."""
    found = registry.places(schema_id)
    if not found:
        raise FormError(f"the registry has no subject with the schema {schema_id}")
    return found[0]


def _load_subject(
    registry: SchemaRegistry, subject: str, version: int, against: int
) -> dict[str, Any]:
    numbers = sorted(registry.versions(subject, deleted=True), reverse=True)
    existing = set(existing_versions(registry, subject))
    shown = registry.version(subject, version or numbers[0], deleted=True)
    lines, difference, other = schema_lines(shown.schema), None, None
    if against:
        other = registry.version(subject, against, deleted=True)
        difference = compare(schema_lines(other.schema), lines)
    return {
        "versions": [
            VersionRow(registry.version(subject, each, deleted=True), each not in existing)
            for each in numbers[:_VERSIONS_MAX]
        ],
        "left_out": max(0, len(numbers) - _VERSIONS_MAX),
        "shown": shown,
        "is_deleted": shown.version not in existing,
        "lines": lines,
        "other": other,
        "difference": difference,
        "referring": referring(registry, subject, shown.version),
        "places": [
            place for place in _places(registry, shown) if place != (subject, shown.version)
        ],
        "level": registry.compatibility(subject),
        "default_level": registry.compatibility(),
        "mode": registry.mode(subject),
        "default_mode": registry.mode(),
    }


def _places(registry: SchemaRegistry, shown: RegisteredSchema) -> list[tuple[str, int]]:
    """Return all subjects and versions that have a schema; empty for one of another context."""
    try:
        return registry.places(shown.schema_id)[:_REFERRING_MAX]
    except RegistryError as error:
        if error.status != NOT_FOUND:
            raise
        return []


def referring(registry: SchemaRegistry, subject: str, version: int) -> list[tuple[str, int]]:
    """Return the subjects and versions that refer to a version."""
    ids = registry.referring(subject, version)[:_REFERRING_MAX]
    return [place for each in ids for place in registry.places(each)][:_REFERRING_MAX]


async def topic_of(console: Console, subject: str) -> str:
    """Return the topic whose keys or values have the schemas of a subject; "" if there is none."""
    return await console.cluster.call(
        lambda client: find_topic(client, subject), needs_brokers=False
    )


def find_topic(client: Client, subject: str) -> str:
    """Return the topic whose name is the subject without -key or -value; "" if there is none."""
    name = split(subject).name
    topics = [name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)]
    client.limit_total(_TOPICS_MS)
    try:
        known = client.topics(internal=True) if topics else []
    except (ClientError, TimeoutError):
        # The registry's page is of use although the cluster does not answer.
        return ""
    return next((each for each in topics if each in known), "")


async def show_draft(request: Request) -> Response:
    """Show the form of a new version, with the text of the newest one."""
    console, query = console_of(request), query_fields(request)
    registry, subject = registry_of(console), query.stripped("subject")

    def load() -> RegisteredSchema | None:
        numbers = existing_versions(registry, subject) if subject else []
        return registry.version(subject, max(numbers)) if numbers else None

    found = await console.call_service(load)
    schema = Schema("") if found is None else found.schema
    text = "\n".join(schema_lines(schema))
    references = "\n".join(f"{r.name}:{r.subject}:{r.version}" for r in schema.references)
    return console.page(
        request,
        "schema_draft.html",
        **draft_values(subject, text, str(schema.kind), references),
    )


def draft_values(
    subject: str, text: str, kind: str, references: str, messages: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the values of the template of a draft.

    Args:
        subject: The subject; "" if it is not chosen yet.
        text: The text of the schema.
        kind: The type of the schema.
        references: One NAME:SUBJECT:VERSION on a line.
        messages: What makes the draft incompatible; None before a check.
    """
    found = None if messages is None else Incompatibilities.of(messages)
    return {
        "subject": subject,
        "text": text,
        "kind": kind,
        "kinds": [str(each) for each in SchemaType],
        "references": references,
        "problems": None if found is None else found.problems,
        "level": "" if found is None else found.level,
    }


def draft_of(form: Fields) -> Schema:
    """Return the schema in a form.

    Raises:
        FormError: A field is missing or malformed.
    """
    kind = form.one_of("type", SchemaType.__members__)
    lines = (line.strip() for line in form.text("references").splitlines())
    references = tuple(parse_reference(line) for line in lines if line)
    return Schema(form.required("schema"), SchemaType[kind], references)


def draft_problems(registry: SchemaRegistry, subject: str, schema: Schema) -> list[str]:
    """Return why a draft cannot be registered; empty if it can."""
    try:
        return registry.incompatibilities(subject, schema)
    except RegistryError as error:
        if error.status == _INVALID:
            return [str(error)]
        if error.status == NOT_FOUND:
            # Apicurio Registry checks no schema of a subject without versions.
            return []
        raise


def checked_values(form: Fields, messages: Sequence[str]) -> dict[str, Any]:
    """Return the values of the template of a draft after a check."""
    fields = (form.text("schema"), form.text("type"), form.text("references"))
    return draft_values(form.stripped("subject"), *fields, messages)


async def check_draft(request: Request) -> Response:
    """Check the compatibility of a draft; nothing changes."""
    console, form = console_of(request), await form_fields(request)
    registry, subject, schema = registry_of(console), form.required("subject"), draft_of(form)
    messages = await console.call_service(lambda: draft_problems(registry, subject, schema))
    return console.page(request, "schema_draft.html", **checked_values(form, messages))


NAVIGATION = [Entry("Schemas", "Subjects", "/schemas", ("/schema", "/schemas/draft"))]
ROUTES = [
    Route("/schemas", show_subjects),
    Route("/schema", show_subject),
    Route("/schemas/draft", show_draft),
    Route("/schemas/check", check_draft, methods=["POST"]),
]
