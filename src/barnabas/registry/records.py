"""Records of the topic `_schemas`, in the format of Confluent's and Karapace's registries.

Keys and values are JSON. The order of a key's members is fixed, because compaction compares bytes.
Values keep members that this registry does not know, so that a changed record loses nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from barnabas.registry.config import LEVELS
from barnabas.registry.schemas import Reference

if TYPE_CHECKING:
    from collections.abc import Mapping

AVRO = "AVRO"
# The member of a configuration that is its compatibility level.
LEVEL = "compatibilityLevel"
_TENANT = "default"
_LAST_IDS = "lastIds"
_SCHEMA_MAGIC = 1
_MAGIC = 0
# Members of a schema's value that `StoredSchema` has as fields.
_KNOWN = ("subject", "version", "id", "schemaType", "references", "schema", "deleted")
# Members that are part of what an id stands for, besides text, type and references.
METADATA, RULE_SET = "metadata", "ruleSet"
RULES = (METADATA, RULE_SET)
# The property of metadata that is the number of the version. It differs between versions with the
# same content.
VERSION_PROPERTY = "confluent:version"


class DamagedRecordError(Exception):
    """A record that no registry writes."""


class Content(NamedTuple):
    """What an id stands for: two registrations with the same content share their id."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    # Metadata and rule set as JSON; empty without both.
    rules: str = ""


class StoredSchema(NamedTuple):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False
    # Further members of the record, such as metadata, rule set or md5.
    more: Mapping[str, Any] = MappingProxyType({})


class SchemaRecord(NamedTuple):
    """A version of a subject; `schema` is None after its permanent deletion."""

    subject: str
    version: int
    schema: StoredSchema | None


class ConfigRecord(NamedTuple):
    """The configuration of a subject, a context or, with None, of the registry."""

    subject: str | None
    config: Mapping[str, Any] | None


class ModeRecord(NamedTuple):
    """The mode of a subject, a context or, with None, of the registry."""

    subject: str | None
    mode: str | None


class DeleteSubjectRecord(NamedTuple):
    """A soft deletion of all versions of a subject up to `version`; None in a tombstone."""

    subject: str
    version: int | None


class ClearSubjectRecord(NamedTuple):
    """The removal of all deleted versions of a subject, or of all subjects of a context."""

    subject: str | None
    is_cleared: bool = True


class ContextRecord(NamedTuple):
    """A context; `exists` is False in a tombstone."""

    context: str
    exists: bool = True


class NoopRecord(NamedTuple):
    """A record that changes no schema: a new leader reads up to its own.

    Other registries do not read its value, so the last ids can be there. They outlive the
    compaction of the records of deleted schemas: no id is ever used for a second schema.
    """

    # The largest id that was used, by context.
    last_ids: Mapping[str, int] = MappingProxyType({})


Record: TypeAlias = (
    SchemaRecord
    | ConfigRecord
    | ModeRecord
    | DeleteSubjectRecord
    | ClearSubjectRecord
    | ContextRecord
    | NoopRecord
)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    key: dict[str, Any]
    value: Mapping[str, Any] | None
    match record:
        case SchemaRecord(subject, version, schema):
            key = {"keytype": "SCHEMA", "subject": subject, "version": version}
            value = None if schema is None else _schema_value(schema)
        case ConfigRecord(subject, config):
            key = {"keytype": "CONFIG", "subject": subject}
            value = config
        case ModeRecord(subject, mode):
            key = {"keytype": "MODE", "subject": subject}
            value = None if mode is None else {"mode": mode}
        case DeleteSubjectRecord(subject, version):
            key = {"keytype": "DELETE_SUBJECT", "subject": subject}
            value = None if version is None else {"subject": subject, "version": version}
        case ClearSubjectRecord(subject, is_cleared):
            key = {"keytype": "CLEAR_SUBJECT", "subject": subject}
            value = {"subject": subject} if is_cleared else None
        case ContextRecord(context, exists):
            key = {"keytype": "CONTEXT", "tenant": _TENANT, "context": context}
            value = {"tenant": _TENANT, "context": context} if exists else None
        case NoopRecord(last_ids):
            key = {"keytype": "NOOP"}
            value = {_LAST_IDS: last_ids} if last_ids else None
    key["magic"] = _SCHEMA_MAGIC if isinstance(record, SchemaRecord) else _MAGIC
    return msgspec.json.encode(key), None if value is None else msgspec.json.encode(value)


def _schema_value(schema: StoredSchema) -> dict[str, Any]:
    """Return the value of a schema's record; members that are empty or the default are omitted."""
    content = schema.content
    value: dict[str, Any] = {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
    }
    if content.schema_type != AVRO:
        value["schemaType"] = content.schema_type
    if content.references:
        value["references"] = [reference_members(each) for each in content.references]
    value.update(schema.more)
    value["schema"] = content.text
    value["deleted"] = schema.deleted
    return value


def reference_members(reference: Reference) -> dict[str, Any]:
    """Return a reference as JSON members."""
    return {
        "name": reference.name,
        "subject": reference.subject,
        "version": reference.version,
    }


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Return the record with this key and value.

    Raises:
        DamagedRecordError: No registry writes such a record, or its kind is unknown.
    """
    members = _members(key, "key")
    content = None if value is None else _members(value, "value")
    kind = members.get("keytype")
    match kind:
        case "SCHEMA":
            subject, version = _text(members, "subject"), _number(members, "version")
            found = None if content is None else _stored(subject, version, content)
            return SchemaRecord(subject, version, found)
        case "CONFIG":
            if content is not None:
                _check_level(content)
            return ConfigRecord(_subject(members), content)
        case "MODE":
            return ModeRecord(
                _subject(members), None if content is None else _text(content, "mode")
            )
        case "DELETE_SUBJECT":
            last = None if content is None else _number(content, "version")
            return DeleteSubjectRecord(_text(members, "subject"), last)
        case "CLEAR_SUBJECT":
            return ClearSubjectRecord(_subject(members), content is not None)
        case "CONTEXT":
            return ContextRecord(_text(members, "context"), content is not None)
        case "NOOP":
            return NoopRecord(_last_ids(content or {}))
        case _:
            raise DamagedRecordError(f"unknown key type {kind!r}")


def _last_ids(value: Mapping[str, Any]) -> Mapping[str, int]:
    found = value.get(_LAST_IDS) or {}
    if not isinstance(found, dict):
        raise DamagedRecordError(f"{_LAST_IDS} is {found!r}, not an object")
    return {context: _number(found, context) for context in found}


def _check_level(config: Mapping[str, Any]) -> None:
    level = config.get(LEVEL)
    if level is not None and not (isinstance(level, str) and level.upper() in LEVELS):
        raise DamagedRecordError(f"the compatibility level {level!r} is unknown")


def _members(data: bytes | None, what: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRecordError(f"the {what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise DamagedRecordError(f"the {what} is not a JSON object")
    return found


def _text(members: Mapping[str, Any], name: str) -> str:
    found = members.get(name)
    if not isinstance(found, str):
        raise DamagedRecordError(f"{name} is {found!r}, not a text")
    return found


def _number(members: Mapping[str, Any], name: str) -> int:
    found = members.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise DamagedRecordError(f"{name} is {found!r}, not a number")
    return found


def _subject(members: Mapping[str, Any]) -> str | None:
    return None if members.get("subject") is None else _text(members, "subject")


def _stored(subject: str, version: int, value: Mapping[str, Any]) -> StoredSchema:
    schema_type = _text(value, "schemaType") if value.get("schemaType") else AVRO
    references = value.get("references") or []
    if not isinstance(references, list) or not all(isinstance(each, dict) for each in references):
        raise DamagedRecordError("references is not a list of objects")
    content = Content(
        schema_type,
        _text(value, "schema"),
        tuple(
            Reference(_text(each, "name"), _text(each, "subject"), _number(each, "version"))
            for each in references
        ),
        rules_of(value),
    )
    more = {name: each for name, each in value.items() if name not in _KNOWN}
    deleted = value.get("deleted") is True
    return StoredSchema(subject, version, _number(value, "id"), content, deleted, more)


def rules_of(members: Mapping[str, Any]) -> str:
    """Return the part of a content that metadata and rule set are, as JSON with sorted names."""
    found = {name: members[name] for name in RULES if members.get(name)}
    properties = (found.get(METADATA) or {}).get("properties")
    if isinstance(properties, dict) and VERSION_PROPERTY in properties:
        others = {name: properties[name] for name in properties if name != VERSION_PROPERTY}
        found[METADATA] = {**found[METADATA], "properties": others}
    return msgspec.json.encode(found, order="sorted").decode() if found else ""
