"""Compatibility of JSON Schemas: whether a reader accepts all that a writer may have written.

The rules are those of Confluent's registry, in the strict policy, which is its default. The
writer's schema is the original of a change, the reader's schema the update. Each change has a
name; most changes that accept more are compatible, and those that accept less are not.

- An object is open if it has no `additionalProperties` (or true) and no `patternProperties`, closed
  if it allows no others, and partially open otherwise. Properties may be removed from an open
  object, and added to one that is not open. To add a property to an open object is incompatible,
  because the writer may have written anything by this name.
- A required property is incompatible unless it has a default.
- A range may grow, an enum may get values, `integer` may become `number`.
- `anyOf` and `oneOf` may get schemas, `allOf` may lose some. The schemas are matched with each
  other, so that as many as possible are compatible.
- `contains`, `propertyNames`, `format`, `if` and the values of defaults do not matter.

Two schemas are compared once; a schema within itself is compatible as long as nothing else differs.
Regular expressions are matched with the names of properties in linear time, by RE2; one that RE2
does not know matches nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

from barnabas.registry.schemas.json_text import JsonFloat
from barnabas.registry.schemas.json_values import ValueNumbers
from barnabas.registry.schemas.limits import MESSAGES_MAX, Budget, Steps, run
from barnabas.registry.schemas.matching import maximum_matching
from barnabas.registry.schemas.model import Difference
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from barnabas.registry.schemas.json_model import JsonDocument, JsonNode

_Path: TypeAlias = tuple[str, ...]

_ONLY_HERE = "the keyword at path '{path}' of the {reader} schema is not in the {writer} schema"
_LESS = "the value at path '{path}' of the {reader} schema is less than in the {writer} schema"
_MORE = "the value at path '{path}' of the {reader} schema is more than in the {writer} schema"
_FEWER_ELEMENTS = (
    "the array or combined type at path '{path}' of the {reader} schema has fewer elements than in "
    "the {writer} schema"
)
_MORE_ELEMENTS = (
    "the array or combined type at path '{path}' of the {reader} schema has more elements than in "
    "the {writer} schema"
)
_DIFFERS = "the value at path '{path}' differs between the {reader} and the {writer} schema"
_OTHER_TYPE = "the type at path '{path}' differs between the {reader} and the {writer} schema"
_ADDED_TO_OPEN = (
    "the {writer} schema has an open content model and lacks the property or item at path '{path}' "
    "of the {reader} schema"
)
_ADDED_NOT_COVERED = (
    "the {writer} schema lacks the property or item at path '{path}' of the {reader} schema, and "
    "its partially open content model does not cover it"
)
_REMOVED_FROM_CLOSED = (
    "the {reader} schema has a closed content model and lacks the property or item at path "
    "'{path}' of the {writer} schema"
)
_REMOVED_NOT_COVERED = (
    "the {reader} schema lacks the property or item at path '{path}' of the {writer} schema, and "
    "its partially open content model does not cover it"
)
_REQUIRED_ADDED = (
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


class _Difference(NamedTuple):
    kind: str
    description: str
    # Relative to the pair of schemas that was compared.
    path: _Path


_Result: TypeAlias = list[_Difference]


def json_differences(reader: JsonDocument, writer: JsonDocument) -> list[Difference]:
    """Return what a writer may write that the reader refuses.

    Raises:
        InvalidSchemaError: The comparison has too many steps.
    """
    comparison = _Comparison(reader, writer, ValueNumbers())
    found = run(comparison.compare(writer.root, reader.root))
    return [Difference(each.kind, each.description, "#/" + "/".join(each.path)) for each in found]


def _below(found: _Result, *path: str) -> _Result:
    return [each._replace(path=(*path, *each.path)) for each in found]


class _Comparison:
    """Compares a writer's schemas (the old ones) with those of a reader (the new ones)."""

    def __init__(self, reader: JsonDocument, writer: JsonDocument, numbers: ValueNumbers) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = numbers
        # None: the comparison is not over.
        self._pairs: dict[tuple[int, int], _Result | None] = {}
        self._swapped: _Comparison | None = None
        self._patterns: dict[str, Pattern | None] = {}
        self._budget = Budget()

    def compare(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        """Return the differences of two schemas."""
        self._budget.spend()
        pair = (id(old), id(new))
        if pair in self._pairs:
            return self._pairs[pair] or []
        self._pairs[pair] = None
        found: _Result = yield self._compare_new_pair(old, new)
        self._pairs[pair] = found = found[:MESSAGES_MAX]
        return found

    def _compare_new_pair(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        if (old.kind == "combined") != (new.kind == "combined"):
            is_matched: bool = yield self._matches_one(old, new)
            if is_matched:
                return []
        if old.kind != new.kind:
            is_accepted = old.kind == "false" or new.kind in ("empty", "true")
            if is_accepted or _are_connect_bytes(old, new):
                return []
            return [_Difference("TYPE_CHANGED", _OTHER_TYPE, ())]
        found = _bounds(old, new) if old.kind in _UPPER else []
        match old.kind:
            case "string":
                found += _patterns(old, new)
            case "number":
                found += _numbers(old, new)
            case "enum":
                found += self._enums(old, new)
            case "const":
                if self._numbers.of(old.schema["const"]) != self._numbers.of(new.schema["const"]):
                    found.append(_Difference("ENUM_ARRAY_CHANGED", _OTHER_TYPE, ("const",)))
            case "not":
                found += yield self._nots(old, new)
            case "combined":
                found += yield self._combined(old, new)
            case "object":
                found += yield self._objects(old, new)
            case "array":
                found += yield self._arrays(old, new)
        return found

    def _matches_one(self, old: JsonNode, new: JsonNode) -> Steps[bool]:
        """Return whether a schema is compatible with one part of a combined schema."""
        if new.kind == "combined":
            if len(new.parts) == 1 or new.criterion in ("anyOf", "oneOf"):
                for part in new.parts:
                    if not (yield self.compare(old, self._reader.node(part))):
                        return True
        elif len(old.parts) == 1 or old.criterion == "allOf":
            for part in old.parts:
                if not (yield self.compare(self._writer.node(part), new)):
                    return True
        return False

    def _enums(self, old: JsonNode, new: JsonNode) -> _Result:
        before, after = (
            {self._numbers.of(each) for each in values} if isinstance(values, list) else set()
            for values in (old.schema["enum"], new.schema["enum"])
        )
        if before <= after:
            return []
        kind = "ENUM_ARRAY_NARROWED" if after <= before else "ENUM_ARRAY_CHANGED"
        description = _FEWER_ELEMENTS if after <= before else _OTHER_TYPE
        return [_Difference(kind, description, ("enum",))]

    def _nots(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        """Compare the schemas of two `not`, the other way round."""
        if self._swapped is None:
            self._swapped = _Comparison(self._writer, self._reader, self._numbers)
            self._swapped._swapped = self
            self._swapped._budget = self._budget
        before, after = self._writer.inner(old, "not"), self._reader.inner(new, "not")
        if before is None or after is None or not (yield self._swapped.compare(after, before)):
            return []
        return [_Difference("NOT_TYPE_EXTENDED", _MORE_ELEMENTS, ("not",))]

    def _combined(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        if not _criterion_accepts(old, new):
            return [_Difference("COMBINED_TYPE_CHANGED", _OTHER_TYPE, ())]
        before = self._distinct(self._writer, old)
        after = self._distinct(self._reader, new)
        found: _Result = []
        if len(before) < len(after) and new.criterion == "allOf":
            found.append(_Difference("PRODUCT_TYPE_EXTENDED", _MORE_ELEMENTS, ()))
        if len(before) > len(after) and old.criterion != "allOf":
            found.append(_Difference("SUM_TYPE_NARROWED", _FEWER_ELEMENTS, ()))
        edges: list[list[int]] = []
        for each in before:
            edges.append([])
            for index, other in enumerate(after):
                if not (yield self.compare(each, other)):
                    edges[-1].append(index)
        if maximum_matching(edges, self._budget) < min(len(before), len(after)):
            found.append(_Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", _OTHER_TYPE, ()))
        return found

    def _distinct(self, document: JsonDocument, node: JsonNode) -> list[JsonNode]:
        """Return the parts of a combined schema, equal ones once."""
        found: dict[Any, JsonNode] = {}
        for part in node.parts:
            read = document.node(part)
            # Parts of one schema differ by their kinds.
            key = (self._numbers.of(read.schema), read.kind, read.criterion, read.is_integer)
            found.setdefault(key, read)
        return list(found.values())

    def _objects(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        before = self._writer.inner_map(old, "properties")
        after = self._reader.inner_map(new, "properties")
        self._budget.spend(len(before) + len(after))
        found = _newly_required(old, new, before.keys() & after.keys())
        for name in dict.fromkeys((*before, *after)):
            path = ("properties", name)
            if name not in after:
                found += _below((yield self._removed_property(name, before[name], new)), *path)
            elif name not in before:
                found += _below((yield self._added_property(name, after[name], old, new)), *path)
            else:
                found += _below((yield self.compare(before[name], after[name])), *path)
            if len(found) > MESSAGES_MAX:
                break
        found += yield self._dependencies(old, new)
        found += yield self._additional(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
        found += yield self._unevaluated(old, new, "unevaluatedProperties")
        return found

    def _removed_property(self, name: str, before: JsonNode, new: JsonNode) -> Steps[_Result]:
        if _is_open(new):
            return []
        covering = self._covering(self._reader, new, name)
        if covering is None:
            if before.kind == "false":
                return []
            return [
                _Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", _REMOVED_FROM_CLOSED, ())
            ]
        kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return _not_covered((yield self.compare(before, covering)), kind, _REMOVED_NOT_COVERED)

    def _added_property(
        self, name: str, after: JsonNode, old: JsonNode, new: JsonNode
    ) -> Steps[_Result]:
        is_required = name in _required(new)
        has_default = _has_default(new, name)
        if _is_open(old):
            if after.kind in ("empty", "true"):
                return []
            word = "REQUIRED_PROPERTY" if is_required else "OPTIONAL_PROPERTY"
            if is_required and has_default:
                word = "REQUIRED_PROPERTY_WITH_DEFAULT"
            return [_Difference(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL", _ADDED_TO_OPEN, ())]
        found: _Result = []
        covering = self._covering(self._writer, old, name)
        if covering is not None:
            kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            differences: _Result = yield self.compare(covering, after)
            found += _not_covered(differences, kind, _ADDED_NOT_COVERED)
        if is_required and not has_default:
            kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
            found.append(_Difference(kind, _REQUIRED_ADDED, ()))
        return found

    def _covering(self, document: JsonDocument, node: JsonNode, name: str) -> JsonNode | None:
        """Return the schema that a partially open object has for a property it does not list."""
        for text, each in document.inner_map(node, "patternProperties").items():
            self._budget.spend(10)
            if text not in self._patterns:
                self._patterns[text] = _searching(text)
            pattern = self._patterns[text]
            if pattern is not None and pattern.matches(name):
                return each
        if isinstance(node.schema.get("additionalProperties"), bool):
            return None
        return document.inner(node, "additionalProperties")

    def _dependencies(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        found: _Result = []
        before, after = _dependent_names(old), _dependent_names(new)
        for name, names in after.items():
            path = ("dependencies", name)
            if name not in before:
                found.append(_Difference("DEPENDENCY_ARRAY_ADDED", _ONLY_HERE, path))
            elif not names <= before[name]:
                is_extended = names >= before[name]
                kind = "DEPENDENCY_ARRAY_EXTENDED" if is_extended else "DEPENDENCY_ARRAY_CHANGED"
                found.append(_Difference(kind, _MORE_ELEMENTS if is_extended else _DIFFERS, path))
        for keyword in ("dependencies", "dependentSchemas"):
            known = self._writer.inner_map(old, keyword)
            for name, schema in self._reader.inner_map(new, keyword).items():
                path = ("dependencies", name)
                if name not in known:
                    found.append(_Difference("DEPENDENCY_SCHEMA_ADDED", _ONLY_HERE, path))
                else:
                    found += _below((yield self.compare(known[name], schema)), *path)
        return found

    def _additional(self, old: JsonNode, new: JsonNode, keyword: str, word: str) -> Steps[_Result]:
        """Compare what is allowed besides the listed properties or items."""
        before, after = old.schema.get(keyword, True), new.schema.get(keyword, True)
        if before is False or after is True:
            return []
        if after is False:
            return [_Difference(f"{word}_REMOVED", _ONLY_HERE, (keyword,))]
        if before is True:
            return [_Difference(f"{word}_NARROWED", _FEWER_ELEMENTS, (keyword,))]
        one, other = self._writer.inner(old, keyword), self._reader.inner(new, keyword)
        if one is None or other is None:
            return []
        return _below((yield self.compare(one, other)), keyword)

    def _unevaluated(self, old: JsonNode, new: JsonNode, keyword: str) -> Steps[_Result]:
        word = "UNEVALUATED_PROPERTIES" if keyword.endswith("Properties") else "UNEVALUATED_ITEMS"
        found: _Result = yield self._additional(old, new, keyword, word)
        return found

    def _arrays(self, old: JsonNode, new: JsonNode) -> Steps[_Result]:
        found: _Result = []
        before, after = _Items(self._writer, old), _Items(self._reader, new)
        if after.all is not None:
            if before.all is None:
                found.append(_Difference("SCHEMA_ADDED", _OTHER_TYPE, ("items",)))
            else:
                found += _below((yield self.compare(before.all, after.all)), "items")
        for index in range(max(len(before.listed), len(after.listed))):
            differences: _Result
            if index >= len(after.listed):
                differences = yield self._removed_item(before.listed[index], after)
            elif index >= len(before.listed):
                differences = yield self._added_item(after.listed[index], before)
            else:
                differences = yield self.compare(before.listed[index], after.listed[index])
            found += _below(differences, f"items/{index}")
            if len(found) > MESSAGES_MAX:
                break
        found += yield self._more_items(before, after)
        found += yield self._unevaluated(old, new, "unevaluatedItems")
        if new.schema.get("uniqueItems") is True and old.schema.get("uniqueItems") is not True:
            found.append(_Difference("UNIQUE_ITEMS_ADDED", _ONLY_HERE, ("uniqueItems",)))
        return found

    def _removed_item(self, before: JsonNode, after: _Items) -> Steps[_Result]:
        if after.is_open:
            return []
        if after.more is None:
            if before.kind == "false":
                return []
            return [_Difference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", _REMOVED_FROM_CLOSED, ())]
        kind = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return _not_covered((yield self.compare(before, after.more)), kind, _REMOVED_NOT_COVERED)

    def _added_item(self, after: JsonNode, before: _Items) -> Steps[_Result]:
        if before.is_open:
            if after.kind in ("empty", "true"):
                return []
            return [_Difference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", _ADDED_TO_OPEN, ())]
        if before.more is None:
            return []
        kind = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return _not_covered((yield self.compare(before.more, after)), kind, _ADDED_NOT_COVERED)

    def _more_items(self, before: _Items, after: _Items) -> Steps[_Result]:
        """Compare what is allowed after the listed items."""
        path = ("additionalItems",)
        if not before.allows_more or (after.allows_more and after.more is None):
            return []
        if not after.allows_more:
            return [_Difference("ADDITIONAL_ITEMS_REMOVED", _ONLY_HERE, path)]
        if before.more is None or after.more is None:
            return [_Difference("ADDITIONAL_ITEMS_NARROWED", _FEWER_ELEMENTS, path)]
        return _below((yield self.compare(before.more, after.more)), *path)


class _Items:
    """What an array says about its items.

    Attributes:
        all: The schema of all items; None if there is none.
        listed: The schemas of the first items, one each.
        allows_more: Whether items may follow the listed ones.
        more: The schema of these; None if they may be anything.
    """

    def __init__(self, document: JsonDocument, node: JsonNode) -> None:
        keyword = "items" if document.has_prefix_items else "additionalItems"
        self.listed = document.inner_list(
            node, "prefixItems" if document.has_prefix_items else "items"
        )
        self.allows_more = node.schema.get(keyword) is not False
        self.more: JsonNode | None = None
        self.all: JsonNode | None = None
        if document.has_prefix_items:
            if not isinstance(node.schema.get(keyword), bool):
                rest = document.inner(node, keyword)
                self.all, self.more = (None, rest) if self.listed else (rest, None)
        else:
            self.all = document.inner(node, "items")
            if not isinstance(node.schema.get(keyword), bool):
                self.more = document.inner(node, keyword)
            if self.all is not None:
                # Without a list, the keyword for further items has no effect.
                self.allows_more = True

    @property
    def is_open(self) -> bool:
        """Whether anything may follow the listed items."""
        return self.allows_more and self.more is None


def _are_connect_bytes(old: JsonNode, new: JsonNode) -> bool:
    """Return whether both are bytes of Kafka Connect, which are strings or numbers."""
    return all(each.schema.get("connect.type") == "bytes" for each in (old, new))


def _criterion_accepts(old: JsonNode, new: JsonNode) -> bool:
    if old.criterion == new.criterion or new.criterion == "anyOf":
        return True
    is_single_old, is_single_new = len(old.parts) == 1, len(new.parts) == 1
    return (is_single_old and (is_single_new or new.criterion == "oneOf")) or (
        is_single_new and old.criterion == "allOf"
    )


def _not_covered(found: _Result, kind: str, description: str) -> _Result:
    return [*found, _Difference(kind, description, ())] if found else []


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bounds(old: JsonNode, new: JsonNode) -> _Result:
    """Return the bounds that became narrower."""
    found: _Result = []
    for is_upper, table in ((True, _UPPER), (False, _LOWER)):
        for keyword, word in table[old.kind]:
            before, after = old.schema.get(keyword), new.schema.get(keyword)
            if not _is_number(after):
                continue
            if not _is_number(before):
                found.append(_Difference(f"{word}_ADDED", _ONLY_HERE, (keyword,)))
            elif is_upper and after < before:
                found.append(_Difference(f"{word}_DECREASED", _LESS, (keyword,)))
            elif not is_upper and after > before:
                found.append(_Difference(f"{word}_INCREASED", _MORE, (keyword,)))
    return found


def _patterns(old: JsonNode, new: JsonNode) -> _Result:
    before, after = old.schema.get("pattern"), new.schema.get("pattern")
    if after is None or before == after:
        return []
    kind, description = ("PATTERN_ADDED", _ONLY_HERE)
    if before is not None:
        kind, description = ("PATTERN_CHANGED", _DIFFERS)
    return [_Difference(kind, description, ("pattern",))]


def _numbers(old: JsonNode, new: JsonNode) -> _Result:
    found: _Result = []
    if new.is_integer and not old.is_integer:
        found.append(_Difference("TYPE_NARROWED", _OTHER_TYPE, ()))
    before, after = old.schema.get("multipleOf"), new.schema.get("multipleOf")
    if not _is_number(after) or before == after:
        return found
    kind, description = "MULTIPLE_OF_CHANGED", _DIFFERS
    if not _is_number(before):
        kind, description = "MULTIPLE_OF_ADDED", _ONLY_HERE
    elif _is_multiple(before, after):
        return found
    elif _is_multiple(after, before):
        kind, description = "MULTIPLE_OF_EXPANDED", _MORE
    return [*found, _Difference(kind, description, ("multipleOf",))]


def _is_multiple(value: float, divisor: float) -> bool:
    one, other = (
        Decimal(each.text if isinstance(each, JsonFloat) else each) for each in (value, divisor)
    )
    # Larger ones would need thousands of digits.
    if other == 0 or abs(one.adjusted() - other.adjusted()) > 20:
        return False
    return one % other == 0


def _required(node: JsonNode) -> list[Any]:
    required = node.schema.get("required")
    return required if isinstance(required, list) else []


def _has_default(node: JsonNode, name: str) -> bool:
    properties = node.schema.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(schema, dict) and "default" in schema


def _newly_required(old: JsonNode, new: JsonNode, names: set[str]) -> _Result:
    before = {each for each in _required(old) if isinstance(each, str)}
    return [
        _Difference("REQUIRED_ATTRIBUTE_ADDED", _ONLY_HERE, ("required", name))
        for name in dict.fromkeys(each for each in _required(new) if isinstance(each, str))
        if name in names and name not in before and not _has_default(new, name)
    ]


def _is_open(node: JsonNode) -> bool:
    schema = node.schema
    return schema.get("additionalProperties", True) is True and not schema.get("patternProperties")


def _searching(text: str) -> Pattern | None:
    """Return a pattern that matches texts in which the given one is found; None if it is none."""
    try:
        Pattern(text)
        return Pattern(f"(?s:.*)(?:{text})(?s:.*)")
    except PatternError:
        return None


def _dependent_names(node: JsonNode) -> dict[str, set[str]]:
    """Return the properties that a property needs beside itself, by its name."""
    found: dict[str, set[str]] = {}
    for keyword in ("dependencies", "dependentRequired"):
        value = node.schema.get(keyword)
        for name, names in value.items() if isinstance(value, dict) else ():
            if isinstance(names, list):
                found.setdefault(name, set()).update(map(str, names))
    return found
