"""JSON Schemas as the parts that Confluent's registry compares.

Confluent's registry reads a JSON Schema with the library `everit-json-schema`, which gives each
schema one kind: a schema with `type: string` is of kind string. A schema with several independent
keywords is an `allOf` of its parts, and `type: [string, null]` is an `anyOf`. A schema without a
type has the kinds of its keywords: `maxLength` makes it a string that need not be a string.

Drafts 2019-09 and 2020-12 differ in the names of keywords, and in that `$ref` has neighbors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.registry.schemas.limits import Budget
from barnabas.registry.schemas.model import InvalidSchemaError
from barnabas.serializers.json_references import BASE, JsonPlace, JsonReferences, base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMBINED = ("allOf", "anyOf", "oneOf")
_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
_CONDITIONS = ("if", "then", "else")
# The keywords of each kind.
_KEYWORDS = {
    "array": (
        *("items", "additionalItems", "prefixItems", "unevaluatedItems", "minItems", "maxItems"),
        *("uniqueItems", "contains"),
    ),
    "object": (
        *("properties", "required", "minProperties", "maxProperties", "dependencies"),
        *("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas"),
    ),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# References that lead to references, one after the other.
_HOPS_MAX = 100
# The schemas within a schema, besides those that it combines.
_INNER = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties"),
    *("unevaluatedProperties", "propertyNames", "not", *_CONDITIONS),
)
_INNER_LISTS = ("items", "prefixItems")
_INNER_MAPS = ("properties", "patternProperties", "dependencies", "dependentSchemas")


@dataclass(eq=False, slots=True)
class JsonNode:
    """A schema or a part of one; compared by identity.

    Attributes:
        kind: string, number, boolean, null, array, object, enum, const, not, conditional, combined,
            empty, true or false.
        schema: The schema with its keywords.
        base: The URI to which its references are relative.
        criterion: How a combined schema combines its parts: allOf, anyOf or oneOf.
        parts: The parts of a combined schema.
        is_integer: Whether a number must be an integer.
    """

    kind: str
    schema: dict[str, Any]
    base: str
    criterion: str = ""
    parts: list[JsonPart] = field(default_factory=list)
    is_integer: bool = False


# A place is a schema that has not been read yet.
JsonPart: TypeAlias = JsonNode | JsonPlace


class JsonDocument:
    """A JSON Schema with the schemas to which it refers.

    Args:
        content: The JSON of the schema.
        references: The JSON of schemas to which it refers, by their names.

    Raises:
        InvalidSchemaError: A reference leads nowhere.
    """

    def __init__(self, content: Any, references: Mapping[str, Any]) -> None:
        draft = content.get("$schema") if isinstance(content, dict) else None
        self._is_modern = isinstance(draft, str) and ("2019-09" in draft or "2020-12" in draft)
        self.has_prefix_items = isinstance(draft, str) and "2020-12" in draft
        # By identity of the JSON object.
        self._nodes: dict[int, JsonNode] = {}
        try:
            self._references = JsonReferences(content, references)
            self.root = self.node(JsonPlace(content, BASE))
            self._read_all()
        except ValueError as error:
            # Also of a URI without a meaning.
            raise InvalidSchemaError(str(error)) from None

    def node(self, part: JsonPart) -> JsonNode:
        """Return a schema, or the one to which it refers."""
        if isinstance(part, JsonNode):
            return part
        passed: list[Any] = []
        node: JsonPart = part
        while isinstance(node, JsonPlace):
            if len(passed) > _HOPS_MAX:
                raise InvalidSchemaError(
                    "a reference of the JSON Schema leads to itself, or too far"
                )
            passed.append(node.schema)
            node = self._nodes.get(id(node.schema)) or self._read(node)
        for schema in passed:
            if isinstance(schema, dict):
                self._nodes[id(schema)] = node
        return node

    def inner(self, node: JsonNode, keyword: str) -> JsonNode | None:
        """Return the schema of a keyword; None if there is none."""
        value = node.schema.get(keyword)
        return self.node(JsonPlace(value, node.base)) if _is_schema(value) else None

    def inner_map(self, node: JsonNode, keyword: str) -> dict[str, JsonNode]:
        """Return the schemas of a keyword such as `properties`."""
        value = node.schema.get(keyword)
        items = value.items() if isinstance(value, dict) else ()
        return {
            key: self.node(JsonPlace(each, node.base)) for key, each in items if _is_schema(each)
        }

    def inner_named(self, node: JsonNode, keyword: str, name: str) -> JsonNode:
        """Return one of the schemas of a keyword such as `patternProperties`."""
        return self.node(JsonPlace(node.schema[keyword][name], node.base))

    def inner_list(self, node: JsonNode, keyword: str) -> list[JsonNode]:
        """Return the schemas of a keyword such as `prefixItems`."""
        value = node.schema.get(keyword)
        values = value if isinstance(value, list) else ()
        return [self.node(JsonPlace(each, node.base)) for each in values if _is_schema(each)]

    def _read_all(self) -> None:
        """Read all schemas that the root applies, so that all their references are known."""
        budget = Budget()
        pending = [self.root]
        seen: set[int] = set()
        while pending:
            node = pending.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            budget.spend()
            pending += map(self.node, node.parts)
            pending += [inner for key in _INNER if (inner := self.inner(node, key)) is not None]
            for keyword in _INNER_LISTS:
                pending += self.inner_list(node, keyword)
            for keyword in _INNER_MAPS:
                pending += self.inner_map(node, keyword).values()

    def _read(self, place: JsonPlace) -> JsonPart:
        """Return the node of a schema, or the schema to which it refers."""
        if not isinstance(place.schema, dict):
            return JsonNode("true" if place.schema else "false", {}, place.base)
        schema, base = place.schema, base_of(place.schema, place.base)
        parts: list[JsonPart] = []
        for keyword in _REFERENCES:
            if isinstance(schema.get(keyword), str):
                targets = self._references.targets(keyword, schema[keyword], base)
                # The schemas of the drafts are not read.
                target: JsonPart = targets[0] if targets else JsonNode("empty", {}, base)
                if not self._is_modern:
                    return target
                parts.append(target)
        parts += _parts(schema, base)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return JsonNode("empty", schema, base)
        return JsonNode("combined", schema, base, "allOf", parts)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _parts(schema: dict[str, Any], base: str) -> list[JsonPart]:
    parts: list[JsonPart] = []
    if isinstance(schema.get("enum"), list):
        parts.append(JsonNode("enum", schema, base))
    for criterion in _COMBINED:
        if isinstance(schema.get(criterion), list):
            inner: list[JsonPart] = [JsonPlace(each, base) for each in schema[criterion]]
            parts.append(JsonNode("combined", schema, base, criterion, inner))
    parts += [JsonNode(word, schema, base) for word in ("not", "const") if word in schema]
    parts += _typed_parts(schema, base)
    if any(keyword in schema for keyword in _CONDITIONS):
        parts.append(JsonNode("conditional", schema, base))
    return parts


def _typed_parts(schema: dict[str, Any], base: str) -> list[JsonPart]:
    """Return the part of the keyword `type`, and those of keywords of other types."""
    given = schema.get("type")
    names = given if isinstance(given, list) else [given]
    typed: list[JsonPart] = [
        JsonNode(
            "number" if name == "integer" else name, schema, base, is_integer=name == "integer"
        )
        for name in names
        if name in _TYPES
    ]
    kinds = {each.kind for each in typed if isinstance(each, JsonNode)}
    parts = typed
    if isinstance(given, list):
        parts = [JsonNode("combined", schema, base, "anyOf", typed)]
    for kind, keywords in _KEYWORDS.items():
        if kind not in kinds and any(keyword in schema for keyword in keywords):
            parts.append(JsonNode(kind, schema, base))
    return parts
