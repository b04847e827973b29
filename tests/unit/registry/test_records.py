"""Records of the topic are those of Confluent's and Karapace's registries."""

from __future__ import annotations

import pytest

from barnabas.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    Content,
    ContextRecord,
    DamagedRecordError,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
    StoredSchema,
    decode,
    encode,
)
from barnabas.registry.schemas import Reference

AVRO = StoredSchema("flights-value", 2, 7, Content("AVRO", '"string"'))
PROTOBUF = StoredSchema(
    ":.staging:flights-value",
    1,
    8,
    Content("PROTOBUF", 'syntax = "proto3";\n', (Reference("a.proto", "a", 3),)),
    deleted=True,
)
# Members in the order in which Confluent's registry writes them.
RECORDS: list[tuple[Record, bytes, bytes | None]] = [
    (
        SchemaRecord("flights-value", 2, AVRO),
        b'{"keytype":"SCHEMA","subject":"flights-value","version":2,"magic":1}',
        b'{"subject":"flights-value","version":2,"id":7,"schema":"\\"string\\"","deleted":false}',
    ),
    (
        SchemaRecord(":.staging:flights-value", 1, PROTOBUF),
        b'{"keytype":"SCHEMA","subject":":.staging:flights-value","version":1,"magic":1}',
        (
            b'{"subject":":.staging:flights-value","version":1,"id":8,"schemaType":"PROTOBUF",'
            b'"references":[{"name":"a.proto","subject":"a","version":3}],'
            b'"schema":"syntax = \\"proto3\\";\\n","deleted":true}'
        ),
    ),
    (
        SchemaRecord("flights-value", 1, None),
        b'{"keytype":"SCHEMA","subject":"flights-value","version":1,"magic":1}',
        None,
    ),
    (
        ConfigRecord(None, {"compatibilityLevel": "FULL"}),
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    ),
    (ConfigRecord("a", None), b'{"keytype":"CONFIG","subject":"a","magic":0}', None),
    (
        ModeRecord("a", "READONLY"),
        b'{"keytype":"MODE","subject":"a","magic":0}',
        b'{"mode":"READONLY"}',
    ),
    (
        DeleteSubjectRecord("a", 4),
        b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
        b'{"subject":"a","version":4}',
    ),
    (
        ClearSubjectRecord("a"),
        b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}',
        b'{"subject":"a"}',
    ),
    (
        ContextRecord(".staging"),
        b'{"keytype":"CONTEXT","tenant":"default","context":".staging","magic":0}',
        b'{"tenant":"default","context":".staging"}',
    ),
    (NoopRecord(), b'{"keytype":"NOOP","magic":0}', None),
    (NoopRecord({".": 7}), b'{"keytype":"NOOP","magic":0}', b'{"lastIds":{".":7}}'),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS, ids=[each[1] for each in RECORDS])
def test_a_record_has_the_members_of_other_registries(
    record: Record, key: bytes, value: bytes | None
) -> None:
    assert encode(record) == (key, value)
    assert decode(key, value) == record


def test_members_that_another_registry_added_survive_a_change() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    value = (
        b'{"subject":"a","version":1,"id":3,"md5":"IUgQIN8=","metadata":{"properties":{"o":"x"}},'
        b'"guid":"6f","schema":"\\"int\\"","deleted":false}'
    )
    record = decode(key, value)
    assert isinstance(record, SchemaRecord)
    assert record.schema is not None
    changed = record._replace(schema=record.schema._replace(deleted=True))
    assert encode(changed) == (key, value.replace(b"false", b"true"))


def test_metadata_is_part_of_the_content() -> None:
    key = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    plain = decode(key, b'{"id":3,"schema":"\\"int\\""}')
    owned = decode(key, b'{"id":3,"schema":"\\"int\\"","metadata":{"properties":{"o":"x"}}}')
    assert isinstance(plain, SchemaRecord)
    assert isinstance(owned, SchemaRecord)
    assert plain.schema is not None
    assert owned.schema is not None
    assert plain.schema.content != owned.schema.content


def test_a_null_schema_type_is_avro() -> None:
    record = decode(
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        b'{"subject":"a","version":1,"id":3,"schemaType":null,"references":null,"schema":"{}"}',
    )
    assert isinstance(record, SchemaRecord)
    assert record.schema is not None
    assert record.schema.content == Content("AVRO", "{}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b"{}"),
        (b"\xff", None),
        (b"[]", None),
        (b"{", None),
        (b'{"keytype":"OTHER","magic":0}', b"{}"),
        (b'{"keytype":"NOOP","magic":0}', b'{"lastIds":7}'),
        (b'{"keytype":"NOOP","magic":0}', b'{"lastIds":{".":"x"}}'),
        (b'{"keytype":"SCHEMA","subject":5,"version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":true}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"schema":1,"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b"null"),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1}',
            b'{"schema":"x","id":1,"references":7}',
        ),
        (b'{"keytype":"MODE","subject":"a"}', b"{}"),
        (b'{"keytype":"CONFIG","subject":"a"}', b'{"compatibilityLevel":"FULLEST"}'),
        (b'{"keytype":"CONFIG","subject":null}', b'{"compatibilityLevel":1}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":null}', b'{"version":1}'),
        (b"[" * 100_000, None),
    ],
)
def test_a_damaged_record_is_an_error_of_its_own(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DamagedRecordError):
        decode(key, value)
