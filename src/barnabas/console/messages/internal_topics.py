"""Records of the internal topics in words, with the decoders of `barnabas log dump`.

The words say what a record does; the key and the value are JSON with the names of Kafka's schemas.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.cli.common.printable import counted
from barnabas.cli.log.record_contents import kind_of_topic, record_content
from barnabas.console.messages.decoded import FULL_BYTES, Decoded, decode_plain, decoded_value
from barnabas.coordinator.transaction.transaction_metadata import TransactionState

if TYPE_CHECKING:
    from barnabas.client.fetch.record_set import ConsumerRecord

SCHEMAS_TOPIC = "_schemas"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

Fields = dict[str, Any]


def decode_internal(record: ConsumerRecord) -> tuple[Decoded, Decoded, str] | None:
    """Return key, value and words of a record of an internal topic.

    Returns:
        None if the topic is not internal, or the record has another form.
    """
    if len(record.key or b"") + len(record.value or b"") > FULL_BYTES:
        return None
    if record.topic == SCHEMAS_TOPIC:
        return decode_plain(record.key), decode_plain(record.value), _schema_words(record)
    kind = kind_of_topic(record.topic)
    if kind == "plain":
        return None
    content = record_content(record, kind, is_control=False)
    name = content.get("type")
    if name is None or ("key" not in content and "data" not in content):
        return None
    if "data" in content:
        value = decoded_value(content["data"], record.value, f"{name} {content['version']}")
        return decode_plain(record.key), value, f"{_spoken(name).capitalize()}."
    if not isinstance(content["key"], dict):
        return None
    key = decoded_value(content["key"], record.key, name)
    fields = content["value"]
    if fields is None:
        value = decode_plain(None)
    else:
        value = decoded_value(fields, record.value, f"version {content['version']}")
    return key, value, _words(name, content["key"], fields)


def _spoken(name: str) -> str:
    """Return the name of a record type as words: "consumer group member metadata"."""
    return _WORD.sub(" ", name).lower()


def _words(name: str, key: Fields, value: Fields | None) -> str:
    """Return what a record of a coordinator does."""
    match name:
        case "OffsetCommit" | "LegacyOffsetCommit":
            place = f"{key['topic']}, partition {key['partition']}"
            if value is None:
                return f"The group {key['group']} has no offset any more for {place}."
            return f"The group {key['group']} commits offset {value['offset']} of {place}."
        case "GroupMetadata":
            return _classic_group(key, value)
        case "TransactionLog":
            return _transaction(key, value)
        case "ShareSnapshot" | "ShareUpdate":
            place = f"topic id {key['topic_id']}, partition {key['partition']}"
            if value is None:
                return f"The share group {key['group_id']} has no state any more for {place}."
            return (
                f"The share group {key['group_id']} starts at offset {value['start_offset']} of "
                f"{place}; {len(value['state_batches'])} batches have a state."
            )
    members = [f"{label.replace('_', ' ')} {each}" for label, each in key.items() if each != ""]
    act = " deleted" if value is None else ""
    return f"{_spoken(name).capitalize()}{act}: {', '.join(members)}."


def _classic_group(key: Fields, value: Fields | None) -> str:
    if value is None:
        return f"The classic group {key['group']} is deleted."
    return (
        f"The classic group {key['group']} has generation {value['generation']} with "
        f"{counted(len(value['members']), 'member')}, protocol {value['protocol'] or 'none'}."
    )


def _transaction(key: Fields, value: Fields | None) -> str:
    name = key["transactional_id"]
    if value is None:
        return f"The transactional id {name} is forgotten."
    number = value["transaction_status"]
    known = {each.value: each.name for each in TransactionState}
    state = known.get(number, f"state {number}").lower().replace("_", " ")
    count = sum(len(each["partition_ids"]) for each in value["transaction_partitions"] or ())
    return (
        f"The transaction of {name} is {state}: producer {value['producer_id']}, epoch "
        f"{value['producer_epoch']}, {counted(count, 'partition')}."
    )


def _schema_words(record: ConsumerRecord) -> str:
    """Return what a record of a schema registry does; "" for a form that is unknown."""
    try:
        key = msgspec.json.decode(record.key or b"", type=dict)
        value = msgspec.json.decode(record.value, type=dict) if record.value else None
    except msgspec.DecodeError:
        return ""
    subject, kind = key.get("subject"), key.get("keytype")
    at = f"Version {key.get('version')} of the subject {subject}"
    if kind == "SCHEMA" and value is None:
        return f"{at} is removed."
    if kind == "SCHEMA" and value is not None:
        number = value.get("id")
        return f"{at} is deleted." if value.get("deleted") else f"{at} has the id {number}."
    if kind == "CONFIG":
        level = "none" if value is None else value.get("compatibilityLevel")
        where = f"the subject {subject}" if subject else "all subjects"
        return f"The compatibility of {where} is {level}."
    return f"{_spoken(str(kind)).capitalize()}." if kind else ""
