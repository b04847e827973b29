"""Changes of a registry: versions, compatibility levels and modes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.schemas.commands import existing_versions
from barnabas.console.access.users import Role
from barnabas.console.differences import compare, schema_lines
from barnabas.console.pages.change import Done, Preview, Shown, change
from barnabas.console.pages.schemas import (
    NOT_FOUND,
    checked_values,
    draft_of,
    draft_problems,
    find_topic,
    referring,
    registry_of,
)
from barnabas.console.rendering import link
from barnabas.console.tables import columns_of
from barnabas.registry.config import IMPORT, LEVELS, MODES
from barnabas.serializers.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.facade import Client
    from barnabas.console.console import Console
    from barnabas.console.forms import Fields
    from barnabas.serializers.registry import SchemaRegistry
    from barnabas.serializers.schema import Schema

_ROWS_MAX = 200


class Schemas(NamedTuple):
    """What the changes use: the registry, and the cluster whose topics have its schemas."""

    registry: SchemaRegistry
    client: Client


def _schemas(console: Console, client: Client) -> Schemas:
    return Schemas(registry_of(console), client)


def _page(subject: str) -> str:
    return link("/schema", subject=subject) if subject else "/schemas"


def register(schemas: Schemas, form: Fields) -> Done:
    """Register a draft."""
    subject, schema = form.required("subject"), draft_of(form)
    schemas.registry.register(subject, schema)
    found = schemas.registry.find(subject, schema)
    return Done(
        f"registered {subject} version {found.version}, id {found.schema_id}", _page(subject)
    )


def preview_register(schemas: Schemas, form: Fields) -> Preview | Shown:
    """Return the changed lines; the form again if the draft is not compatible."""
    subject, schema, registry = form.required("subject"), draft_of(form), schemas.registry
    messages = draft_problems(registry, subject, schema)
    if messages:
        return Shown("schema_draft.html", checked_values(form, messages))
    numbers = existing_versions(registry, subject)
    rows = _changed_lines(registry, subject, numbers, schema)
    what = f"a new version of {subject}" if numbers else f"the first version of {subject}"
    return Preview(f"Register {what}?", "Register it", columns_of("Change", "Line"), rows)


def _changed_lines(
    registry: SchemaRegistry, subject: str, numbers: Sequence[int], schema: Schema
) -> list[tuple[object, ...]]:
    lines = schema_lines(schema)
    before = schema_lines(registry.version(subject, max(numbers)).schema) if numbers else []
    found = compare(before, lines)
    if found is None:
        return [("", f"{len(lines)} lines")]
    return [(each.mark, each.text) for each in found if each.mark in ("+", "-")]


def set_compatibility(schemas: Schemas, form: Fields) -> Done:
    """Set or remove the compatibility level of a subject, or set that of all others."""
    subject, level = form.stripped("subject"), form.stripped("level")
    if level:
        form.one_of("level", LEVELS)
    schemas.registry.set_compatibility(level or None, subject)
    words = f"is {level}" if level else "is the default of the registry"
    return Done(f"the compatibility of {subject or 'all other subjects'} {words}", _page(subject))


def set_mode(schemas: Schemas, form: Fields) -> Done:
    """Set or remove the mode of a subject, or set that of all others."""
    subject, mode = form.stripped("subject"), form.stripped("mode")
    if mode:
        form.one_of("mode", MODES)
    schemas.registry.set_mode(mode or None, subject, force=mode == IMPORT and form.has("force"))
    words = f"is {mode}" if mode else "is the default of the registry"
    return Done(f"the mode of {subject or 'all other subjects'} {words}", _page(subject))


def delete(schemas: Schemas, form: Fields) -> Done:
    """Delete a subject or one of its versions, softly or for ever."""
    subject, permanent = form.required("subject"), form.has("permanent")
    number = form.number("version", 0) or None
    deleted = schemas.registry.delete(subject, number, permanent=permanent)
    manner = "deleted for ever" if permanent else "deleted"
    is_gone = permanent and not schemas.registry.subjects(subject, deleted=True)
    versions = ", ".join(map(str, deleted))
    return Done(
        f"{manner}: {subject} version {versions}", "/schemas" if is_gone else _page(subject)
    )


def preview_delete(schemas: Schemas, form: Fields) -> Preview:
    """Return the versions, the topic with their records, and the schemas that refer to them."""
    subject, permanent = form.required("subject"), form.has("permanent")
    form.confirm(subject)
    registry, number = schemas.registry, form.number("version", 0)
    known = registry.versions(subject, deleted=permanent)
    numbers = [number] if number else sorted(known)
    topic = find_topic(schemas.client, subject)
    rows: list[tuple[object, ...]] = [
        (each, *_identity(registry, subject, each), topic or None) for each in numbers[:_ROWS_MAX]
    ]
    columns = columns_of(
        ("Version", "number"), ("Id", "id"), "Schemas that refer to it", "Topic of the cluster"
    )
    if permanent:
        text = "Records that were written with these schemas can never be read again."
        question = f"Delete {_named(subject, number)} for ever?"
    else:
        text = "Records stay readable. A registration of the same schema brings it back."
        question = f"Delete {_named(subject, number)}?"
    return Preview(question, "Delete", columns, rows, text)


def _identity(
    registry: SchemaRegistry, subject: str, version: int
) -> tuple[int | None, str | None]:
    """Return the id of a version, and the schemas that refer to it."""
    try:
        found = registry.version(subject, version, deleted=True)
        users = [f"{name} {number}" for name, number in referring(registry, subject, version)]
    except RegistryError as error:
        if error.status != NOT_FOUND:
            raise
        # Apicurio Registry names a softly deleted version, but does not return it.
        return None, None
    return found.schema_id, ", ".join(users) or None


def _named(subject: str, number: int) -> str:
    return f"version {number} of {subject}" if number else f"all versions of {subject}"


_change = partial(change, of=_schemas, needs_brokers=False)
ROUTES = [
    _change("/schemas/register", register, preview_register),
    _change("/schemas/compatibility", set_compatibility),
    _change("/schemas/mode", set_mode),
    _change("/schemas/delete", delete, preview_delete, role=Role.ADMIN),
]
