"""Schemas that are small for their sender and may be costly for a registry."""

from __future__ import annotations

import json
from typing import Any

from barnabas.registry.schemas.limits import TEXT_MAX


def _record(name: str, *kinds: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{index}", "type": kind, **more} for index, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def _avro() -> dict[str, Any]:
    return {
        "arrays": '{"type":"array","items":' * 20_000,
        "deep arrays": '{"type":"array","items":' * 240 + '"int"' + "}" * 240,
        "chain of names": [_record(f"R{i}", f"R{i + 1}") for i in range(2000)] + [_record("R2000")],
        "shared records": [_record(f"R{i}", *[f"R{i + 1}"] * 2) for i in range(60)]
        + [_record("R60")],
        "default bomb": [_record(f"R{i}", *[f"R{i + 1}"] * 2, default={}) for i in range(40)]
        + [_record("R40")],
        "default within itself": _record("R", "R", default={}),
        "many fields": _record("R", *["int"] * 5_000),
        "wide unions": _record(
            "R",
            *(
                [{"type": "fixed", "name": f"F{i}x{j}", "size": 1} for j in range(100)]
                for i in range(60)
            ),
        ),
        "one wide union": [
            {"type": "fixed", "name": f"F{index}", "size": 1} for index in range(3_000)
        ],
        "records of each other": [
            _record(f"R{i}", *(["null", f"R{(i * 7 + j) % 40}"] for j in range(20)))
            for i in range(40)
        ],
        "long enums": [
            {"type": "enum", "name": f"E{i}", "symbols": [f"S{j}" for j in range(2000)]}
            for i in range(50)
        ],
        "long aliases": [
            _record(f"R{i}") | {"aliases": [f"A{i}x{j}" for j in range(1000)]} for i in range(80)
        ],
        "large number": '{"type":"fixed","name":"F","size":' + "9" * 1_000_000 + "}",
    }


def _definitions(count: int, make: Any, start: Any = None) -> dict[str, Any]:
    inner = {f"d{index}": make(index) for index in range(count)} | {f"d{count}": {}}
    return {"definitions": inner, "$ref": "#/definitions/d0"} | (start or {})


def _ref(index: int) -> dict[str, str]:
    return {"$ref": f"#/definitions/d{index}"}


def _json() -> dict[str, Any]:
    return {
        "nots": '{"not":' * 100_000,
        "deep nots": '{"not":' * 240 + "{}" + "}" * 240,
        "doubled references": _definitions(60, lambda i: {"allOf": [_ref(i + 1)] * 2}),
        "shared objects": _definitions(
            500, lambda i: {"properties": {"a": _ref(i + 1), "b": _ref(i + 1)}}
        ),
        "chain of objects": _definitions(2_000, lambda i: {"properties": {"a": _ref(i + 1)}}),
        "chain of references": _definitions(2_000, lambda i: _ref(i + 1)),
        "references to each other": _definitions(
            40, lambda i: {"anyOf": [_ref((i * 7 + j) % 40) for j in range(40)]}
        ),
        "one schema for many properties": _definitions(
            1, lambda i: {"type": "object", "properties": {f"p{j}": _ref(0) for j in range(4_000)}}
        ),
        "many alternatives": {
            "anyOf": [{"type": "string", "maxLength": i, "minLength": 9 - i} for i in range(3_000)]
        },
        "many patterns": {
            "properties": {f"p{index}": {"type": "string"} for index in range(2_000)},
            "patternProperties": {f"(a+)+{index}$": {} for index in range(2_000)},
        },
        "many required properties": {
            "additionalProperties": False,
            "properties": {f"p{index}": {"default": 1} for index in range(20_000)},
            "required": [f"p{index}" for index in range(20_000)],
        },
        "patterns that match all": {
            "properties": {f"p{index}": {"type": "string"} for index in range(5000)},
            "patternProperties": {f"p{'|x' * (index % 9)}|{index}": {} for index in range(5000)},
        },
        "long patterns": {
            "properties": {"a" * 1000: {}},
            "patternProperties": {"(((a{1,100}){1,100}){1,100})" + "x" * i: {} for i in range(300)},
        },
        "long ids": {"allOf": [{"$id": "http://x/" + "a/" * index} for index in range(1000)]},
        "dynamic references": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {
                f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$dynamicRef": "#x"}]}
                for i in range(60)
            }
            | {"d60": {"$dynamicAnchor": "x"}},
            "$ref": "#/$defs/d0",
        },
        "huge numbers": '{"type":"number","multipleOf":1e999999999,"maximum":1e-999999999}',
    }


def _protobuf() -> dict[str, str]:
    head = 'syntax = "proto3";'
    return {
        "many messages": "".join(f"message M{index} {{}}\n" for index in range(8_000)),
        "chain of messages": head
        + "".join(f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; }}\n" for i in range(3_000))
        + "message M3000 {}",
        "many tokens": "message M {" + ";" * 1_000_000 + "}",
        "deep messages": "message M {" * 80_000,
        "deep option": "option (a) = " + "{a:" * 100_000,
        "long name": f"message {'a' * 1_000_000} {{}}",
        "long nested names": head + f"message {'a' * 30_000} {{" * 30 + "}" * 30,
        "many imports": "".join(f'import "x{index}.proto";' for index in range(8_000)),
        "many values": head + "enum E {" + "".join(f"A{i} = {i};" for i in range(8_000)) + "}",
        "many numbers": f"message M {{ reserved {', '.join(map(str, range(1, 16_000)))}; }}",
        "many options": head + "option (a) = {x: [1, 2]};" * 3_000,
        "open comments": "/*" * 500_000,
    }


def hostile_schemas() -> dict[str, tuple[str, str]]:
    """Return types and texts by name."""
    found = {}
    for kind, schemas in (("AVRO", _avro()), ("JSON", _json()), ("PROTOBUF", _protobuf())):
        for name, schema in schemas.items():
            text = schema if isinstance(schema, str) else json.dumps(schema)
            assert len(text) <= TEXT_MAX, (name, len(text))
            found[f"{kind}: {name}"] = (kind, text)
    return found
