"""Keys, values and headers from the fields of a form."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from barnabas.console.forms import Fields, FormError
from barnabas.console.writing.payloads import headers, payload
from barnabas.serializers import AvroDeserializer, ProtobufDeserializer, SchemaRegistry
from barnabas.serializers.protobuf import message_as_json
from unit.serializers.registry_server import RegistryServer

FILE = base64.urlsafe_b64encode(bytes(range(256))).decode()


def value_of(kind: str, text: str, **more: str) -> bytes | None:
    form = Fields([("value_kind", kind), ("value", text), *more.items()])
    return payload(form, "value", "t", None)


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        ("null", "ignored", None),
        ("text", "", b""),
        ("text", "é\r\nb", "é\nb".encode()),
        ("auto", "", None),
        ("auto", "a", b"a"),
        ("json", '{"a":  1}', b'{"a":  1}'),
        ("hex", "00 ff\n0A", b"\x00\xff\n"),
        ("base64", "AP\r\n8K", b"\x00\xff\n"),
    ],
)
def test_a_text_becomes_exactly_the_bytes_of_its_kind(
    kind: str, text: str, data: bytes | None
) -> None:
    assert value_of(kind, text) == data


def test_a_file_becomes_its_bytes() -> None:
    assert value_of("file", "", value_file=FILE) == bytes(range(256))


@pytest.mark.parametrize(
    ("kind", "text", "reason", "field"),
    [
        ("json", "{", "the value is not JSON", "value"),
        ("hex", "0", "the value is not hex", "value"),
        ("base64", "a*b=", "the value is not base64", "value"),
        ("file", "", "choose a file", "value_file"),
        ("yaml", "", "there is no kind yaml", "value_kind"),
        ("schema", "{}", "need a registry", "value_kind"),
    ],
)
def test_a_wrong_text_is_refused_at_its_field(
    kind: str, text: str, reason: str, field: str
) -> None:
    with pytest.raises(FormError, match=reason) as found:
        value_of(kind, text)
    assert found.value.field == field


@pytest.mark.parametrize("text", ["[" * 900_000, '{"a":' * 150_000 + "1" + "}" * 150_000])
def test_json_that_is_nested_too_deeply_is_refused_at_its_field(text: str) -> None:
    form = Fields([("value_kind", "json"), ("value", text)])
    with pytest.raises(FormError, match="nested too deeply") as refused:
        payload(form, "value", "t", None)
    assert refused.value.field == "value"


def test_an_empty_key_is_null_unless_the_form_says_another_kind() -> None:
    assert payload(Fields([]), "key", "t", None) is None
    assert payload(Fields([]), "value", "t", None) == b""


def test_headers_repeat_are_binary_and_may_be_null() -> None:
    text = "a=1\r\na=2=3\nb:hex=00ff\nc:base64=AP8=\nnull\n\n d = e \nx:y=z"
    assert headers(Fields([("headers", text)])) == [
        ("a", b"1"), ("a", b"2=3"), ("b", b"\x00\xff"), ("c", b"\x00\xff"), ("null", None),
        ("d", b"e"), ("x:y", b"z"),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["=x", "a:hex=0", "a:base64=*"])
def test_a_wrong_header_is_refused(line: str) -> None:
    with pytest.raises(FormError) as found:
        headers(Fields([("headers", line)]))
    assert found.value.field == "headers"


AVRO = [
    {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]},
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}],
    },
]
PROTO = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with RegistryServer() as server:
        for schema in AVRO:
            add(server, "t-value", json.dumps(schema), "AVRO")
        add(server, "proto", PROTO, "PROTOBUF")
        add(server, "json", '{"type": "object", "required": ["a"]}', "JSON")
        yield SchemaRegistry(server.url)


def add(server: RegistryServer, subject: str, text: str, kind: str) -> None:
    body = json.dumps({"schema": text, "schemaType": kind}).encode()
    server.answer("POST", f"/subjects/{subject}/versions", body)


def by_schema(registry: SchemaRegistry, text: str, **more: str) -> bytes:
    form = Fields([("value_kind", "schema"), ("value", text), *more.items()])
    data = payload(form, "value", "t", registry)
    assert data is not None
    return data


def test_the_latest_version_of_the_topics_subject_serializes(registry: SchemaRegistry) -> None:
    data = by_schema(registry, '{"n": 1, "s": "x"}')
    assert AvroDeserializer(registry)(data) == {"n": 1, "s": "x"}


def test_a_chosen_version_serializes(registry: SchemaRegistry) -> None:
    data = by_schema(registry, '{"n": 1}', value_version="1")
    assert AvroDeserializer(registry)(data) == {"n": 1}


def test_a_chosen_message_of_protobuf_serializes(registry: SchemaRegistry) -> None:
    data = by_schema(registry, '{"b": "x"}', value_subject="proto", value_message="B")
    assert message_as_json(ProtobufDeserializer(registry)(data)) == {"b": "x"}


@pytest.mark.parametrize(
    ("text", "more", "field"),
    [
        ('{"n": "no"}', {}, "value"),
        ("{", {}, "value"),
        ("{}", {"value_subject": "absent"}, "value_subject"),
        ("{}", {"value_version": "9"}, "value_subject"),
        ("{}", {"value_subject": "json"}, "value"),
        ("{}", {"value_subject": "proto", "value_message": "Absent"}, "value"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_its_field(
    registry: SchemaRegistry, text: str, more: dict[str, str], field: str
) -> None:
    with pytest.raises(FormError) as found:
        by_schema(registry, text, **more)
    assert found.value.field == field
