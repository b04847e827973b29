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

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.registry.schemas.json_rules import (
    ADDED_NOT_COVERED,
    ADDED_TO_OPEN,
    DIFFERS,
    FEWER_ELEMENTS,
    MORE_ELEMENTS,
    ONLY_HERE,
    OTHER_TYPE,
    REMOVED_FROM_CLOSED,
    REMOVED_NOT_COVERED,
    REQUIRED_ADDED,
    JsonDifference,
    Result,
    are_connect_bytes,
    below,
    criterion_accepts,
    dependent_names,
    is_open_object,
    narrower_bounds,
    narrower_numbers,
    narrower_patterns,
    newly_required,
    not_covered,
    property_has_default,
    required_names,
    searching_pattern,
)
from barnabas.registry.schemas.json_values import ValueNumbers
from barnabas.registry.schemas.limits import MESSAGES_MAX, Budget, Steps, run
from barnabas.registry.schemas.matching import maximum_matching
from barnabas.registry.schemas.model import Difference

if TYPE_CHECKING:
    from barnabas.registry.schemas.json_model import JsonDocument, JsonNode
    from barnabas.settings.pattern import Pattern


def json_differences(reader: JsonDocument, writer: JsonDocument) -> list[Difference]:
    """Return what a writer may write that the reader refuses.

    Raises:
        InvalidSchemaError: The comparison has too many steps.
    """
    comparison = _Comparison(reader, writer, ValueNumbers())
    found = run(comparison.compare(writer.root, reader.root))
    return [Difference(each.kind, each.description, "#/" + "/".join(each.path)) for each in found]


class _Comparison:
    """Compares a writer's schemas (the old ones) with those of a reader (the new ones)."""

    def __init__(self, reader: JsonDocument, writer: JsonDocument, numbers: ValueNumbers) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = numbers
        # None: the comparison is not over.
        self._pairs: dict[tuple[int, int], Result | None] = {}
        self._swapped: _Comparison | None = None
        self._patterns: dict[str, Pattern | None] = {}
        self._budget = Budget()

    def compare(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        """Return the differences of two schemas."""
        self._budget.spend()
        pair = (id(old), id(new))
        if pair in self._pairs:
            return self._pairs[pair] or []
        self._pairs[pair] = None
        found: Result = yield self._compare_new_pair(old, new)
        self._pairs[pair] = found = found[:MESSAGES_MAX]
        return found

    def _compare_new_pair(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        if (old.kind == "combined") != (new.kind == "combined"):
            is_matched: bool = yield self._matches_one(old, new)
            if is_matched:
                return []
        if old.kind != new.kind:
            is_accepted = old.kind == "false" or new.kind in ("empty", "true")
            if is_accepted or are_connect_bytes(old, new):
                return []
            return [JsonDifference("TYPE_CHANGED", OTHER_TYPE, ())]
        found = narrower_bounds(old, new)
        match old.kind:
            case "string":
                found += narrower_patterns(old, new)
            case "number":
                found += narrower_numbers(old, new)
            case "enum":
                found += self._enums(old, new)
            case "const":
                if self._numbers.of(old.schema["const"]) != self._numbers.of(new.schema["const"]):
                    found.append(JsonDifference("ENUM_ARRAY_CHANGED", OTHER_TYPE, ("const",)))
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

    def _enums(self, old: JsonNode, new: JsonNode) -> Result:
        self._budget.spend((len(old.schema["enum"]) + len(new.schema["enum"])) // 8)
        before, after = (
            {self._numbers.of(each) for each in values} if isinstance(values, list) else set()
            for values in (old.schema["enum"], new.schema["enum"])
        )
        if before <= after:
            return []
        kind = "ENUM_ARRAY_NARROWED" if after <= before else "ENUM_ARRAY_CHANGED"
        description = FEWER_ELEMENTS if after <= before else OTHER_TYPE
        return [JsonDifference(kind, description, ("enum",))]

    def _nots(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        """Compare the schemas of two `not`, the other way round."""
        if self._swapped is None:
            self._swapped = _Comparison(self._writer, self._reader, self._numbers)
            self._swapped._swapped = self
            self._swapped._budget = self._budget
        before, after = self._writer.inner(old, "not"), self._reader.inner(new, "not")
        if before is None or after is None or not (yield self._swapped.compare(after, before)):
            return []
        return [JsonDifference("NOT_TYPE_EXTENDED", MORE_ELEMENTS, ("not",))]

    def _combined(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        if not criterion_accepts(old, new):
            return [JsonDifference("COMBINED_TYPE_CHANGED", OTHER_TYPE, ())]
        before = self._distinct(self._writer, old)
        after = self._distinct(self._reader, new)
        found: Result = []
        if len(before) < len(after) and new.criterion == "allOf":
            found.append(JsonDifference("PRODUCT_TYPE_EXTENDED", MORE_ELEMENTS, ()))
        if len(before) > len(after) and old.criterion != "allOf":
            found.append(JsonDifference("SUM_TYPE_NARROWED", FEWER_ELEMENTS, ()))
        edges: list[list[int]] = []
        for each in before:
            edges.append([])
            for index, other in enumerate(after):
                if not (yield self.compare(each, other)):
                    edges[-1].append(index)
        if maximum_matching(edges, self._budget) < min(len(before), len(after)):
            found.append(JsonDifference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", OTHER_TYPE, ()))
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

    def _objects(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        before = self._writer.inner_map(old, "properties")
        after = self._reader.inner_map(new, "properties")
        required = required_names(new)
        self._budget.spend(len(before) + len(after) + len(required))
        found = newly_required(old, new, before.keys() & after.keys())
        for name in dict.fromkeys((*before, *after)):
            path = ("properties", name)
            if name not in after:
                found += below((yield self._removed_property(name, before[name], new)), *path)
            elif name not in before:
                added = _Added(name, after[name], name in required)
                found += below((yield self._added_property(added, old, new)), *path)
            else:
                found += below((yield self.compare(before[name], after[name])), *path)
            if len(found) > MESSAGES_MAX:
                break
        found += yield self._dependencies(old, new)
        found += yield self._additional(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
        found += yield self._unevaluated(old, new, "unevaluatedProperties")
        return found

    def _removed_property(self, name: str, before: JsonNode, new: JsonNode) -> Steps[Result]:
        if is_open_object(new):
            return []
        covering = self._covering(self._reader, new, name)
        if covering is None:
            if before.kind == "false":
                return []
            return [
                JsonDifference(
                    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", REMOVED_FROM_CLOSED, ()
                )
            ]
        kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return not_covered((yield self.compare(before, covering)), kind, REMOVED_NOT_COVERED)

    def _added_property(self, added: _Added, old: JsonNode, new: JsonNode) -> Steps[Result]:
        name, after, is_required = added
        has_default = property_has_default(new, name)
        if is_open_object(old):
            if after.kind in ("empty", "true"):
                return []
            word = "REQUIRED_PROPERTY" if is_required else "OPTIONAL_PROPERTY"
            if is_required and has_default:
                word = "REQUIRED_PROPERTY_WITH_DEFAULT"
            return [JsonDifference(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL", ADDED_TO_OPEN, ())]
        found: Result = []
        covering = self._covering(self._writer, old, name)
        if covering is not None:
            kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            differences: Result = yield self.compare(covering, after)
            found += not_covered(differences, kind, ADDED_NOT_COVERED)
        if is_required and not has_default:
            kind = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
            found.append(JsonDifference(kind, REQUIRED_ADDED, ()))
        return found

    def _covering(self, document: JsonDocument, node: JsonNode, name: str) -> JsonNode | None:
        """Return the schema that a partially open object has for a property it does not list."""
        patterns = node.schema.get("patternProperties")
        for text in patterns if isinstance(patterns, dict) else ():
            self._budget.spend()
            if text not in self._patterns:
                self._patterns[text] = searching_pattern(text)
            pattern = self._patterns[text]
            if pattern is not None and pattern.matches(name):
                return document.inner_named(node, "patternProperties", text)
        if isinstance(node.schema.get("additionalProperties"), bool):
            return None
        return document.inner(node, "additionalProperties")

    def _dependencies(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        found: Result = []
        before, after = dependent_names(old), dependent_names(new)
        for name, names in after.items():
            path = ("dependencies", name)
            if name not in before:
                found.append(JsonDifference("DEPENDENCY_ARRAY_ADDED", ONLY_HERE, path))
            elif not names <= before[name]:
                is_extended = names >= before[name]
                kind = "DEPENDENCY_ARRAY_EXTENDED" if is_extended else "DEPENDENCY_ARRAY_CHANGED"
                found.append(JsonDifference(kind, MORE_ELEMENTS if is_extended else DIFFERS, path))
        for keyword in ("dependencies", "dependentSchemas"):
            known = self._writer.inner_map(old, keyword)
            for name, schema in self._reader.inner_map(new, keyword).items():
                path = ("dependencies", name)
                if name not in known:
                    found.append(JsonDifference("DEPENDENCY_SCHEMA_ADDED", ONLY_HERE, path))
                else:
                    found += below((yield self.compare(known[name], schema)), *path)
        return found

    def _additional(self, old: JsonNode, new: JsonNode, keyword: str, word: str) -> Steps[Result]:
        """Compare what is allowed besides the listed properties or items."""
        before, after = old.schema.get(keyword, True), new.schema.get(keyword, True)
        if before is False or after is True:
            return []
        if after is False:
            return [JsonDifference(f"{word}_REMOVED", ONLY_HERE, (keyword,))]
        if before is True:
            return [JsonDifference(f"{word}_NARROWED", FEWER_ELEMENTS, (keyword,))]
        one, other = self._writer.inner(old, keyword), self._reader.inner(new, keyword)
        if one is None or other is None:
            return []
        return below((yield self.compare(one, other)), keyword)

    def _unevaluated(self, old: JsonNode, new: JsonNode, keyword: str) -> Steps[Result]:
        word = "UNEVALUATED_PROPERTIES" if keyword.endswith("Properties") else "UNEVALUATED_ITEMS"
        found: Result = yield self._additional(old, new, keyword, word)
        return found

    def _arrays(self, old: JsonNode, new: JsonNode) -> Steps[Result]:
        found: Result = []
        before, after = _Items(self._writer, old), _Items(self._reader, new)
        if after.all is not None:
            if before.all is None:
                found.append(JsonDifference("SCHEMA_ADDED", OTHER_TYPE, ("items",)))
            else:
                found += below((yield self.compare(before.all, after.all)), "items")
        for index in range(max(len(before.listed), len(after.listed))):
            differences: Result
            if index >= len(after.listed):
                differences = yield self._removed_item(before.listed[index], after)
            elif index >= len(before.listed):
                differences = yield self._added_item(after.listed[index], before)
            else:
                differences = yield self.compare(before.listed[index], after.listed[index])
            found += below(differences, f"items/{index}")
            if len(found) > MESSAGES_MAX:
                break
        found += yield self._more_items(before, after)
        found += yield self._unevaluated(old, new, "unevaluatedItems")
        if new.schema.get("uniqueItems") is True and old.schema.get("uniqueItems") is not True:
            found.append(JsonDifference("UNIQUE_ITEMS_ADDED", ONLY_HERE, ("uniqueItems",)))
        return found

    def _removed_item(self, before: JsonNode, after: _Items) -> Steps[Result]:
        if after.is_open:
            return []
        if after.more is None:
            if before.kind == "false":
                return []
            return [
                JsonDifference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", REMOVED_FROM_CLOSED, ())
            ]
        kind = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return not_covered((yield self.compare(before, after.more)), kind, REMOVED_NOT_COVERED)

    def _added_item(self, after: JsonNode, before: _Items) -> Steps[Result]:
        if before.is_open:
            if after.kind in ("empty", "true"):
                return []
            return [JsonDifference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", ADDED_TO_OPEN, ())]
        if before.more is None:
            return []
        kind = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return not_covered((yield self.compare(before.more, after)), kind, ADDED_NOT_COVERED)

    def _more_items(self, before: _Items, after: _Items) -> Steps[Result]:
        """Compare what is allowed after the listed items."""
        path = ("additionalItems",)
        if not before.allows_more or (after.allows_more and after.more is None):
            return []
        if not after.allows_more:
            return [JsonDifference("ADDITIONAL_ITEMS_REMOVED", ONLY_HERE, path)]
        if before.more is None or after.more is None:
            return [JsonDifference("ADDITIONAL_ITEMS_NARROWED", FEWER_ELEMENTS, path)]
        return below((yield self.compare(before.more, after.more)), *path)


class _Added(NamedTuple):
    """A property that only the reader's schema has."""

    name: str
    schema: JsonNode
    is_required: bool


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
