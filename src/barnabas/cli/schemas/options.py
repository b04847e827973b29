"""What the commands of `barnabas schemas` share: options, schema files, errors of the registry."""

from __future__ import annotations

import difflib
import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from barnabas.cli.common.output import (
    config_file_option,
    fail,
    json_option,
    option_group,
    option_record,
    profile_option,
    property_option,
)
from barnabas.cli.common.profiles import select
from barnabas.cli.common.registries import (
    DEFAULT_REGISTRY,
    file_text,
    need_registry,
    registry_option,
)
from barnabas.serializers.errors import RegistryError, SchemaError
from barnabas.serializers.registry import SUBJECT_NOT_FOUND, SchemaRegistry
from barnabas.serializers.schema import Schema, SchemaReference, SchemaType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

_TYPES = {"avro": SchemaType.AVRO, "json": SchemaType.JSON, "protobuf": SchemaType.PROTOBUF}
_TYPE_OF_ENDING = {
    "avsc": SchemaType.AVRO,
    "json": SchemaType.JSON,
    "proto": SchemaType.PROTOBUF,
}
# Similar names in an error message.
_SIMILAR_MAX = 3


class RegistryCommand(NamedTuple):
    """The registry and the form of the output of a command."""

    registry: SchemaRegistry
    as_json: bool

    @contextmanager
    def calls(self) -> Iterator[SchemaRegistry]:
        """Yield the registry; its error, or an unknown id, ends the command with status 1."""
        try:
            yield self.registry
        except (RegistryError, SchemaError) as error:
            fail(str(error))
        sys.stdout.flush()

    @contextmanager
    def calls_for(self, subject: str) -> Iterator[SchemaRegistry]:
        """Do the same as `calls`; the error of an unknown subject names similar subjects."""
        with self.calls() as registry:
            try:
                yield registry
            except RegistryError as error:
                if error.code == SUBJECT_NOT_FOUND:
                    fail(_unknown_subject(registry, subject))
                raise


def _unknown_subject(registry: SchemaRegistry, subject: str) -> str:
    known = registry.subjects(deleted=True)
    if subject in known:
        return (
            f"the subject {subject} is deleted: --deleted shows its schemas, and a registration "
            f"under its name begins a new version"
        )
    # The name of a topic is not similar enough to those of its subjects.
    of_topic = [name for name in known if name.startswith(f"{subject}-")]
    similar = (of_topic or difflib.get_close_matches(subject, known))[:_SIMILAR_MAX]
    hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    return f"the registry has no subject {subject}.{hint}"


def registry_options(command: F) -> F:
    """Add the options of every command that uses a registry only.

    The command receives them as `target`, a `RegistryCommand`.
    """

    @wraps(command)
    def with_registry(
        *,
        registry: str | None,
        properties: tuple[str, ...],
        profile: str | None,
        config_file: str | None,
        as_json: bool,
        **given: Any,
    ) -> Any:
        chosen = select(None, properties, profile, config_file)
        client = need_registry(registry, chosen.properties)
        return command(target=RegistryCommand(client, as_json), **given)

    add_options = option_group(
        registry_option("The schema registry.", DEFAULT_REGISTRY),
        property_option,
        config_file_option,
        profile_option,
        json_option(),
    )
    return cast("F", add_options(with_registry))


class GivenSchema(NamedTuple):
    """The options that describe a schema."""

    file: str
    schema_type: str | None
    references: Sequence[SchemaReference]
    normalize: bool

    def read(self) -> Schema:
        """Return the schema in the file, or in standard input.

        Raises:
            click.UsageError: The file cannot be read, or its type is not known.
        """
        kind = self._kind()
        return Schema(file_text(self.file), kind, tuple(self.references))

    def _kind(self) -> SchemaType:
        if self.schema_type is not None:
            return _TYPES[self.schema_type]
        kind = _TYPE_OF_ENDING.get(self.file.rpartition(".")[2].lower())
        if kind is None:
            raise click.UsageError(
                f"{self.file}: the name does not end with .avsc, .json or .proto: give --type"
            )
        return kind


def _references(
    _context: click.Context, _parameter: click.Parameter, given: Sequence[str]
) -> list[SchemaReference]:
    return [parse_reference(text) for text in given]


def parse_reference(text: str) -> SchemaReference:
    """Parse NAME:SUBJECT:VERSION. A name may be a URL, and a subject may begin with a context.

    Raises:
        click.BadParameter: The text is malformed.
    """
    rest, _, version = text.rpartition(":")
    name, in_context, of_context = rest.partition("::.")
    if in_context:
        subject = f":.{of_context}"
    else:
        name, _, subject = rest.rpartition(":")
    if not (name and subject and version.isdecimal() and int(version) > 0):
        raise click.BadParameter(f"{text}: write NAME:SUBJECT:VERSION, such as a.proto:a-value:1")
    return SchemaReference(name, subject, int(version))


_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)

# Adds FILE and the options of a schema. The command receives them as `given`, a `GivenSchema`.
schema_options = option_record(
    "given",
    GivenSchema,
    click.argument("file", metavar="FILE", type=_FILE),
    click.option(
        "--type",
        "schema_type",
        type=click.Choice(list(_TYPES), case_sensitive=False),
        help="Type of the schema.  [default: by the ending .avsc, .json or .proto]",
    ),
    click.option(
        "--reference",
        "references",
        multiple=True,
        callback=_references,
        metavar="NAME:SUBJECT:VERSION",
        help="A schema that this one uses: an import, a $ref or a full Avro name. May be repeated.",
    ),
    click.option(
        "--normalize", is_flag=True, help="Let the registry compare schemas in a normal form."
    ),
)


def _version(
    _context: click.Context, _parameter: click.Parameter, given: str | None
) -> int | str | None:
    if given is None or given == "latest":
        return given
    if not given.isdecimal() or int(given) < 1:
        raise click.BadParameter(f"{given} is neither a number from 1 nor latest")
    return int(given)


def version_option(help_text: str) -> Callable[[F], F]:
    """Return --version, whose value is a number or "latest"."""
    return click.option("--version", callback=_version, metavar="NUMBER", help=help_text)
