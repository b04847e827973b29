"""JSON Schemas of the registry: drafts 4, 6, 7, 2019-09 and 2020-12. The default is draft 7."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from barnabas.registry.schemas.json_compatibility import json_differences
from barnabas.registry.schemas.json_model import JsonDocument
from barnabas.registry.schemas.json_text import dump, load, plain
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

# Drafts by a part of the names of their schemas: the name, and the class of `jsonschema_rs`.
_DRAFTS = {
    "draft-04": ("http://json-schema.org/draft-04/schema#", "Draft4Validator"),
    "draft-06": ("http://json-schema.org/draft-06/schema#", "Draft6Validator"),
    "draft-07": ("http://json-schema.org/draft-07/schema#", "Draft7Validator"),
    "2019-09": ("https://json-schema.org/draft/2019-09/schema", "Draft201909Validator"),
    "2020-12": ("https://json-schema.org/draft/2020-12/schema", "Draft202012Validator"),
}
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
        _check(plain(text))
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
    """Check a schema with the schema of its draft.

    A name that `required` or `enum` has twice, and empty lists, are no errors: Confluent's registry
    accepts them, too.
    """
    if not isinstance(content, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object or a boolean")
    draft = content.get("$schema") if isinstance(content, dict) else None
    words = [word for word in _DRAFTS if isinstance(draft, str) and word in draft]
    for error in _validator(words[0] if words else "draft-07").iter_errors(content):
        if error.schema_path and error.schema_path[-1] in ("uniqueItems", "minItems"):
            continue
        path = "/".join(map(str, error.instance_path))
        reason = error.message.partition("\n")[0][:_SHOWN_CHARACTERS]
        raise InvalidSchemaError(f"the JSON Schema is invalid at '#/{path}': {reason}")


@cache
def _validator(draft: str) -> Any:
    """Return the validator of the schemas of a draft."""
    import jsonschema_rs

    uri, name = _DRAFTS[draft]
    return getattr(jsonschema_rs, name)({"$ref": uri})
