"""Frames that are no requests: broken headers, cut bodies, lengths and nulls where none may be.

The requests are each API's own, of each version; what is compared is whether the connection is
closed, and every byte of an answer that is not an echo of something drawn.
"""

from __future__ import annotations

import struct

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.headers import encode_request
from barnabas.server.handlers.table import SERVED_APIS
from differential.case import CASES, Case, case
from differential.request import request
from differential.scene import Scene

VERSIONS = ApiKey.API_VERSIONS
# A request of each API without parts: whole, and small.
_LIST_OFFSETS, _OF_NOTHING = struct.pack(">hhi", 2, 1, 5), struct.pack(">ii", -1, 0)
_SMALLEST = {ApiKey.FIND_COORDINATOR: {"key": "a"}}


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@case(VERSIONS, [0])
def frames_that_are_none(scene: Scene) -> None:
    scene.compare_bytes(framed(b""))
    scene.compare_bytes(framed(b"\0"))
    scene.compare_bytes(framed(struct.pack(">hh", 18, 0)))
    scene.compare_bytes(framed(struct.pack(">hhi", 18, 0, 1)))
    scene.compare_bytes(struct.pack(">i", -1))
    scene.compare_bytes(struct.pack(">i", 0x7FFFFFFF))
    scene.compare_bytes(struct.pack(">i", 104857601) + b"x")
    scene.compare_bytes(b"GET / HTTP/1.1\r\n\r\n")


@case(VERSIONS, [0])
def apis_and_versions_that_are_not(scene: Scene) -> None:
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
    """Bodies that end too soon, and bytes behind the end."""
    for data in _frames(scene, (1, 2, 3)):
        scene.compare_bytes(data)


def _frames(scene: Scene, cuts: tuple[int, ...]) -> list[bytes]:
    made = request(scene.api, scene.version, _SMALLEST.get(scene.api, {}))
    chunks = encode_request(1, "cut", made, scene.version)
    whole = b"".join(bytes(chunk) for chunk in chunks)[4:]
    header = len(whole) - len(_body(scene))
    return [framed(whole[:-cut]) for cut in cuts if len(whole) - cut >= header]


def _body(scene: Scene) -> bytes:
    from barnabas.protocol.codec import encode_bytes

    made = request(scene.api, scene.version, _SMALLEST.get(scene.api, {}))
    return encode_bytes(made, scene.version)


for _api in SERVED_APIS:
    assert request_class(_api)
    CASES.append(Case(ApiKey(_api), "a-body-cut-short", _cut))
