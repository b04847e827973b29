"""Avro schemas of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.registry.schemas.avro_compatibility import avro_differences
from barnabas.registry.schemas.avro_model import AvroParser, AvroType
from barnabas.registry.schemas.avro_text import canonical_text, normalized_text
from barnabas.registry.schemas.json_text import load
from barnabas.registry.schemas.limits import all_references
from barnabas.registry.schemas.model import (
    Difference,
    ParsedSchema,
    ResolvedReference,
    sorted_references,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class AvroSchema(ParsedSchema):
    """An Avro schema.

    Args:
        text: JSON.
        references: Schemas that define names which the text uses.
        is_new: Whether the defaults of fields must fit their types.

    Raises:
        InvalidSchemaError: The schema is invalid.
    """

    schema_type = "AVRO"

    def __init__(
        self, text: str, references: Sequence[ResolvedReference] = (), is_new: bool = True
    ) -> None:
        super().__init__(text, references, is_new)
        parser = AvroParser(is_new)
        for each in all_references(self.references):
            parser.parse(load(each.text))
        self._referred = tuple(parser.names)
        self._root: AvroType = parser.parse(load(text))
        self.canonical = canonical_text(self._root, self._referred)

    def normalized(self) -> AvroSchema:
        """Return the schema with sorted aliases, properties and defaults."""
        text = normalized_text(self._root, self._referred)
        return AvroSchema(text, sorted_references(self.references), self.is_new)

    def formatted(self, name: str) -> str:
        """Return the text; "resolved" defines the types of references where they are used."""
        return canonical_text(self._root) if name == "resolved" else self.canonical

    def differences(self, writer: ParsedSchema) -> list[Difference]:
        """Return why a reader with this schema cannot read what the writer wrote."""
        assert isinstance(writer, AvroSchema), writer
        return avro_differences(self._root, writer._root)
