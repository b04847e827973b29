"""Every message at every version survives encoding and decoding."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.codec import decode_from, encode, encode_bytes
from barnabas.protocol.schema import Array, Field, Kind, Message, Struct
from unit.protocol.protocol_values import arbitrary, message_classes, versions_of

CLASSES = message_classes()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_version_round_trips(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        for _ in range(4):
            message = arbitrary(cls, version, rng)
            written = encode_bytes(message, version)
            read, stop = decode_from(cls, version, b"\xff" * 3 + written + b"\xff", 3)
            assert read == message
            assert stop == 3 + len(written)
            assert encode_bytes(read, version) == written


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_defaults_are_not_written_as_tagged_fields(cls: type[Message]) -> None:
    first, last = cls.__versions__
    made = object.__new__(cls)
    for each in cls.__fields__:
        setattr(made, each.name, each.default())
    for version in range(first, last + 1):
        tagged = [each for each in cls.__fields__ if each.tag is not None]
        written = b"".join(bytes(chunk) for chunk in encode(made, version))
        if tagged and version >= cls.__flexible_from__:
            assert written.endswith(b"\x00")
        assert decode_from(cls, version, written) == (made, len(written))


def test_every_array_and_struct_default_is_safe_to_change() -> None:
    def fields(cls: type[Struct]) -> list[Field]:
        found = []
        for each in cls.__fields__:
            found.append(each)
            kind = each.kind.element if isinstance(each.kind, Array) else each.kind
            if not isinstance(kind, Kind):
                found += fields(kind)
        return found

    for cls in CLASSES:
        for each in fields(cls):
            default = each.default()
            if isinstance(default, list):
                assert each.default() is not default
