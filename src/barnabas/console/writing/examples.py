"""An example of a value for a schema: JSON in the form in which new messages are typed.

Every type of Avro, JSON Schema and Protobuf has a value. Recursive types end at a depth, and the
number of values has a limit, so that a hostile schema makes no endless example.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.serializers.schema import SchemaType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from barnabas.serializers.avro_schema import AvroNode, AvroSchema
    from barnabas.serializers.registry import SchemaRegistry
    from barnabas.serializers.schema import Schema

# Below this depth, what may be left out is left out.
_DEPTH_MAX = 5
# No required part may be deeper.
_DEPTH_END = 60
_VALUES_MAX = 500
# So many required values make an example useless.
_VALUES_END = 10_000
_TIME = "2026-01-31T12:00:00"
_UUID = "6f1c2ad4-8c0e-4a1b-9d2f-0a1b2c3d4e5f"


class _Budget:
    """The number of values that an example may still have."""

    def __init__(self) -> None:
        self._left = _VALUES_MAX

    def is_spent(self, depth: int) -> bool:
        """Count a value; return whether optional parts have to end here.

        Raises:
            ValueError: There are too many values that cannot be left out.
        """
        self._left -= 1
        if self._left < -_VALUES_END:
            raise ValueError(f"it would have over {_VALUES_END} values")
        return self._left < 0 or depth > _DEPTH_MAX


def example_of(registry: SchemaRegistry, schema: Schema, message: str = "") -> str:
    """Return an example as indented JSON.

    Args:
        registry: Has the schemas to which the schema refers.
        schema: The schema.
        message: The type of message of a Protobuf file; "" for the first one.

    Raises:
        RegistryError: A reference was not found, or the schema is malformed.
        ModuleNotFoundError: A package for the type of the schema is missing.
    """
    match schema.kind:
        case SchemaType.AVRO:
            from barnabas.serializers.avro import parse_registered

            value = _Avro(parse_registered(registry, schema)).example()
        case SchemaType.JSON:
            content = msgspec.json.decode(schema.text)
            others = {
                name: msgspec.json.decode(each.text)
                for name, each in registry.referenced(schema).items()
            }
            value = _JsonSchema(content, others).example()
        case SchemaType.PROTOBUF:
            from barnabas.serializers.proto_types import ProtoTypes

            types = ProtoTypes(schema, registry.referenced(schema))
            kind = types.named(message) if message else types.message_class()
            value = _protobuf_message(kind.DESCRIPTOR, _Budget(), ())
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _base64(size: int) -> str:
    return base64.b64encode(bytes(size)).decode()


class _Avro:
    """Examples of one Avro schema."""

    _PLAIN: Mapping[str, Any] = {
        "null": None,
        "boolean": True,
        "int": 1,
        "long": 1,
        "float": 1.5,
        "double": 1.5,
        "string": "text",
        "bytes": _base64(2),
    }
    _LOGICAL: Mapping[str, str] = {
        "timestamp-millis": f"{_TIME}+00:00",
        "timestamp-micros": f"{_TIME}+00:00",
        "local-timestamp-millis": _TIME,
        "local-timestamp-micros": _TIME,
        "date": _TIME[:10],
        "time-millis": _TIME[11:],
        "time-micros": _TIME[11:],
        "uuid": _UUID,
    }

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._budget = _Budget()
        # The names of the records around a value: none of them is repeated within itself.
        self._around: list[str] = []

    def example(self) -> Any:
        """Return an example of the root."""
        return self._of(self._schema.root, 0)

    def _of(self, node: AvroNode, depth: int) -> Any:
        # Imported only for Avro.
        from barnabas.serializers.avro_schema import node_type

        kind, definition = node_type(node, self._schema.names)
        is_end = self._budget.is_spent(depth)
        if isinstance(definition, list):
            return self._of_union(definition, depth, is_end=is_end)
        if not isinstance(definition, dict):
            return self._PLAIN[kind]
        logical = str(definition.get("logicalType", ""))
        if logical == "decimal":
            return _decimal(definition)
        if logical in self._LOGICAL:
            return self._LOGICAL[logical]
        match kind:
            case "record" | "error":
                self._around.append(definition["name"])
                made = {f["name"]: self._of(f["type"], depth + 1) for f in definition["fields"]}
                self._around.pop()
                return made
            case "enum":
                return definition["symbols"][0]
            case "fixed":
                return _base64(definition["size"])
            case "array":
                items = definition["items"]
                return [] if is_end or self._repeats(items) else [self._of(items, depth + 1)]
            case "map":
                values = definition["values"]
                if is_end or self._repeats(values):
                    return {}
                return {"key": self._of(values, depth + 1)}
            case _:
                return self._PLAIN[kind]

    def _repeats(self, node: AvroNode) -> bool:
        """Return whether a type is that of a record around the value."""
        name = node.get("name") if isinstance(node, dict) else node
        return name in self._around

    def _of_union(self, branches: list[Any], depth: int, *, is_end: bool) -> Any:
        """Return a value of the first branch that is not null; null where the example ends."""
        from barnabas.serializers.avro_schema import node_type

        others = [each for each in branches if each != "null" and not self._repeats(each)]
        if "null" in branches and (is_end or not others):
            return None
        branch = next(iter(others), branches[0])
        value = self._of(branch, depth + 1)
        _, definition = node_type(branch, self._schema.names)
        # Among several branches, a name tells which one is meant.
        if len(branches) > 2 and isinstance(definition, dict) and "name" in definition:
            return {definition["name"]: value}
        return value


def _decimal(definition: Mapping[str, Any]) -> str:
    scale, precision = int(definition.get("scale", 0)), int(definition.get("precision", 1))
    return f"{1 if precision > scale else 0:.{scale}f}"


class _JsonSchema:
    """Examples of one JSON Schema."""

    _FORMATS: Mapping[str, str] = {
        "date-time": f"{_TIME}Z",
        "date": _TIME[:10],
        "time": f"{_TIME[11:]}Z",
        "email": "ann@example.com",
        "uuid": _UUID,
        "uri": "https://example.com/",
        "hostname": "example.com",
        "ipv4": "192.0.2.1",
        "ipv6": "2001:db8::1",
        "duration": "PT1H",
    }

    def __init__(self, content: Any, references: Mapping[str, Any]) -> None:
        self._root = content
        self._documents = dict(references)
        for document in (content, *references.values()):
            if isinstance(document, dict) and isinstance(document.get("$id"), str):
                self._documents[document["$id"].rstrip("#")] = document
        self._budget = _Budget()

    def example(self) -> Any:
        """Return an example of the root."""
        return self._of(self._root, self._root, 0)

    def _of(self, schema: Any, document: Any, depth: int) -> Any:
        is_end = self._budget.is_spent(depth)
        if not isinstance(schema, dict) or depth > _DEPTH_END:
            return "any value" if schema is True else None
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("examples", "enum"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]
        if isinstance(schema.get("$ref"), str):
            target, its_document = self._resolved(schema["$ref"], document)
            return self._of(target, its_document, depth + 1)
        choices = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(choices, list) and choices:
            wanted = [each for each in choices if not _is_null(each)] or choices
            own = self._of({**schema, "oneOf": None, "anyOf": None}, document, depth + 1)
            chosen = None if is_end and len(wanted) < len(choices) else wanted[0]
            found = None if chosen is None else self._of(chosen, document, depth + 1)
            if isinstance(own, dict) and isinstance(found, dict) and "properties" in schema:
                return {**own, **found}
            return found
        parts = schema.get("allOf")
        if isinstance(parts, list) and parts:
            return self._of_all(schema, parts, document, depth)
        return self._of_type(schema, document, depth, is_end=is_end)

    def _of_all(self, schema: dict[str, Any], parts: list[Any], document: Any, depth: int) -> Any:
        """Return a value of several schemas: their members together, or the last value."""
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        found: Any = self._of(rest, document, depth + 1) if "properties" in rest else None
        for part in parts:
            value = self._of(part, document, depth + 1)
            found = {**found, **value} if _are_objects(found, value) else value
        return found

    def _of_type(self, schema: dict[str, Any], document: Any, depth: int, *, is_end: bool) -> Any:
        match _type_of(schema):
            case "object":
                required = schema.get("required") or ()
                members = schema.get("properties") or {}
                shown = [name for name in members if not is_end or name in required]
                made = {name: self._of(members[name], document, depth + 1) for name in shown}
                return {**dict.fromkeys((n for n in required if n not in members), "text"), **made}
            case "array":
                return self._of_array(schema, document, depth, is_end=is_end)
            case "string":
                text = self._FORMATS.get(str(schema.get("format")), "text")
                text = text.ljust(min(int(schema.get("minLength") or 0), 1000), "x")
                return text[: schema.get("maxLength")]
            case "integer" | "number" as kind:
                return _number(schema, is_whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return "any value"

    def _of_array(self, schema: dict[str, Any], document: Any, depth: int, *, is_end: bool) -> Any:
        least = min(int(schema.get("minItems") or 0), 20)
        items = schema.get("items")
        first = schema.get("prefixItems") or (items if isinstance(items, list) else [])
        found = [self._of(each, document, depth + 1) for each in first]
        if not isinstance(items, dict):
            return found
        count = max(least - len(found), 0 if is_end or found else 1)
        if schema.get("maxItems") == 0:
            count = 0
        return found + [self._of(items, document, depth + 1) for _ in range(count)]

    def _resolved(self, reference: str, document: Any) -> tuple[Any, Any]:
        """Return the schema to which a reference leads, and its document."""
        name, _, pointer = reference.partition("#")
        if name:
            document = self._documents.get(name, True)
        found = document
        for step in pointer.strip("/").split("/") if pointer else ():
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key, True) if isinstance(found, dict) else True
        return found, document


def _are_objects(one: Any, other: Any) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema, or that of its keywords."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else ""


def _number(schema: Mapping[str, Any], *, is_whole: bool) -> float:
    """Return a number within the limits of a schema."""
    step = schema.get("multipleOf") or 1
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    # In draft 4 these are marks of `minimum` and `maximum`.
    low = low if above in (None, False) else (low if above is True else above)
    high = high if below in (None, False) else (high if below is True else below)
    value = step if is_whole or "multipleOf" in schema else 1.5
    if low is not None and (value < low or (value <= low and above not in (None, False))):
        value = (low // step + 1) * step if above not in (None, False) or low % step else low
    if high is not None and (value > high or (value >= high and below not in (None, False))):
        value = (
            high if below in (None, False) else (high + low) / 2 if low is not None else high - step
        )
    return int(value) if is_whole else value


_WELL_KNOWN: dict[str, Any] = {
    "google.protobuf.Timestamp": f"{_TIME}Z",
    "google.protobuf.Duration": "1.500s",
    "google.protobuf.FieldMask": "name",
    "google.protobuf.Struct": {"key": "value"},
    "google.protobuf.Value": "any value",
    "google.protobuf.ListValue": ["any value"],
    "google.protobuf.Empty": {},
    "google.protobuf.Any": {
        "@type": "type.googleapis.com/google.protobuf.Duration",
        "value": "1.500s",
    },
    "google.protobuf.BoolValue": True,
    "google.protobuf.StringValue": "text",
    "google.protobuf.BytesValue": _base64(2),
    "google.protobuf.Int32Value": 1,
    "google.protobuf.Int64Value": "1",
    "google.protobuf.UInt32Value": 1,
    "google.protobuf.UInt64Value": "1",
    "google.protobuf.FloatValue": 1.5,
    "google.protobuf.DoubleValue": 1.5,
}


def _protobuf_message(kind: Descriptor, budget: _Budget, around: tuple[str, ...]) -> Any:
    """Return an example of a message in Protobuf's JSON.

    Args:
        kind: The type of the message.
        budget: The number of values that are left.
        around: The types of the messages around it: none of them is repeated within itself.
    """
    if kind.full_name in _WELL_KNOWN:
        return _WELL_KNOWN[kind.full_name]
    around = (*around, kind.full_name)
    found: dict[str, Any] = {}
    for field in kind.fields:
        oneof = field.containing_oneof
        # Only one member of a oneof may have a value.
        if oneof is not None and field.name != oneof.fields[0].name:
            continue
        inner = field.message_type
        is_end = budget.is_spent(len(around))
        if inner is not None and not field.is_required:
            # The value of a map is a message within the message of its entry.
            value = inner.fields_by_name.get("value") if inner.GetOptions().map_entry else None
            named = inner if value is None else value.message_type
            repeats = named is not None and named.full_name in around
            if is_end or repeats:
                continue
        found[field.name] = _protobuf_field(field, budget, around)
    return found


def _protobuf_field(field: FieldDescriptor, budget: _Budget, around: tuple[str, ...]) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        example_key = _protobuf_scalar(key)
        name = example_key if isinstance(example_key, str) else str(example_key).lower()
        return {name: _protobuf_single(value, budget, around)}
    single = _protobuf_single(field, budget, around)
    return [single] if field.is_repeated else single


def _protobuf_single(field: FieldDescriptor, budget: _Budget, around: tuple[str, ...]) -> Any:
    if field.message_type is not None:
        return _protobuf_message(field.message_type, budget, around)
    return _protobuf_scalar(field)


def _protobuf_scalar(field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values[0].name
    values: dict[int, Callable[[], Any]] = {
        field.CPPTYPE_STRING: lambda: _base64(2) if field.type == field.TYPE_BYTES else "text",
        field.CPPTYPE_BOOL: lambda: True,
        field.CPPTYPE_FLOAT: lambda: 1.5,
        field.CPPTYPE_DOUBLE: lambda: 1.5,
    }
    return values.get(field.cpp_type, lambda: 1)()
