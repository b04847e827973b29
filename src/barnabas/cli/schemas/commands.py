"""`barnabas schemas`: list, show, register, check and delete the schemas of a registry."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.output import EXIT_FAILED, echo_json, problem
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import bad, echo_line, echo_table, good, header_option
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.cli.schemas.incompatibilities import Incompatibilities
from barnabas.cli.schemas.options import (
    GivenSchema,
    RegistryCommand,
    registry_options,
    schema_options,
    version_option,
)
from barnabas.cli.schemas.settings import compatibility, mode
from barnabas.serializers.errors import CONFLICT, RegistryError
from barnabas.serializers.registry import SUBJECT_NOT_FOUND
from barnabas.serializers.schema import SchemaType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.serializers.registry import SchemaRegistry
    from barnabas.serializers.schema import RegisteredSchema, Schema

EXAMPLES = """\b
Examples:
  barnabas schemas list
  barnabas schemas get flights-value
  barnabas schemas check flights-value flight.avsc
  barnabas schemas register flights-value flight.avsc
  barnabas schemas compatibility flights-value --set FULL
  barnabas schemas delete flights-value

\b
The subject of a topic's values is TOPIC-value, that of its keys TOPIC-key. The commands work with
every registry that has the interface of Confluent's.
"""
_NOT_FOUND = 404


@click.group(epilog=EXAMPLES)
def schemas() -> None:
    """List, register, check and delete the schemas of a registry."""


schemas.add_command(compatibility)
schemas.add_command(mode)


@schemas.command(
    "list",
    epilog="\b\nExamples:\n  barnabas schemas list\n  barnabas schemas list --prefix flights-\n"
    "  barnabas schemas list flights-value --versions --json\n",
)
@click.argument("subjects", nargs=-1, metavar="[SUBJECT...]")
@click.option("--prefix", default="", metavar="PREFIX", help="Only subjects with this prefix.")
@click.option("--versions", "is_long", is_flag=True, help="Show all versions, not the latest only.")
@click.option("--deleted", is_flag=True, help="Show softly deleted subjects and versions too.")
@header_option
@registry_options
def list_schemas(
    subjects: Sequence[str], prefix: str, is_long: bool, deleted: bool, target: RegistryCommand
) -> None:
    """List subjects with the version, the id and the type of their latest schema."""
    found: list[tuple[RegisteredSchema, bool]] = []
    with target.calls() as registry:
        for subject in subjects or sorted(registry.subjects(prefix, deleted=deleted)):
            with target.calls_for(subject):
                numbers = sorted(registry.versions(subject, deleted=deleted))
                existing = existing_versions(registry, subject) if deleted else numbers
                found += [
                    (registry.version(subject, number, deleted=deleted), number not in existing)
                    for number in (numbers if is_long else numbers[-1:])
                ]
    if target.as_json:
        echo_json([{**_as_json(each), "is_deleted": is_deleted} for each, is_deleted in found])
        return
    rows = [
        (each.subject, each.version, each.schema_id, each.schema.kind, "deleted" * is_deleted)
        for each, is_deleted in found
    ]
    if deleted:
        echo_table(("subject", "version", "id", "type", "state"), rows)
    else:
        echo_table(("subject", "version", "id", "type"), [row[:-1] for row in rows])


def existing_versions(registry: SchemaRegistry, subject: str) -> list[int]:
    """Return the versions of a subject that are not deleted; empty if there is no subject."""
    try:
        return registry.versions(subject)
    except RegistryError as error:
        if error.code != SUBJECT_NOT_FOUND:
            raise
        return []


@schemas.command(
    "get",
    epilog="\b\nExamples:\n  barnabas schemas get flights-value\n"
    "  barnabas schemas get flights-value --version 2 --json\n  barnabas schemas get --id 7\n",
)
@click.argument("subject", required=False)
@version_option("The version.  [default: latest]")
@click.option("--id", "schema_id", type=click.IntRange(0), help="The id instead of a subject.")
@click.option("--deleted", is_flag=True, help="Also a version that was deleted softly.")
@registry_options
def get_schema(
    subject: str | None,
    version: int | str | None,
    schema_id: int | None,
    deleted: bool,
    target: RegistryCommand,
) -> None:
    """Print a schema: the latest one of a subject, another version, or the one with an id.

    Standard output has the text as it is registered, indented on a terminal. Standard error has its
    version, id and references.
    """
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give either SUBJECT or --id")
    if schema_id is not None:
        if version is not None:
            raise click.UsageError("--version is for a subject, not for --id")
        _show_id(schema_id, target)
        return
    assert subject is not None
    with target.calls_for(subject) as registry:
        if version is None or version == "latest":
            version = max(registry.versions(subject, deleted=deleted))
        found = registry.version(subject, int(version), deleted=deleted)
        used_by = registry.referring(subject, found.version)
    if target.as_json:
        echo_json({**_as_json(found), "referenced_by": used_by, "schema": found.schema.text})
        return
    words = f"version {found.version}, id {found.schema_id}, {found.schema.kind}"
    if used_by:
        words += f", used by {', '.join(f'id {each}' for each in used_by)}"
    _echo_schema(f"{subject} {words}", found.schema)


def _show_id(schema_id: int, target: RegistryCommand) -> None:
    """Print the schema with an id, and where it is registered."""
    with target.calls() as registry:
        schema = registry.schema(schema_id)
        places = registry.places(schema_id)
    if target.as_json:
        listed = [{"subject": subject, "version": version} for subject, version in places]
        echo_json({**_schema_json(schema_id, schema), "versions": listed, "schema": schema.text})
        return
    where = "; ".join(f"{subject} version {version}" for subject, version in places)
    _echo_schema(f"id {schema_id}, {schema.kind}, {where or 'in no subject'}", schema)


def _echo_schema(title: str, schema: Schema) -> None:
    echo(title, err=True)
    for each in schema.references:
        echo(f"  uses {each.name}: {each.subject} version {each.version}", err=True)
    text = schema.text
    if not sys.stdout.isatty():
        # A file gets exactly what is registered, without escapes.
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return
    if schema.kind is not SchemaType.PROTOBUF:
        # A registry may have accepted text that is no JSON; the user sees it as it is.
        with contextlib.suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    echo(text)


@schemas.command(
    "register",
    epilog="\b\nExamples:\n  barnabas schemas register flights-value flight.avsc\n"
    "  barnabas schemas register flights-value flight.proto --reference a.proto:airports-value:1\n"
    "  barnabas schemas register flights-value - --type json < flight.json\n",
)
@click.argument("subject")
@schema_options
@registry_options
def register_schema(subject: str, given: GivenSchema, target: RegistryCommand) -> None:
    """Register the schema in FILE under SUBJECT, and print its version and id.

    A schema that the subject has already is not registered again.
    """
    schema = given.read()
    with target.calls() as registry:
        found = _lookup(registry, subject, schema, given)
        is_new = found is None
        if found is None:
            try:
                registry.register(subject, schema, normalize=given.normalize)
            except RegistryError as error:
                if error.status != CONFLICT:
                    raise
                _fail_incompatible(registry, subject, schema, error)
            found = registry.find(subject, schema, normalize=given.normalize)
    if target.as_json:
        echo_json({**_as_json(found), "is_new": is_new})
        return
    done = "registered" if is_new else "registered before:"
    echo(f"{done} {subject} version {found.version}, id {found.schema_id}")


def _lookup(
    registry: SchemaRegistry, subject: str, schema: Schema, given: GivenSchema
) -> RegisteredSchema | None:
    """Return the version that has this schema; None if there is none."""
    try:
        return registry.find(subject, schema, normalize=given.normalize)
    except RegistryError as error:
        if error.status != _NOT_FOUND or not error.code:
            raise
        return None


def _fail_incompatible(
    registry: SchemaRegistry, subject: str, schema: Schema, error: RegistryError
) -> None:
    """Print what is incompatible, and end the command with status 1."""
    messages = registry.incompatibilities(subject, schema)
    if not messages:
        raise error
    found = Incompatibilities.of(messages)
    problem(f"the schema is not compatible with earlier versions of {subject}{found.level}:")
    for each in found.problems:
        echo(f"  {each}", err=True)
    sys.exit(EXIT_FAILED)


@schemas.command(
    "check",
    epilog="\b\nExamples:\n  barnabas schemas check flights-value flight.avsc\n"
    "  barnabas schemas check flights-value flight.avsc --version 1 --json\n",
)
@click.argument("subject")
@schema_options
@version_option("Compare with this version.  [default: those that a registration checks]")
@registry_options
def check_schema(
    subject: str, given: GivenSchema, version: int | str | None, target: RegistryCommand
) -> None:
    """Check whether the schema in FILE could be registered under SUBJECT.

    Prints each incompatibility, and exits with status 1 if there are any.
    """
    schema = given.read()
    with target.calls_for(subject) as registry:
        messages = registry.incompatibilities(subject, schema, version, normalize=given.normalize)
        is_first = not messages and not existing_versions(registry, subject)
    if target.as_json:
        echo_json({"subject": subject, "is_compatible": not messages, "messages": messages})
    elif messages:
        found = Incompatibilities.of(messages)
        echo_line(bad(f"{subject}: not compatible{found.level}"))
        for each in found.problems:
            echo(f"  {each}")
    else:
        reason = ", since the subject has no versions" if is_first else ""
        echo_line(good(f"{subject}: compatible"), reason)
    if messages:
        sys.exit(EXIT_FAILED)


@schemas.command(
    "delete",
    epilog="\b\nExamples:\n  barnabas schemas delete flights-value --version 2\n"
    "  barnabas schemas delete flights-value --permanent --yes\n",
)
@click.argument("subject")
@version_option("Delete this version only.")
@click.option("--permanent", is_flag=True, help="Delete for ever what is deleted softly, too.")
@yes_option
@registry_options
def delete_schema(
    subject: str, version: int | str | None, permanent: bool, target: RegistryCommand
) -> None:
    """Delete a subject or one of its versions.

    Records with a softly deleted schema can still be read, and its registration brings it back.
    After a permanent deletion, no record can be read that was written with the schema.
    """
    what = subject if version is None else f"version {version} of {subject}"
    if permanent:
        confirm(f"Delete {what} for ever? Records that were written with it become unreadable.")
    else:
        confirm(f"Delete {what}? Records that were written with it stay readable.")
    with target.calls_for(subject) as registry:
        if version == "latest":
            version = max(registry.versions(subject, deleted=permanent))
        number = None if version is None else int(version)
        deleted = registry.delete(subject, number, permanent=permanent)
    if target.as_json:
        echo_json({"subject": subject, "versions": deleted, "permanent": permanent})
        return
    manner = "deleted for ever" if permanent else "deleted"
    echo(f"{manner}: {subject} version {', '.join(map(str, deleted))}")


def _as_json(found: RegisteredSchema) -> dict[str, Any]:
    place = {"subject": found.subject, "version": found.version}
    return {**place, **_schema_json(found.schema_id, found.schema)}


def _schema_json(schema_id: int, schema: Schema) -> dict[str, Any]:
    return {
        "id": schema_id,
        "type": schema.kind,
        "references": [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ],
    }
