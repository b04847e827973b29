"""The content of records, ready for JSON: of internal topics, of control batches, and plain.

Records are of one of these kinds: `metadata` (`__cluster_metadata`), `groups`
(`__consumer_offsets`), `transactions` (`__transaction_state`), `share` (`__share_group_state`),
`remote` (`__remote_log_metadata`, KIP-1057) and `plain` for everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from barnabas.cli.common.output import json_bytes
from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    decode_metadata_record,
    decode_remote_log_record,
    group_record_classes,
    read_metadata_frame,
    read_prefix,
    share_record_classes,
    transaction_record_classes,
)
from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription
from barnabas.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.protocol.records.metadata_log import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from barnabas.protocol.records.nodes import VotersRecord
from barnabas.protocol.schema import UUID, Array, Struct
from barnabas.record.batch import ControlType, parse_control_key, parse_end_marker
from barnabas.record.record import CorruptBatchError
from barnabas.storage.remote.remote_storage import SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Record as SchemaRecord


class Content(Protocol):
    """A record, of which only the content is read."""

    @property
    def key(self) -> bytes | None:
        """The key."""
        ...

    @property
    def value(self) -> bytes | None:
        """The value."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values."""
        ...


_TOPICS = {
    "__cluster_metadata": "metadata",
    "__consumer_offsets": "groups",
    "__transaction_state": "transactions",
    "__share_group_state": "share",
    "__remote_log_metadata": "remote",
}
_CLASSES: dict[str, Callable[[int], tuple[type[SchemaRecord], type[SchemaRecord]] | None]] = {
    "groups": group_record_classes,
    "transactions": transaction_record_classes,
    "share": share_record_classes,
}
_CONTROL: dict[ControlType, type[SchemaRecord]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
# Names of the states of a remote segment in Kafka.
_SEGMENT_STATES = {int(state): state.name for state in SegmentState}
_CONSUMER_PROTOCOL_MAX = 3
# Bytes fields of group records that contain a message of the consumer protocol.
_CONSUMER_FIELDS: dict[str, type[SchemaRecord]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}


def kind_of_topic(topic: str) -> str:
    """Return the kind of a topic's records."""
    return _TOPICS.get(topic, "plain")


def record_content(record: Content, kind: str, *, is_control: bool) -> dict[str, Any]:
    """Return a record's content, ready for JSON.

    Content that cannot be decoded is shown as bytes, with the error.
    """
    try:
        if is_control:
            return _control(record)
        if kind == "metadata":
            decoded, version = decode_metadata_record(record.value or b"")
            return {"type": _name(type(decoded)), "version": version, "data": as_json(decoded)}
        if kind == "remote":
            return _remote_log(record)
        if kind in _CLASSES:
            return _coordinator(record, kind)
    except (ProtocolError, CorruptBatchError) as error:
        return {"error": str(error), **_plain(record)}
    return _plain(record)


def _plain(record: Content) -> dict[str, Any]:
    shown: dict[str, Any] = {**json_bytes("key", record.key), **json_bytes("value", record.value)}
    if record.headers:
        shown["headers"] = [{"name": n, **json_bytes("value", v)} for n, v in record.headers]
    return shown


def _control(record: Content) -> dict[str, Any]:
    kind = parse_control_key(record.key)
    if kind is None:
        return {"type": "unknown control record", **_plain(record)}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return {"type": kind.name, "data": {"coordinator_epoch": parse_end_marker(record.value)}}
    value = record.value or b""
    cls = _CONTROL[kind]
    version = min(int.from_bytes(value[:2], "big"), cls.__versions__[1])
    return {"type": kind.name, "version": version, "data": as_json(decode(cls, version, value))}


def _remote_log(record: Content) -> dict[str, Any]:
    value = record.value or b""
    decoded = decode_remote_log_record(value)
    _, version, _ = read_metadata_frame(value)
    data = as_json(decoded)
    state = data.get("remote_log_segment_state")
    if state in _SEGMENT_STATES:
        data["remote_log_segment_state"] = _SEGMENT_STATES[state]
    return {"type": _name(type(decoded)), "version": version, "data": data}


def _coordinator(record: Content, kind: str) -> dict[str, Any]:
    number = read_prefix(record.key or b"")
    # Old offset commits have type 0.
    classes = _CLASSES[kind](number)
    if classes is None:
        return {"type": f"unknown record type {number}", **_plain(record)}
    key_class, value_class = classes
    shown: dict[str, Any] = {
        "type": _name(key_class).removesuffix("Key"),
        "key": as_json(decode_coordinator_key(key_class, record.key or b"")),
    }
    if record.value is None:
        shown["value"] = None
    else:
        shown["version"] = read_prefix(record.value)
        shown["value"] = as_json(decode_coordinator_value(value_class, record.value))
    return shown


def _name(cls: type) -> str:
    return cls.__name__


def as_json(struct: Struct) -> dict[str, Any]:
    """Return a struct's fields, with uuids as text.

    Bytes are text if they are UTF-8, else base64.
    """
    shown: dict[str, Any] = {}
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        element = field.kind.element if isinstance(field.kind, Array) else field.kind
        if field.name in _CONSUMER_FIELDS and isinstance(value, bytes):
            shown[field.name] = _consumer_payload(field.name, value)
        elif element is UUID and isinstance(value, list):
            shown[field.name] = [uuid_to_string(each) for each in value]
        elif element is UUID and value is not None:
            shown[field.name] = uuid_to_string(value)
        else:
            _show(shown, field.name, value)
    return shown


def _show(shown: dict[str, Any], name: str, value: object) -> None:
    if isinstance(value, Struct):
        shown[name] = as_json(value)
    elif isinstance(value, list):
        shown[name] = [as_json(each) if isinstance(each, Struct) else each for each in value]
    elif isinstance(value, bytes | memoryview):
        shown.update(json_bytes(name, bytes(value)))
    else:
        shown[name] = value


def _consumer_payload(name: str, value: bytes) -> Any:
    if not value:
        return None
    try:
        version = min(int.from_bytes(value[:2], "big"), _CONSUMER_PROTOCOL_MAX)
        return as_json(decode(_CONSUMER_FIELDS[name], version, value, 2))
    except ProtocolError:
        return json_bytes(name, value)
