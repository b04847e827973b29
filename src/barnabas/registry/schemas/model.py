"""A parsed schema as the registry sees it: its type, its texts, its references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA_TYPES = ("AVRO", "JSON", "PROTOBUF")


# Limits for messages, and for the parts of a schema in them: a name may be a megabyte.
_MESSAGE_CHARACTERS = 1000
_SHOWN_CHARACTERS = 300


class InvalidSchemaError(Exception):
    """A schema is invalid or too complex; the message says what is wrong, and where."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:_MESSAGE_CHARACTERS])


@dataclass(frozen=True)
class Reference:
    """A schema that another schema uses.

    Attributes:
        name: The name in the schema that refers to it. Avro: the full name of a type. JSON Schema:
            the URI of a `$ref`. Protobuf: the path of an import.
        subject: The subject of the schema.
        version: Its version.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class ResolvedReference:
    """A reference, with the schema that the registry found for it.

    Attributes:
        reference: The reference.
        text: The text of the schema.
        references: What this schema refers to.
    """

    reference: Reference
    text: str
    references: tuple[ResolvedReference, ...] = ()


@dataclass(frozen=True)
class Difference:
    """Why a reader's schema cannot read what a writer's schema wrote.

    Attributes:
        kind: The name of the rule, as Confluent's registry has it.
        description: A sentence with {reader} and {writer} for the schemas, {path} and {info}.
        path: The place in the schema.
        info: Details.
    """

    kind: str
    description: str
    path: str
    info: str = ""

    def text(self, reader: str, writer: str) -> str:
        """Return the message of the registry.

        Args:
            reader: What the reader's schema is called, such as "new".
            writer: What the writer's schema is called.
        """
        path, info = self.path[:_SHOWN_CHARACTERS], self.info[:_SHOWN_CHARACTERS]
        description = self.description.format(path=path, info=info, reader=reader, writer=writer)
        more = f", additionalInfo:'{info}'" if info else ""
        return f"{{errorType:'{self.kind}', description:'{description}'{more}}}"


class ParsedSchema(ABC):
    """A valid schema.

    Attributes:
        text: The text as it was given.
        canonical: The text that the registry stores and compares.
        references: The schemas that it refers to, in the given order.
        is_new: Whether the schema was checked as a new one.
    """

    schema_type: str
    canonical: str

    def __init__(
        self, text: str, references: Sequence[ResolvedReference], is_new: bool = True
    ) -> None:
        self.text = text
        self.is_new = is_new
        self.references = tuple(references)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text: another process parses it again."""
        return type(self), (self.text, self.references, self.is_new)

    @abstractmethod
    def normalized(self) -> ParsedSchema:
        """Return the schema that stands for all schemas of the same meaning (`normalize=true`).

        Its references are sorted, and each is there once.
        """

    def formatted(self, name: str) -> str:
        """Return the text in a format (`format=...`); the canonical text for unknown formats.

        Args:
            name: "resolved" for Avro with the definitions of its references; "serialized" for the
                descriptor of a Protobuf file in base64.
        """
        return self.canonical

    @abstractmethod
    def differences(self, writer: ParsedSchema) -> list[Difference]:
        """Return why a reader with this schema cannot read what the writer wrote.

        Args:
            writer: A schema of the same type.
        """


def sorted_references(references: Sequence[ResolvedReference]) -> tuple[ResolvedReference, ...]:
    """Return the references of a normalized schema: sorted by name, each once."""
    found = {each.reference: each for each in references}
    order = sorted(found, key=lambda each: (each.name, each.subject, each.version))
    return tuple(found[each] for each in order)
