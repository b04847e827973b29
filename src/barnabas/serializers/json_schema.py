"""JSON Schema with a registry: `JsonSchemaSerializer` and `JsonSchemaDeserializer`.

The payload is JSON, which the schema checks when it is written and when it is read. A schema
without "$schema" is of draft 7, as for Confluent's serializers. `jsonschema-rs` checks: here, its
regular expressions take linear time, and it never fetches a schema from the network.

A few lines of a schema can make 2^60 checks. Each `allOf` or `$ref` applies further schemas to the
same value. Where these branch again, or where a recursive schema applies two schemas to the values
within a value, the work grows exponentially. `jsonschema-rs` cannot be interrupted. So `SchemaWork`
computes from the schema how many schemas apply to a value at each level of nesting, and refuses
values for which that is too much.
Source: the keywords of drafts 4 to 2020-12 that apply schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from barnabas.serializers.avro_schema import check_depth
from barnabas.serializers.errors import SchemaError, SchemaMismatchError, WireFormatError
from barnabas.serializers.json_references import (
    BASE,
    JsonPlace,
    JsonReferences,
    base_of,
    parts_of,
    reference_uris,
)
from barnabas.serializers.lookups import SchemaDeserializer, SchemaSerializer
from barnabas.serializers.schema import HEADER_BYTES, Schema, SchemaType, encode_header, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.serializers.lookups import SerializerOptions
    from barnabas.serializers.registry import SchemaRegistry

# Limit for the schemas that are applied to all parts of a value.
_CHECKS_MAX = 20_000_000
# Schemas that apply fewer schemas to each part of a value need no count of these parts.
_CHEAP_MAX = 1000
# Levels of nesting for which the number is computed, and the limit for the steps of that.
_LEVELS_MAX = 64
_STEPS_MAX = 1_000_000
# Larger numbers count as this one.
_HUGE = 10**12

# Keywords for the value itself, and for the values within it.
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME = ("not", "if", "then", "else")
_SAME_MAPS = ("dependentSchemas", "dependencies")
_INNER = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "items"),
    *("additionalItems", "unevaluatedItems", "contains"),
)
# Of these schemas, each value gets one at most.
_INNER_CHOICES = ("properties", "items", "prefixItems")
# Limit for values in error messages.
_SHOWN_CHARACTERS = 200


class JsonSchemaSerializer(SchemaSerializer):
    """Serialize values as JSON that a schema has checked.

    Values are all that JSON can hold, dataclasses, times and `msgspec` structs included.

    Args:
        registry: The registry.
        schema: JSON text, or the same as a dictionary; a `Schema` if it has references. None for
            the latest schema of the subject.
        options: How the schema is found in the registry; see `SerializerOptions`.

    Raises:
        SchemaError: The schema is invalid.
        RegistryError: A reference was not found.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | Schema | None = None,
        **options: Unpack[SerializerOptions],
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            schema = Schema(schema_text(schema), SchemaType.JSON)
        super().__init__(registry, schema, options)
        if schema is not None:
            _validator(registry, schema)

    @property
    def record_name(self) -> str:
        """The title of the schema."""
        content = {} if self._schema is None else _json(self._schema.text)
        title = content.get("title", "") if isinstance(content, dict) else ""
        return title if isinstance(title, str) else ""

    def encoder(self, subject: str) -> Callable[[Any], bytes]:
        """Register the schema; return a function from a value to a record's bytes."""
        schema_id, schema = self.registered(subject)
        header, check = encode_header(schema_id), _validator(self.registry, schema)

        def encode(value: Any) -> bytes:
            try:
                plain = msgspec.to_builtins(value)
                data = msgspec.json.encode(plain)
            except (TypeError, ValueError, RecursionError) as error:
                raise SchemaMismatchError(f"the value is not JSON: {error}") from None
            check(plain)
            return header + data

        return encode


class JsonSchemaDeserializer(SchemaDeserializer):
    """Deserialize JSON: dictionaries, lists, strings, numbers, booleans and None.

    Args:
        registry: The registry.
        reader_schema: A schema that all values must fit. None for the schema of each record.

    Raises:
        SchemaError: The reader's schema is invalid.
    """

    def __init__(
        self, registry: SchemaRegistry, reader_schema: str | dict[str, Any] | None = None
    ) -> None:
        super().__init__(registry)
        self._check: Callable[[Any], None] | None = None
        if reader_schema is not None:
            self._check = _validator(registry, Schema(schema_text(reader_schema), SchemaType.JSON))

    def decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from the bytes of a record to its value."""
        check = self._check or _validator(self.registry, schema)

        def decode(data: bytes) -> Any:
            try:
                value = msgspec.json.decode(memoryview(data)[HEADER_BYTES:])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise WireFormatError(f"the value is not JSON: {error}") from None
            check(value)
            return value

        return decode


def _validator(registry: SchemaRegistry, schema: Schema) -> Callable[[Any], None]:
    """Return a function that raises SchemaMismatchError for values that do not fit.

    Raises:
        SchemaError: The schema is invalid, or of another type.
        RegistryError: A reference was not found.
    """
    import jsonschema_rs

    if schema.kind is not SchemaType.JSON:
        raise SchemaError(f"the schema is of type {schema.kind}, not JSON: use its deserializer")
    content = _json(schema.text)
    references = {name: _json(each.text) for name, each in registry.referenced(schema).items()}
    work = SchemaWork(content, references)
    has_draft = isinstance(content, dict) and "$schema" in content
    make = jsonschema_rs.validator_for if has_draft else jsonschema_rs.Draft7Validator
    try:
        resources = [
            (uri, each)
            for name, each in references.items()
            for uri in {name, *reference_uris(content, name)}
        ]
        known = jsonschema_rs.Registry(resources, retriever=_refuse)
        validator = make(
            content,
            retriever=_refuse,
            registry=known,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(f"the JSON Schema is invalid: {_first_line(error)}") from None

    def check(value: Any) -> None:
        work.check(value)
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            field = _path(error.instance_path)
            where = f"field {field}" if field else "the value"
            raise SchemaMismatchError(f"{where}: {_first_line(error)}", field) from None
        except ValueError as error:
            raise SchemaMismatchError(f"the value cannot be checked: {error}") from None

    return check


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not among the references of the schema")


def _json(text: str) -> Any:
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema is not JSON: {error}") from None
    check_depth(content)
    return content


def _path(parts: list[str | int]) -> str:
    """Return a path such as items[2].name."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:_SHOWN_CHARACTERS]


class SchemaWork:
    """The number of checks that a schema makes.

    Args:
        schema: The JSON of the schema.
        references: The JSON of schemas to which it refers, by their URIs.

    Raises:
        SchemaError: A reference has no target, or the work has no limit.
    """

    def __init__(self, schema: Any, references: Mapping[str, Any]) -> None:
        self._levels = _Graph(schema, references).levels()
        if self._levels[0] > _CHECKS_MAX:
            raise SchemaError(
                f"the JSON Schema applies more than {_CHECKS_MAX} schemas to a value: it combines "
                f"references that refer to several schemas again"
            )
        self._is_cheap = max(self._levels) <= _CHEAP_MAX

    def check(self, value: Any) -> None:
        """Check that a value does not need too many checks.

        Raises:
            SchemaMismatchError: It needs more than the limit.
        """
        if self._is_cheap:
            return
        checks, depth, level = 0, 0, [value]
        while level:
            checks += len(level) * self._at(depth)
            if checks > _CHECKS_MAX:
                raise SchemaMismatchError(
                    f"the value needs more than {_CHECKS_MAX} checks by its schema, which applies "
                    f"{self._at(depth)} schemas to each value at level {depth}"
                )
            level = [inner for each in level for inner in parts_of(each)]
            depth += 1

    def _at(self, depth: int) -> int:
        """Return how many schemas apply to a value at a level; after the last one, they grow on."""
        levels = self._levels
        if depth < len(levels):
            return levels[depth]
        last, before = levels[-1], max(1, levels[-2]) if len(levels) > 1 else 1
        growth = max(1.0, last / before)
        further = depth - len(levels) + 1
        return _HUGE if growth ** min(further, 1000) * last > _HUGE else int(last * growth**further)


class _Graph:
    """The schemas that each schema applies to the same value, and to the values within it."""

    def __init__(self, schema: Any, references: Mapping[str, Any]) -> None:
        self._references = JsonReferences(schema, references)
        # By number of the schema: numbers of others. For inner values, groups of alternatives.
        self._same: list[list[int]] = []
        self._inner: list[list[list[int]]] = []
        self._numbers: dict[int, int] = {}
        self._pending: list[JsonPlace] = []
        self._root = self._number(schema, BASE)
        while self._pending:
            self._connect(self._pending.pop())

    def levels(self) -> list[int]:
        """Return how many schemas apply to a value at each level of nesting, from the outermost."""
        order = self._ordered()
        edges = sum(len(each) for each in self._same) + sum(
            len(group) for groups in self._inner for group in groups
        )
        counts = [1] * len(self._same)
        for node in order:
            counts[node] = min(_HUGE, 1 + sum(counts[each] for each in self._same[node]))
        found = [counts[self._root]]
        for _ in range(min(_LEVELS_MAX, _STEPS_MAX // (edges + len(counts) + 1))):
            outer = [0] * len(counts)
            for node in order:
                inner = sum(max(counts[each] for each in group) for group in self._inner[node])
                same = sum(outer[each] for each in self._same[node])
                outer[node] = min(_HUGE, inner + same)
            counts = outer
            found.append(counts[self._root])
            if not any(counts):
                break
        return found

    def _ordered(self) -> list[int]:
        """Return all schemas, each behind those that it applies to the same value.

        Raises:
            SchemaError: A schema applies itself to the same value again.
        """
        order: list[int] = []
        # 1: begun, 2: in the order.
        states = [0] * len(self._same)
        for start in range(len(self._same)):
            pending = [start]
            while pending:
                node = pending[-1]
                if states[node] == 0:
                    states[node] = 1
                    for each in self._same[node]:
                        if states[each] == 1:
                            raise SchemaError("the JSON Schema refers to itself without an end")
                    pending += [each for each in self._same[node] if states[each] == 0]
                    continue
                pending.pop()
                if states[node] == 1:
                    states[node] = 2
                    order.append(node)
        return order

    def _number(self, schema: Any, base: str) -> int:
        """Return the number of a schema, which is new if it was not met yet."""
        key = id(schema)
        if not isinstance(schema, dict):
            # A boolean, or what `jsonschema-rs` refuses.
            schema, key = {}, 0
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._same)
            self._same.append([])
            self._inner.append([])
            self._pending.append(JsonPlace(schema, base_of(schema, base)))
        return number

    def _connect(self, place: JsonPlace) -> None:
        schema, base = place
        number = self._numbers.get(id(schema), 0)
        if not schema:
            return

        def numbers(values: Any) -> list[int]:
            return [self._number(each, base) for each in parts_of(values)]

        same, inner = self._same[number], self._inner[number]
        for keyword in _SAME_LISTS:
            same += numbers(schema.get(keyword))
        for keyword in _SAME:
            if keyword in schema:
                same.append(self._number(schema[keyword], base))
        for keyword in _SAME_MAPS:
            same += numbers(schema.get(keyword))
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(schema.get(keyword), str):
                same += self._targets(keyword, schema[keyword], base)
        for keyword in _INNER:
            if isinstance(schema.get(keyword), dict):
                inner.append([self._number(schema[keyword], base)])
        inner += [[each] for each in numbers(schema.get("patternProperties"))]
        for keyword in _INNER_CHOICES:
            if keyword != "items" or isinstance(schema.get(keyword), list):
                choices = numbers(schema.get(keyword))
                if choices:
                    inner.append(choices)

    def _targets(self, keyword: str, reference: str, base: str) -> list[int]:
        found = self._references.targets(keyword, reference, base)
        return [self._number(each.schema, each.base) for each in found]
