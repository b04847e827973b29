"""Rules for the keywords of one JSON Schema beside another: bounds, patterns, names.

Each function returns what the reader's schema (the new one) refuses and the writer's accepts. The
texts describe the changes, which have the names of Confluent's registry.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

from barnabas.registry.schemas.json_text import JsonFloat
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from barnabas.registry.schemas.json_model import JsonNode

Path: TypeAlias = tuple[str, ...]

ONLY_HERE = "the keyword at path '{path}' of the {reader} schema is not in the {writer} schema"
LESS = "the value at path '{path}' of the {reader} schema is less than in the {writer} schema"
MORE = "the value at path '{path}' of the {reader} schema is more than in the {writer} schema"
FEWER_ELEMENTS = (
    "the array or combined type at path '{path}' of the {reader} schema has fewer elements than in "
    "the {writer} schema"
)
MORE_ELEMENTS = (
    "the array or combined type at path '{path}' of the {reader} schema has more elements than in "
    "the {writer} schema"
)
DIFFERS = "the value at path '{path}' differs between the {reader} and the {writer} schema"
OTHER_TYPE = "the type at path '{path}' differs between the {reader} and the {writer} schema"
ADDED_TO_OPEN = (
    "the {writer} schema has an open content model and lacks the property or item at path '{path}' "
    "of the {reader} schema"
)
ADDED_NOT_COVERED = (
    "the {writer} schema lacks the property or item at path '{path}' of the {reader} schema, and "
    "its partially open content model does not cover it"
)
REMOVED_FROM_CLOSED = (
    "the {reader} schema has a closed content model and lacks the property or item at path "
    "'{path}' of the {writer} schema"
)
REMOVED_NOT_COVERED = (
    "the {reader} schema lacks the property or item at path '{path}' of the {writer} schema, and "
    "its partially open content model does not cover it"
)
REQUIRED_ADDED = (
    "the {writer} schema lacks the required property at path '{path}' of the {reader} schema"
)
# The upper and the lower bounds of each kind: the keyword and the name of its changes.
_UPPER = {
    "string": (("maxLength", "MAX_LENGTH"),),
    "number": (("maximum", "MAXIMUM"), ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM")),
    "object": (("maxProperties", "MAX_PROPERTIES"),),
    "array": (("maxItems", "MAX_ITEMS"),),
}
_LOWER = {
    "string": (("minLength", "MIN_LENGTH"),),
    "number": (("minimum", "MINIMUM"), ("exclusiveMinimum", "EXCLUSIVE_MINIMUM")),
    "object": (("minProperties", "MIN_PROPERTIES"),),
    "array": (("minItems", "MIN_ITEMS"),),
}


class JsonDifference(NamedTuple):
    kind: str
    description: str
    # Relative to the pair of schemas that was compared.
    path: Path


Result: TypeAlias = list[JsonDifference]


def below(found: Result, *path: str) -> Result:
    return [each._replace(path=(*path, *each.path)) for each in found]


def are_connect_bytes(old: JsonNode, new: JsonNode) -> bool:
    """Return whether both are bytes of Kafka Connect, which are strings or numbers."""
    return all(each.schema.get("connect.type") == "bytes" for each in (old, new))


def criterion_accepts(old: JsonNode, new: JsonNode) -> bool:
    if old.criterion == new.criterion or new.criterion == "anyOf":
        return True
    is_single_old, is_single_new = len(old.parts) == 1, len(new.parts) == 1
    return (is_single_old and (is_single_new or new.criterion == "oneOf")) or (
        is_single_new and old.criterion == "allOf"
    )


def not_covered(found: Result, kind: str, description: str) -> Result:
    return [*found, JsonDifference(kind, description, ())] if found else []


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def narrower_bounds(old: JsonNode, new: JsonNode) -> Result:
    """Return the bounds that became narrower."""
    found: Result = []
    if old.kind not in _UPPER:
        return found
    for is_upper, table in ((True, _UPPER), (False, _LOWER)):
        for keyword, word in table[old.kind]:
            before, after = old.schema.get(keyword), new.schema.get(keyword)
            if not _is_number(after):
                continue
            if not _is_number(before):
                found.append(JsonDifference(f"{word}_ADDED", ONLY_HERE, (keyword,)))
            elif is_upper and after < before:
                found.append(JsonDifference(f"{word}_DECREASED", LESS, (keyword,)))
            elif not is_upper and after > before:
                found.append(JsonDifference(f"{word}_INCREASED", MORE, (keyword,)))
    return found


def narrower_patterns(old: JsonNode, new: JsonNode) -> Result:
    before, after = old.schema.get("pattern"), new.schema.get("pattern")
    if after is None or before == after:
        return []
    kind, description = ("PATTERN_ADDED", ONLY_HERE)
    if before is not None:
        kind, description = ("PATTERN_CHANGED", DIFFERS)
    return [JsonDifference(kind, description, ("pattern",))]


def narrower_numbers(old: JsonNode, new: JsonNode) -> Result:
    found: Result = []
    if new.is_integer and not old.is_integer:
        found.append(JsonDifference("TYPE_NARROWED", OTHER_TYPE, ()))
    before, after = old.schema.get("multipleOf"), new.schema.get("multipleOf")
    if not _is_number(after) or before == after:
        return found
    kind, description = "MULTIPLE_OF_CHANGED", DIFFERS
    if not _is_number(before):
        kind, description = "MULTIPLE_OF_ADDED", ONLY_HERE
    elif _is_multiple(before, after):
        return found
    elif _is_multiple(after, before):
        kind, description = "MULTIPLE_OF_EXPANDED", MORE
    return [*found, JsonDifference(kind, description, ("multipleOf",))]


def _is_multiple(value: float, divisor: float) -> bool:
    one, other = (
        Decimal(each.text if isinstance(each, JsonFloat) else each) for each in (value, divisor)
    )
    # Larger ones would need thousands of digits.
    if other == 0 or abs(one.adjusted() - other.adjusted()) > 20:
        return False
    return one % other == 0


def required_names(node: JsonNode) -> set[str]:
    """Return the properties that an object must have."""
    required = node.schema.get("required")
    return (
        {each for each in required if isinstance(each, str)}
        if isinstance(required, list)
        else set()
    )


def property_has_default(node: JsonNode, name: str) -> bool:
    properties = node.schema.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(schema, dict) and "default" in schema


def newly_required(old: JsonNode, new: JsonNode, names: set[str]) -> Result:
    """Return the properties of both schemas that only the new one requires.

    Args:
        old: The writer's schema.
        new: The reader's schema.
        names: The properties of both.
    """
    return [
        JsonDifference("REQUIRED_ATTRIBUTE_ADDED", ONLY_HERE, ("required", name))
        for name in sorted((required_names(new) - required_names(old)) & names)
        if not property_has_default(new, name)
    ]


def is_open_object(node: JsonNode) -> bool:
    schema = node.schema
    return schema.get("additionalProperties", True) is True and not schema.get("patternProperties")


def searching_pattern(text: str) -> Pattern | None:
    """Return a pattern that matches texts in which the given one is found; None if it is none."""
    try:
        Pattern(text)
        return Pattern(f"(?s:.*)(?:{text})(?s:.*)")
    except PatternError:
        return None


def dependent_names(node: JsonNode) -> dict[str, set[str]]:
    """Return the properties that a property needs beside itself, by its name."""
    found: dict[str, set[str]] = {}
    for keyword in ("dependencies", "dependentRequired"):
        value = node.schema.get(keyword)
        for name, names in value.items() if isinstance(value, dict) else ():
            if isinstance(names, list):
                found.setdefault(name, set()).update(map(str, names))
    return found
