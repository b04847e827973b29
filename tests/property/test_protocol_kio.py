"""Our encoding equals that of kio, and both decode the same values.

kio is an independent implementation of Kafka's protocol, generated from the same schemas.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import random
import uuid
from typing import Any

import pytest
from kio.index import (
    UnknownAPIKey,
    UnknownEntity,
    load_entity_schema,
    load_request_schema,
    load_response_schema,
)
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.schema import Message, Record, Struct
from unit.protocol.protocol_values import arbitrary, message_classes, versions_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)

# Ours by kio's name for the data types that both know.
DATA_NAMES = {
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "ControlRecordTypeSchema": "control_record_type_schema",
    "DefaultPrincipalData": "default_principal_data",
    "EndTxnMarker": "end_txn_marker",
    "KRaftVersionRecord": "k_raft_version_record",
    "LeaderChangeMessage": "leader_change_message",
    "SnapshotFooterRecord": "snapshot_footer_record",
    "SnapshotHeaderRecord": "snapshot_header_record",
    "VotersRecord": "voters_record",
}


def kio_class(cls: type[Message], version: int) -> Any:
    """Return kio's class for a message; None if kio does not have it."""
    try:
        if not issubclass(cls, Record):
            is_request = cls.__name__.endswith("Request")
            load = load_request_schema if is_request else load_response_schema
            return load(cls.__api_key__, version)
        name = DATA_NAMES.get(cls.__name__)
        return name and load_entity_schema(name, version, EntityType.data)
    except (UnknownEntity, UnknownAPIKey):
        return None


def plain_kio(value: Any) -> Any:
    """kio's value as nested lists of numbers, strings and bytes, in the order of its fields."""
    if dataclasses.is_dataclass(value):
        return [plain_kio(getattr(value, each.name)) for each in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [plain_kio(each) for each in value]
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, dt.timedelta):
        return value // MILLISECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, enum.IntEnum):
        return int(value)
    return value


def plain_ours(value: Any, version: int) -> Any:
    """Our value in the same form."""
    if isinstance(value, Struct):
        carried = [each.name for each in value.__fields__ if each.is_in(version)]
        return [plain_ours(getattr(value, name), version) for name in carried]
    if isinstance(value, list):
        return [plain_ours(each, version) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if theirs is None:
        # kio reads the zero uuid, and a time of -1, as nothing.
        return ours is None or ours in (bytes(16), -1)
    return bool(ours == theirs)


CLASSES = [
    cls
    for cls in message_classes()
    if any(kio_class(cls, version) is not None for version in versions_of(cls))
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_kio_decodes_our_values_and_encodes_our_bytes(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in versions_of(cls):
        theirs = kio_class(cls, version)
        if theirs is None:
            continue
        for _ in range(2):
            ours = arbitrary(cls, version, rng)
            written = encode_bytes(ours, version)
            read, size = entity_reader(theirs)(written, 0)
            assert size == len(written)
            assert same(plain_ours(ours, version), plain_kio(read)), (ours, read)
            buffer = io.BytesIO()
            entity_writer(theirs)(buffer, read)
            assert buffer.getvalue() == written
            assert decode(cls, version, buffer.getvalue()) == ours


def test_kio_has_most_of_the_protocol() -> None:
    pairs = sum(kio_class(cls, v) is not None for cls in CLASSES for v in versions_of(cls))
    assert pairs > 550
