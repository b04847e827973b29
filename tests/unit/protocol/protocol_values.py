"""All message classes, and messages with arbitrary but reproducible values."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from typing import Any

from barnabas.protocol import schema
from barnabas.protocol.api_keys import ApiKey, request_class, response_class
from barnabas.protocol.api_table import APIS_WITHOUT_TABLES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_table import RECORD_ROWS
from barnabas.protocol.schema import Array, Field, Kind, Message, Record, Struct

# Records without a type number: (module, class).
UNNUMBERED = [
    ("consumer_protocol_assignment", "ConsumerProtocolAssignment"),
    ("classic_groups", "ConsumerProtocolSubscription"),
    ("security", "DefaultPrincipalData"),
    ("metadata_log", "KRaftVersionRecord"),
    ("metadata_log", "LeaderChangeMessage"),
    ("metadata_log", "SnapshotFooterRecord"),
    ("metadata_log", "SnapshotHeaderRecord"),
    ("nodes", "VotersRecord"),
]

NUMBERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
STRINGS = ["", "a", "orders", "κόσμος", "x" * 126, "y" * 127, "z" * 128, "w" * 300]
COUNTS = [0, 1, 1, 2, 3]


def message_classes() -> list[type[Message]]:
    """Return all classes of requests, responses and records."""
    keys = [key for key in ApiKey if key not in APIS_WITHOUT_TABLES]
    requests = [request_class(key) for key in keys]
    responses = [response_class(key) for key in keys]
    return [*requests, *responses, *record_classes()]


def record_classes() -> list[type[Record]]:
    names = [row for family in RECORD_ROWS.values() for row in family.values()]
    places = [(module, name) for module, classes in names for name in classes] + UNNUMBERED
    return [
        getattr(importlib.import_module(f"barnabas.protocol.records.{module}"), name)
        for module, name in places
    ]


def versions_of(cls: type[Message]) -> range:
    first, last = cls.__versions__
    return range(first, last + 1)


def messages(seed: int, count: int = 2) -> Iterator[tuple[type[Message], int, Any]]:
    """Yield `count` arbitrary messages of each class and version."""
    for cls in message_classes():
        rng = random.Random(f"{seed} {cls.__name__}")
        for version in versions_of(cls):
            for _ in range(count):
                yield cls, version, arbitrary(cls, version, rng)


def arbitrary(cls: type[Struct], version: int, rng: random.Random, *, depth: int = 0) -> Any:
    """Return a struct with arbitrary values in all fields of the version."""
    values = {
        each.name: _value(each, each.kind, version, rng, depth)
        for each in cls.__fields__
        if each.is_in(version)
    }
    for each in cls.__fields__:
        if each.name not in values:
            values[each.name] = each.default()
    return cls(**values)


def _value(
    each: Field, kind: Kind | Array | type[Struct], version: int, rng: random.Random, depth: int
) -> Any:
    is_whole_field = kind is each.kind
    if is_whole_field and each.is_nullable(version) and rng.random() < 0.25:
        return None
    if is_whole_field and each.tag is not None and rng.random() < 0.4:
        return each.default()
    if isinstance(kind, Array):
        count = min(rng.choice(COUNTS), 3 - depth) if depth < 3 else 1
        return [_value(each, kind.element, version, rng, depth + 1) for _ in range(count)]
    if not isinstance(kind, Kind):
        return arbitrary(kind, version, rng, depth=depth)
    return _primitive(each.name, kind, rng)


def _primitive(name: str, kind: Kind, rng: random.Random) -> Any:
    if kind is schema.BOOL:
        return rng.random() < 0.5
    if kind is schema.STRING:
        return rng.choice(STRINGS)
    if kind is schema.UUID:
        return rng.randbytes(16)
    if kind is schema.FLOAT64:
        return rng.choice([0.0, -1.5, 1e300, 0.1])
    if kind is schema.BYTES:
        return rng.randbytes(rng.choice([0, 1, 127, 128, 400]))
    if kind is schema.RECORDS:
        return rng.randbytes(rng.choice([0, 5, 1023, 1024, 3000]))
    if name.endswith("error_code") or name == "error_codes":
        # The compared implementations know the codes up to 133.
        return int(rng.choice([code for code in ErrorCode if code <= 133]))
    if kind is schema.INT64 and ("timestamp" in name or name.endswith("_ms")):
        # Within the range of a calendar: other implementations convert it to a date.
        return rng.choice([0, 1, rng.randint(0, 2**41)])
    low, high = NUMBERS[kind.name]
    edges = [low, high, 0, 1, max(low, -1)]
    return rng.choice(edges) if rng.random() < 0.3 else rng.randint(low, high)
