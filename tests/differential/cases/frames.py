"""Frames that are not valid requests: broken headers, truncated bodies, invalid lengths and nulls.

The requests are those of each API in each version. The comparison covers whether the connection is
closed, and each byte of a response.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import encode_bytes, encode_request_header
from barnabas.protocol.schema import STRING, Array, Struct, is_flexible
from barnabas.server.dispatch.served_apis import SERVED_APIS
from differential.case import CASES, Case, case
from differential.scene import Scene

VERSIONS = ApiKey.API_VERSIONS
_LIST_OFFSETS, _OF_NOTHING = struct.pack(">hhi", 2, 1, 5), struct.pack(">ii", -1, 0)
CUTS = 6
MARK = b"@@@"


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@case(VERSIONS, [0])
def invalid_frames(scene: Scene) -> None:
    scene.compare_bytes(framed(b""))
    scene.compare_bytes(framed(b"\0"))
    scene.compare_bytes(framed(struct.pack(">hh", 18, 0)))
    scene.compare_bytes(framed(struct.pack(">hhi", 18, 0, 1)))
    scene.compare_bytes(struct.pack(">i", -1))
    scene.compare_bytes(struct.pack(">i", 0x7FFFFFFF))
    scene.compare_bytes(struct.pack(">i", 104857601) + b"x")
    scene.compare_bytes(b"GET / HTTP/1.1\r\n\r\n")


@case(VERSIONS, [0])
def unknown_apis_and_versions(scene: Scene) -> None:
    for api, version in ((999, 0), (-1, 0), (3, 99), (3, -1), (7, 0), (4, 0)):
        header = struct.pack(">hhih", api, version, 1, -1)
        scene.compare_bytes(framed(header + b"\0" * 30))


@case(VERSIONS, [0])
def client_ids(scene: Scene) -> None:
    for client_id in (struct.pack(">h", -1), struct.pack(">h", 0), b"\0\3abc"):
        scene.compare_bytes(framed(_LIST_OFFSETS + client_id + _OF_NOTHING))
    for wrong in (
        struct.pack(">h", -2),
        struct.pack(">h", 500),
        b"",
        b"\0\1\xff",
    ):
        scene.compare_bytes(framed(_LIST_OFFSETS + wrong + _OF_NOTHING))


def _cut(scene: Scene) -> None:
    """Truncate the body of a request at several positions."""
    header, body = _parts(scene, filled(request_class(scene.api), scene.version))
    # An empty body cannot be truncated.
    for size in sorted({len(body) * step // CUTS for step in range(CUTS)} - {len(body)}):
        scene.compare_bytes(framed(header + body[:size]))


def _null(scene: Scene) -> None:
    """Replace each required text by null."""
    made = filled(request_class(scene.api), scene.version)
    flexible = is_flexible(type(made), scene.version)
    there = (b"\x04" if flexible else b"\0\3") + MARK
    absent = b"\0" if flexible else b"\xff\xff"
    for owner, name in _required_texts(made, scene.version):
        value = getattr(owner, name)
        setattr(owner, name, [MARK.decode()] if isinstance(value, list) else MARK.decode())
        header, body = _parts(scene, made)
        setattr(owner, name, value)
        assert body.count(there) == 1, (name, body)
        scene.compare_bytes(framed(header + body.replace(there, absent)))


def filled(cls: type[Struct], version: int) -> Any:
    """Return a struct with one item in each list."""
    values = {}
    for each in cls.__fields__:
        values[each.name] = each.default()
        if not each.is_in(version):
            continue
        kind = each.kind
        if isinstance(kind, Array):
            element = kind.element
            is_struct = isinstance(element, type) and issubclass(element, Struct)
            item = filled(element, version) if is_struct else _plain(element)
            values[each.name] = [item]
        elif kind is STRING:
            values[each.name] = "a"
    return cls(**values)


def _plain(kind: Any) -> object:
    return "a" if kind is STRING else kind.implicit_default


def _required_texts(struct: Struct, version: int) -> Iterator[tuple[Struct, str]]:
    """Yield the structs and names of the fields whose texts may not be null."""
    for each in struct.__fields__:
        if not each.is_in(version) or each.tag is not None:
            continue
        kind = each.kind
        if kind is STRING and not each.is_nullable(version):
            yield struct, each.name
        elif isinstance(kind, Array):
            if kind.element is STRING:
                yield struct, each.name
            for item in getattr(struct, each.name):
                if isinstance(item, Struct):
                    yield from _required_texts(item, version)


def _parts(scene: Scene, made: Any) -> tuple[bytes, bytes]:
    header = encode_request_header(scene.api, scene.version, 1, "cut")
    return header, encode_bytes(made, scene.version)


for _api in SERVED_APIS:
    # The first versions of ApiVersions have no body.
    _versions = frozenset(range(3, 6)) if _api == VERSIONS else frozenset()
    CASES.append(Case(ApiKey(_api), "a-body-cut-short", _cut, _versions))
    if _api != VERSIONS:
        # An invalid client name in ApiVersions gets an error; the connection stays open.
        CASES.append(Case(ApiKey(_api), "null-where-a-text-must-be", _null))
