"""JSON Schemas of the registry: drafts 4, 6, 7, 2019-09 and 2020-12. The default is draft 7."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.registry.schemas.json_compatibility import json_differences
from barnabas.registry.schemas.json_model import JsonDocument
from barnabas.registry.schemas.json_text import dump, load
from barnabas.registry.schemas.limits import all_references
from barnabas.registry.schemas.model import (
    Difference,
    InvalidSchemaError,
    ParsedSchema,
    ResolvedReference,
    sorted_references,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFTS = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
_SHOWN_CHARACTERS = 300


class JsonSchema(ParsedSchema):
    """A JSON Schema.

    Args:
        text: JSON.
        references: Schemas to which `$ref` leads by their names.
        is_new: Without effect.

    Raises:
        InvalidSchemaError: The schema is invalid.
    """

    schema_type = "JSON"

    def __init__(
        self, text: str, references: Sequence[ResolvedReference] = (), is_new: bool = True
    ) -> None:
        super().__init__(text, references, is_new)
        self._content = load(text)
        _check(self._content)
        referred = {
            each.reference.name: load(each.text) for each in all_references(self.references)
        }
        self._document = JsonDocument(self._content, referred)
        self.canonical = dump(self._content)

    def normalized(self) -> JsonSchema:
        """Return the schema with sorted keys."""
        text = dump(self._content, sort=True)
        return JsonSchema(text, sorted_references(self.references), self.is_new)

    def differences(self, writer: ParsedSchema) -> list[Difference]:
        """Return what a writer may write that this schema refuses."""
        assert isinstance(writer, JsonSchema), writer
        return json_differences(self._document, writer._document)


def _check(content: Any) -> None:
    """Check a schema with the schema of its draft."""
    import jsonschema_rs

    if not isinstance(content, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object or a boolean")
    if isinstance(content, bool):
        return
    draft = content.get("$schema")
    if not isinstance(draft, str) or not any(each in draft for each in _DRAFTS):
        content = {**content, "$schema": _DRAFT_7}
    try:
        jsonschema_rs.meta.validate(content)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        path = "/".join(map(str, getattr(error, "instance_path", ())))
        reason = str(error).partition("\n")[0][:_SHOWN_CHARACTERS]
        raise InvalidSchemaError(f"the JSON Schema is invalid at '#/{path}': {reason}") from None
