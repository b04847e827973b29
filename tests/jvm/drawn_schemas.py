"""Pairs of schemas: a drawn one, and what people make of it when they change it.

A seed decides. Changes are those of daily work: fields are added, removed, renamed and moved, with
and without defaults; types become wider, narrower, or others; enums get and lose values.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

Node = Any


class SchemaPair(NamedTuple):
    """The schema of a writer, and a changed one of a reader; both as texts."""

    kind: str
    writer: str
    reader: str


def drawn_pairs(seed: int, count: int) -> list[SchemaPair]:
    """Return pairs of all kinds in turn."""
    rng = Random(seed)
    makers = (("AVRO", _avro_pair), ("JSON", _json_pair), ("PROTOBUF", _proto_pair))
    pairs = []
    for index in range(count):
        kind, maker = makers[index % len(makers)]
        pairs.append(SchemaPair(kind, *maker(rng)))
    return pairs


# Avro.

_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL = (
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
)
_DEFAULTS = {
    "boolean": False, "int": 0, "long": 0, "float": 0.5, "double": 1.0, "bytes": "", "string": "x",
}  # fmt: skip


class _Avro:
    """Draws types; each named type has a name of its own."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.names: list[str] = []

    def type(self, depth: int) -> Node:
        rng = self.rng
        drawn = rng.random()
        if depth <= 0 or drawn < 0.4:
            return copy.deepcopy(rng.choice((*_PRIMITIVES, *_LOGICAL)))
        if drawn < 0.5 and self.names:
            return rng.choice(self.names)
        maker: Callable[[int], Node] = rng.choice(
            (self.record, self.enum, self.fixed, self.array, self.map, self.union)
        )
        return maker(depth - 1)

    def record(self, depth: int) -> Node:
        name = self.name("R")
        fields = [self.field(f"f{index}", depth) for index in range(self.rng.randint(1, 4))]
        made: Node = {"type": "record", "name": name, "fields": fields}
        if self.rng.random() < 0.2:
            made["namespace"] = self.rng.choice(("a", "b.c"))
        self.names.append(f"{made['namespace']}.{name}" if "namespace" in made else name)
        return made

    def enum(self, depth: int) -> Node:
        made: Node = {
            "type": "enum",
            "name": self.name("E"),
            "symbols": list("ABCD"[: self.rng.randint(1, 4)]),
        }
        if self.rng.random() < 0.3:
            made["default"] = "A"
        return made

    def fixed(self, depth: int) -> Node:
        return {"type": "fixed", "name": self.name("X"), "size": self.rng.randint(1, 4)}

    def array(self, depth: int) -> Node:
        return {"type": "array", "items": self.type(depth)}

    def map(self, depth: int) -> Node:
        return {"type": "map", "values": self.type(depth)}

    def union(self, depth: int) -> Node:
        found = ["null", *self.rng.sample(_PRIMITIVES, self.rng.randint(0, 2))]
        if self.rng.random() < 0.5:
            found.append(self.record(depth))
        self.rng.shuffle(found)
        return found

    def field(self, name: str, depth: int) -> Node:
        made: Node = {"name": name, "type": self.type(depth)}
        kind = made["type"]
        if self.rng.random() < 0.3 and isinstance(kind, str) and kind in _DEFAULTS:
            made["default"] = _DEFAULTS[kind]
        elif isinstance(kind, list) and kind[0] == "null":
            made["default"] = None
        return made

    def name(self, letter: str) -> str:
        return f"{letter}{self.rng.getrandbits(32):x}"


def _avro_pair(rng: Random) -> tuple[str, str]:
    maker = _Avro(rng)
    old = maker.record(3)
    new = copy.deepcopy(old)
    maker.names.clear()
    for _ in range(rng.randint(1, 3)):
        _change_avro(rng, new, maker)
    return json.dumps(old), json.dumps(new)


def _avro_nodes(node: Node) -> list[Node]:
    """Return the objects of a schema that can be changed."""
    found = []
    if isinstance(node, list):
        for each in node:
            found += _avro_nodes(each)
    elif isinstance(node, dict):
        found.append(node)
        for field in node.get("fields", ()):
            found.append(field)
            found += _avro_nodes(field["type"])
        for key in ("items", "values"):
            found += _avro_nodes(node.get(key))
    return found


def _change_avro(rng: Random, schema: Node, maker: _Avro) -> None:
    node = rng.choice(_avro_nodes(schema))
    kind = node.get("type")
    if kind == "record" and "fields" in node:
        _change_avro_record(rng, node, maker)
    elif kind == "enum":
        _change_list(rng, node["symbols"], ["C", "D", "Z"])
        node["symbols"] = node["symbols"] or ["Q"]
        if rng.random() < 0.3 or node.get("default") not in node["symbols"]:
            node["default"] = node["symbols"][0]
    elif kind == "fixed":
        node[rng.choice(("size", "size", "doc"))] = rng.randint(1, 5)
        node.setdefault("size", 1)
    elif isinstance(kind, str) and kind in _PRIMITIVES and "name" not in node:
        node.pop("logicalType", None)
    elif "name" in node:
        _change_avro_field(rng, node, maker)
    else:
        key = "items" if "items" in node else "values"
        node[key] = rng.choice(_PRIMITIVES)


def _change_avro_record(rng: Random, node: Node, maker: _Avro) -> None:
    fields = node["fields"]
    match rng.randint(0, 5):
        case 0:
            fields.append(maker.field(f"g{rng.randint(0, 9)}", 1))
        case 1:
            name = f"h{rng.randint(0, 9)}"
            fields.append({"name": name, "type": ["null", "int"], "default": None})
        case 2 if fields:
            del fields[rng.randrange(len(fields))]
        case 3:
            rng.shuffle(fields)
        case 4:
            if rng.random() < 0.5:
                node["aliases"] = [node["name"]]
            node["name"] = maker.name("N")
        case _:
            node["namespace"] = "other"
    seen: set[str] = set()
    node["fields"] = [f for f in fields if not (f["name"] in seen or seen.add(f["name"]))]


def _change_avro_field(rng: Random, field: Node, maker: _Avro) -> None:
    kind = field["type"]
    match rng.randint(0, 5):
        case 0:
            field["aliases"], field["name"] = [field["name"]], f"r{field['name']}"
        case 1:
            field["name"] = f"r{field['name']}"
        case 2:
            field["type"] = rng.choice(_PRIMITIVES)
            field.pop("default", None)
        case 3 if isinstance(kind, list):
            _change_list(rng, kind, ["null", "int", "string"])
            field.pop("default", None)
        case 3 | 4 if not isinstance(kind, list):
            field["type"] = [kind] if kind == "null" else ["null", kind]
            field.pop("default", None)
        case _:
            field.pop("default", None)


def _change_list(rng: Random, values: list[Any], more: list[Any]) -> None:
    """Add a value, remove one, or shuffle them."""
    match rng.randint(0, 2):
        case 0:
            new = rng.choice(more)
            if new not in values:
                values.append(new)
        case 1 if values:
            del values[rng.randrange(len(values))]
        case _:
            rng.shuffle(values)


# JSON Schema.

_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def _json_node(rng: Random, depth: int) -> Node:
    drawn = rng.random()
    if depth <= 0 or drawn < 0.4:
        return _json_scalar(rng)
    if drawn < 0.75:
        return _json_object(rng, depth)
    if drawn < 0.87:
        made: Node = {"type": "array"}
        made["items"] = (
            [_json_node(rng, depth - 1) for _ in range(rng.randint(1, 3))]
            if rng.random() < 0.3
            else _json_node(rng, depth - 1)
        )
        return made
    word = rng.choice(("anyOf", "oneOf", "allOf"))
    return {word: [_json_node(rng, depth - 1) for _ in range(rng.randint(1, 3))]}


def _json_scalar(rng: Random) -> Node:
    kind = rng.choice(("string", "string", "integer", "number", "boolean", "null"))
    made: Node = {"type": kind}
    if kind in _BOUNDS and rng.random() < 0.4:
        made[rng.choice(_BOUNDS[kind])] = rng.randint(1, 9)
    if kind == "string" and rng.random() < 0.2:
        made["enum"] = rng.sample(["a", "b", "c", "d"], rng.randint(1, 3))
    elif kind == "string" and rng.random() < 0.1:
        made["pattern"] = rng.choice(("^a", "^b"))
    elif rng.random() < 0.1:
        made["type"] = [kind, "null"] if kind != "null" else ["null", "string"]
    return made


def _json_object(rng: Random, depth: int) -> Node:
    names = rng.sample(["p", "q", "r", "s_x"], rng.randint(1, 3))
    made: Node = {
        "type": "object",
        "properties": {name: _json_node(rng, depth - 1) for name in names},
    }
    if rng.random() < 0.4:
        made["required"] = rng.sample(names, rng.randint(1, len(names)))
    drawn = rng.random()
    if drawn < 0.35:
        made["additionalProperties"] = False
    elif drawn < 0.5:
        made["additionalProperties"] = _json_node(rng, 0)
    if rng.random() < 0.1:
        made["patternProperties"] = {"^s_": _json_node(rng, 0)}
    return made


def _json_pair(rng: Random) -> tuple[str, str]:
    old = _json_object(rng, 2)
    new = copy.deepcopy(old)
    for _ in range(rng.randint(1, 2)):
        _change_json(rng, rng.choice(_json_nodes(new)))
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    return json.dumps(draft | old), json.dumps(draft | new)


def _json_nodes(node: Node) -> list[Node]:
    found = [node]
    for each in node.get("properties", {}).values():
        found += _json_nodes(each)
    items = node.get("items")
    for each in items if isinstance(items, list) else [items] if items else []:
        found += _json_nodes(each)
    for word in ("anyOf", "oneOf", "allOf"):
        for each in node.get(word, ()):
            found += _json_nodes(each)
    return found


def _change_json(rng: Random, node: Node) -> None:
    for word in ("anyOf", "oneOf", "allOf"):
        if word in node:
            _change_json_choice(rng, node, word)
            return
    kind = node.get("type")
    if kind == "object" and "properties" in node:
        _change_json_object(rng, node)
        return
    drawn = rng.randint(0, 3)
    if drawn == 0:
        node.clear()
        node.update(_json_scalar(rng))
    elif drawn == 1 and isinstance(kind, str) and kind in _BOUNDS:
        bound = rng.choice(_BOUNDS[kind])
        if bound in node and rng.random() < 0.3:
            del node[bound]
        else:
            node[bound] = rng.randint(1, 12)
    elif drawn == 2 and "enum" in node:
        _change_list(rng, node["enum"], ["e", "f"])
        node["enum"] = node["enum"] or ["a"]
    elif isinstance(kind, str):
        node["type"] = {"integer": "number", "number": "integer"}.get(kind, [kind, "boolean"])
        if kind == "boolean":
            node["type"] = "string"
    else:
        node["description"] = "new"


def _change_json_choice(rng: Random, node: Node, word: str) -> None:
    drawn = rng.randint(0, 3)
    if drawn == 0:
        node[word].append(_json_scalar(rng))
    elif drawn == 1 and len(node[word]) > 1:
        del node[word][0]
    elif drawn == 2:
        rng.shuffle(node[word])
    else:
        node[rng.choice(("anyOf", "oneOf", "allOf"))] = node.pop(word)


def _change_json_object(rng: Random, node: Node) -> None:
    properties = node["properties"]
    match rng.randint(0, 6):
        case 0:
            properties[rng.choice(("n", "s_y"))] = _json_node(rng, 0)
        case 1:
            properties["n"] = {**_json_scalar(rng), "default": None}
            node["required"] = [*node.get("required", ()), "n"]
        case 2 if len(properties) > 1:
            name = rng.choice(sorted(properties))
            del properties[name]
            node["required"] = [each for each in node.get("required", ()) if each != name]
            if not node["required"]:
                del node["required"]
        case 3:
            names = set(node.get("required", ())) ^ {rng.choice(sorted(properties))}
            node["required"] = sorted(names)
            if not names:
                del node["required"]
        case 4:
            node["additionalProperties"] = rng.choice((True, False, {"type": "string"}))
        case 5:
            node.pop("additionalProperties", None)
        case _:
            node["title"] = "new"


# Protobuf.

_SCALARS = (
    *("int32", "int64", "uint32", "sint32", "bool", "string", "bytes", "fixed32", "sfixed32"),
    *("fixed64", "float", "double"),
)


class _Field:
    """A field of a message; `oneof` is the name of its oneof, or ""."""

    def __init__(self, rng: Random, number: int, types: list[str]) -> None:
        drawn = rng.random()
        self.number = number
        self.name = f"f{number}"
        self.label = "repeated " if drawn < 0.15 else "optional " if drawn < 0.25 else ""
        self.type = rng.choice(_SCALARS) if rng.random() < 0.7 else rng.choice((*types, "Color"))
        self.oneof = ""
        if drawn > 0.9:
            self.type = f"map<string, {self.type}>"
        elif drawn > 0.75:
            self.oneof = "choice"

    def line(self) -> str:
        label = "" if self.oneof or self.type.startswith("map") else self.label
        return f"{label}{self.type} {self.name} = {self.number};"


def _proto_pair(rng: Random) -> tuple[str, str]:
    names = ["Main", "Other", "Third"][: rng.randint(1, 3)]
    old = {
        name: [_Field(rng, number, names) for number in range(1, rng.randint(2, 6))]
        for name in names
    }
    values = ["RED", "GREEN", "BLUE"]
    new, new_values = copy.deepcopy(old), list(values)
    package = "shop"
    for _ in range(rng.randint(1, 3)):
        match rng.randint(0, 9):
            case 0:
                _change_list(rng, new_values, ["BLACK", "WHITE"])
            case 1 if rng.random() < 0.2:
                package = "store"
            case 2 if rng.random() < 0.5 and len(new) > 1:
                _remove_message(new, rng.choice(sorted(new)))
            case _:
                _change_message(rng, rng.choice(sorted(new)), new)
    return _proto_text("shop", old, values), _proto_text(package, new, new_values or ["RED"])


def _remove_message(messages: dict[str, list[_Field]], name: str) -> None:
    del messages[name]
    for fields in messages.values():
        for each in fields:
            each.type = each.type.replace(name, "string")


def _change_message(rng: Random, name: str, messages: dict[str, list[_Field]]) -> None:
    fields = messages[name]
    if not fields:
        return
    field = rng.choice(fields)
    match rng.randint(0, 7):
        case 0:
            fields.append(_Field(rng, rng.randint(10, 19), sorted(messages)))
            by_number = {each.number: each for each in fields}
            messages[name] = list(by_number.values())
        case 1:
            fields.remove(field)
        case 2:
            field.name = f"r{field.name}"
        case 3 | 4:
            field.type = rng.choice((*_SCALARS, *messages, "Color", "map<string, int32>"))
            field.oneof = "" if field.type.startswith("map") else field.oneof
        case 5:
            field.oneof = "" if field.oneof or field.type.startswith("map") else "choice"
        case 6:
            field.label = "" if field.label else "repeated "
        case _:
            rng.shuffle(fields)


def _proto_text(package: str, messages: dict[str, list[_Field]], values: list[str]) -> str:
    lines = ['syntax = "proto3";', f"package {package};"]
    for name, fields in messages.items():
        lines.append(f"message {name} {{")
        lines += [f"  {each.line()}" for each in fields if not each.oneof]
        choices = [each for each in fields if each.oneof]
        if choices:
            lines += ["  oneof choice {", *(f"    {each.line()}" for each in choices), "  }"]
        lines.append("}")
    numbers = {"RED": 0, "GREEN": 1, "BLUE": 2, "BLACK": 3, "WHITE": 4}
    known = sorted(set(values) | {"RED"}, key=numbers.__getitem__)
    lines += ["enum Color {", *(f"  {each} = {numbers[each]};" for each in known), "}"]
    return "\n".join(lines) + "\n"


# Damage.

_WORDS: tuple[Any, ...] = (
    *("int", "record", "", "a.b", "#", "#/properties/p", "x-y", "é", None, True, 5, -1, 1.5),
    *([], ["null"], {}, [{}], {"type": "string"}, {"$ref": "#"}, {"type": "array", "items": "int"}),
)
_KEYS = (
    *(
        "type",
        "name",
        "namespace",
        "doc",
        "fields",
        "symbols",
        "size",
        "items",
        "values",
        "default",
    ),
    *("aliases", "order", "logicalType", "x", "required", "enum", "minimum", "anyOf", "$ref"),
)


def damaged_json(rng: Random, text: str) -> str:
    """Return a JSON text with a part that is missing, other, or more."""
    value = json.loads(text)
    holder, key = rng.choice(_places(value))
    drawn = rng.random()
    if drawn < 0.3:
        del holder[key]
    elif drawn < 0.7 or not isinstance(holder, dict):
        holder[key] = copy.deepcopy(rng.choice(_WORDS))
    else:
        holder[rng.choice(_KEYS)] = copy.deepcopy(rng.choice(_WORDS))
    return json.dumps(value)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each object and list of a JSON value with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += _places(inner)
    return found
