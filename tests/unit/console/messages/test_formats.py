"""Formats are recognized by what the bytes look like, and chosen by readers and operators."""

from __future__ import annotations

import cbor2
import msgspec
import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.forms import Fields, FormError
from barnabas.console.messages.decoded import FULL_BYTES, ShownBytes
from barnabas.console.messages.formats import DECODERS, Decoders, FormatRule, Formats, guess

VALUE = {"origin": "JFK", "delay": 42, "raw": b"\0"}
SHOWN = '{"origin": "JFK", "delay": 42, "raw": "AA=="}'


def shown(data: bytes, name: str = "") -> ShownBytes:
    return (DECODERS[name] if name else guess)(data).shown(2000)


@pytest.mark.parametrize(
    ("name", "note", "data"),
    [
        ("msgpack", "MessagePack", msgspec.msgpack.encode(VALUE)),
        ("cbor", "CBOR", cbor2.dumps(VALUE)),
        ("cbor", "CBOR", cbor2.dumps(cbor2.CBORTag(55799, VALUE))),
    ],
)
def test_binary_formats_are_json(name: str, note: str, data: bytes) -> None:
    assert shown(data) == ShownBytes("json", SHOWN, len(data), False, note, True)
    assert shown(data, name) == shown(data)
    # One byte more or less is no value of the format.
    for other in (data[:-1], data + b"\1"):
        assert shown(other).kind == "bytes"
        assert shown(other, name).note.startswith(f"not {note}: ")


@pytest.mark.parametrize("data", [b"\x91\x05", b"\x81\x01\x02", b"\xa1\x01\x02", b"\xc0", b"\x80"])
def test_short_values_are_decoded_by_choice_only(data: bytes) -> None:
    assert shown(data).kind == "bytes"


@pytest.mark.parametrize(
    "data",
    [
        cbor2.dumps([[1]], value_sharing=True),
        b"\xd8\x1c\x81\xd8\x1d\x00",
        b"\x9b\x10" + b"\0" * 7,
        b"\xbb\x10" + b"\0" * 7,
        b"\x5b\x10" + b"\0" * 7,
        b"\x81" * 60_000,
        b"\xc1\xfb\x7e\x37\xe4\x3c\x88\x00\x75\x9c",
        b"\xa1\x81\x01\x02" * 3,
    ],
)
def test_hostile_cbor_is_refused_with_a_reason(data: bytes) -> None:
    assert shown(data).kind == "bytes"
    assert shown(data, "cbor").note.startswith("not CBOR: ")


def test_costly_tags_of_cbor_are_not_evaluated() -> None:
    for tag in (b"\xc4", b"\xc5", b"\xd8\x1e"):
        assert shown(tag + b"\x82\x01\x02", "cbor").text == "[1, 2]"
    assert shown(b"\xd8\x23\x63(a*", "cbor").text == "(a*"


def test_hostile_message_pack_is_refused_with_a_reason() -> None:
    for data in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 60_000):
        assert shown(data).kind == "bytes"
        assert shown(data, "msgpack").note.startswith("not MessagePack: ")
    assert "KiB" in shown(b"\x91" * (FULL_BYTES + 1), "msgpack").note


def test_extensions_of_message_pack_are_shown() -> None:
    data = msgspec.msgpack.encode([msgspec.msgpack.Ext(5, b"x")])
    assert shown(data, "msgpack").text == '[{"extension": 5, "data": "eA=="}]'


def test_xml_is_indented() -> None:
    data = b'<?xml version="1.0"?><a b="1"><!--c--><d>x &amp; y</d><d/>end</a>'
    found = guess(data)
    assert found.note == "XML"
    assert found.text.splitlines() == [
        '<a b="1">', "  <!--c-->", "  <d>x &amp; y</d>", "  <d/>", "  end", "</a>",
    ]  # fmt: skip
    assert found.content == {"a": {"@b": "1", "d": ["x & y", ""], "#text": "end"}}


@pytest.mark.parametrize(
    "data",
    [
        b'<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
        b'<!DOCTYPE a SYSTEM "file:///etc/hostname"><a/>',
        b"<a>&b;</a>",
        b"<a><b></a>",
        b"<a>" * 40 + b"</a>" * 40,
        b"<not xml",
    ],
)
def test_xml_with_entities_or_errors_stays_as_it_is(data: bytes) -> None:
    assert shown(data) == ShownBytes("text", data.decode(), len(data), False, has_raw=True)
    assert shown(data, "xml").note


def test_json_by_choice_may_be_a_number() -> None:
    assert DECODERS["json"](b"12").content == 12
    assert shown(b"x", "json").note == "not JSON"


def test_text_and_bytes_by_choice() -> None:
    assert shown(b'{"a":1}', "text").text == '{"a":1}'
    assert shown(b'{"a":1}', "hex").kind == "bytes"
    assert shown(b"\xff", "text").note == "not UTF-8"


def record(value: bytes, topic: str = "orders") -> ConsumerRecord:
    return ConsumerRecord(topic, 0, 0, 0, 0, value, value, ())


def test_the_reader_chooses_before_the_operator() -> None:
    rules = [FormatRule("orders*", "value", DECODERS["hex"])]
    decoders = Decoders(None, rules)

    def kinds(formats: Formats, topic: str = "orders") -> tuple[str, str]:
        key, value, _ = decoders.decode(record(b'{"a":1}', topic), formats)
        return key.kind, value.kind

    assert kinds(Formats()) == ("json", "bytes")
    assert kinds(Formats(), "other") == ("json", "json")
    assert kinds(Formats("text", "json")) == ("text", "json")


def test_formats_come_from_the_address_and_go_back_to_it() -> None:
    formats = Formats.of(Fields([("key_format", "hex")]))
    assert formats == Formats("hex", "auto")
    assert formats.fields == {"key_format": "hex"}
    with pytest.raises(FormError, match="Values as: choose one of auto"):
        Formats.of(Fields([("value_format", "word")]))


def test_a_schema_by_choice_says_what_is_missing() -> None:
    _, value, _ = Decoders().decode(record(b"x"), Formats("auto", "schema"))
    assert value.note == "no registry"
