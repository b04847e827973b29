"""Masks hide what their rules name, and more rather than less where a rule cannot be applied."""

from __future__ import annotations

import base64
import json
from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given, strategies as st

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.messages.decoded import PARSED_BYTES_MAX
from barnabas.console.messages.formats import AUTOMATIC, Decoders, Formats
from barnabas.console.messages.masking import HASH, HEADER, HIDDEN, LAST_4, MaskRule, Masks
from barnabas.console.messages.record_view import DecodedRecord, RecordView

CARD = "4111-1111-1111-1234"


def decoded(
    value: bytes,
    *rules: MaskRule,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    formats: Formats = AUTOMATIC,
    reveal: bool = False,
) -> DecodedRecord:
    """A record of the topic `orders` with these masks."""
    record = ConsumerRecord("orders", 0, 0, 0, 0, key, value, headers)
    return RecordView(Decoders(), Masks(rules, b"key"), formats, reveal=reveal).decode(record)


def rule(path: str, how: str = "hide", where: str = "value", topic: str = "*") -> MaskRule:
    return MaskRule(topic, where, tuple(path.split(".")) if path else (), how)


def masked(content: Any, *paths: str) -> Any:
    """What is left of a value."""
    data = json.dumps(content).encode()
    return decoded(data, *(rule(path) for path in paths)).value.content


@pytest.mark.parametrize(
    ("path", "content", "left"),
    [
        ("card", {"card": CARD, "id": 1}, {"card": HIDDEN, "id": 1}),
        ("Card", {"CARD": CARD}, {"CARD": HIDDEN}),
        ("a.card", {"a": {"card": CARD}, "card": 1}, {"a": {"card": HIDDEN}, "card": 1}),
        ("items.card", {"items": [{"card": CARD}, {}]}, {"items": [{"card": HIDDEN}, {}]}),
        ("*.c", {"a": {"c": 1}, "b": {"c": 2}}, {"a": {"c": HIDDEN}, "b": {"c": HIDDEN}}),
        ("**.c", {"c": 1, "a": [{"b": {"c": 2}}]}, {"c": HIDDEN, "a": [{"b": {"c": HIDDEN}}]}),
        ("a.**.c", {"a": {"c": 1, "b": {"c": 2}}}, {"a": {"c": HIDDEN, "b": {"c": HIDDEN}}}),
        ("a.**.c", {"b": {"c": 1}, "c": 3}, {"b": {"c": 1}, "c": 3}),
        ("a.**", {"a": {"b": 1}, "c": 2}, {"a": {"b": HIDDEN}, "c": 2}),
        ("tags.*", {"tags": ["x", "y"]}, {"tags": [HIDDEN, HIDDEN]}),
        ("a", {"a": {"b": [1]}}, {"a": HIDDEN}),
        ("a", {"a": None}, {"a": None}),
        ("a", [{"a": 1}], [{"a": HIDDEN}]),
    ],
)  # fmt: skip
def test_paths_name_members(path: str, content: Any, left: Any) -> None:
    assert masked(content, path) == left


def test_a_text_in_place_of_members_is_hidden() -> None:
    assert masked({"a": f"card={CARD}"}, "a.card") == {"a": HIDDEN}
    assert masked({"a": 5}, "a.card") == {"a": 5}


def test_json_within_a_text_is_masked() -> None:
    inner = json.dumps({"card": CARD, "id": 1})
    for path in ("payload.card", "**.card"):
        found = masked({"payload": inner}, path)
        assert json.loads(found["payload"]) == {"card": HIDDEN, "id": 1}


def test_a_text_that_only_begins_like_json_is_hidden() -> None:
    for text in ('{"card": "' + CARD, f"[card {CARD}]", "{" * 20):
        assert masked({"payload": text}, "**.card") == {"payload": HIDDEN}
    assert masked({"payload": "text"}, "**.card") == {"payload": "text"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(json.dumps({"card": CARD})),
        "\ufeff" + json.dumps({"card": CARD}),
        f"<pay><card>{CARD}</card></pay>",
        f'<pay xmlns:b="x"><b:card>{CARD}</b:card></pay>',
        f'<pay card="{CARD}"/>',
        f"<pay><card>{CARD}",
    ],
)
def test_a_text_that_has_the_member_itself_leaves_nothing_of_it(text: str) -> None:
    assert CARD not in str(masked({"payload": text}, "**.card"))
    assert CARD not in str(masked([text], "**.card"))


def test_xml_without_the_member_stays_in_a_text() -> None:
    text = "<pay><id>1</id></pay>"
    assert masked({"payload": text}, "**.card") == {"payload": text}


def test_names_of_xml_fit_with_any_prefix() -> None:
    data = f'<o:pay xmlns:o="x"><o:card>{CARD}</o:card><o:id>1</o:id></o:pay>'
    found = decoded(data.encode(), rule("pay.card")).value.content
    assert found == {"o:pay": {"@xmlns:o": "x", "o:card": HIDDEN, "o:id": "1"}}


@pytest.mark.parametrize(
    "value",
    [
        b"card " + CARD.encode(),
        b"\0\1" + CARD.encode(),
        b'{"card": "' + CARD.encode(),
        b'{"a":' * 40 + b'"' + CARD.encode() + b'"' + b"}" * 40,
        b'{"card":"%s","a":"%s"}' % (CARD.encode(), b"x" * 1_100_000),
    ],
)
def test_values_without_paths_are_hidden_as_a_whole(value: bytes) -> None:
    found = decoded(value, rule("card")).value
    assert (found.kind, found.text, found.raw, found.note) == ("hidden", HIDDEN, None, "masked")
    assert found.size == len(value)


def test_a_member_that_occurs_twice_leaves_nothing() -> None:
    value = b'{"a": {"card": "%s"}, "a": {}}' % CARD.encode()
    found = decoded(value, rule("a.card")).value
    assert CARD not in found.text
    assert found.raw is None


def test_xml_and_binary_formats_have_paths() -> None:
    xml = f'<order card="{CARD}"><id>5</id><!--{CARD}--></order>'.encode()
    found = decoded(xml, rule("order.card")).value
    assert found.content == {"order": {"@card": HIDDEN, "id": "5"}}
    packed = msgspec.msgpack.encode({"card": CARD, "id": 5})
    assert decoded(packed, rule("card")).value.content == {"card": HIDDEN, "id": 5}


def test_a_choice_of_format_shows_no_more() -> None:
    value = json.dumps({"card": CARD}).encode()
    for name in ("text", "hex", "xml", "cbor", "msgpack", "schema"):
        found = decoded(value, rule("card"), formats=Formats(name, name)).value
        assert CARD not in found.text + found.note
        assert CARD.encode().hex(" ") not in found.text


def test_keys_and_headers_have_rules_of_their_own() -> None:
    rules = (rule("", where="key"), rule("token", where=HEADER), rule("auth.user", where=HEADER))
    headers = (("Token", b"abc"), ("auth", b'{"user": "ann", "age": 3}'), ("other", b"abc"))
    found = decoded(b"value", *rules, key=b"ann", headers=headers)
    assert found.key.text == HIDDEN
    assert found.value.text == "value"
    assert [each.text for _, each in found.headers] == [
        HIDDEN, '{"user": "' + HIDDEN + '", "age": 3}', "abc",
    ]  # fmt: skip


def test_topics_are_patterns() -> None:
    for topic, is_masked in (("orders", True), ("ord*", True), ("pay*", False), ("orde", False)):
        assert decoded(b'{"a":1}', rule("a", topic=topic)).value.is_masked == is_masked


def test_the_last_four_characters_are_left_of_long_values_only() -> None:
    card = b'{"a": "%s", "b": "1234567", "c": 12345678, "d": [1]}' % CARD.encode()
    found = decoded(card, *(rule(each, LAST_4) for each in "abcd")).value.content
    assert found == {"a": HIDDEN + "1234", "b": HIDDEN, "c": HIDDEN + "5678", "d": HIDDEN}


def test_hashes_are_equal_for_equal_values_and_need_the_key() -> None:
    view = [
        RecordView(Decoders(), Masks([rule("", HASH)], key)).decode(
            ConsumerRecord("t", 0, 0, 0, 0, None, value, ())
        )
        for key, value in ((b"a", b"ann"), (b"a", b"ann"), (b"a", b"bob"), (b"b", b"ann"))
    ]
    texts = [each.value.text for each in view]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_the_first_rule_for_a_place_counts() -> None:
    found = decoded(b'{"a": "12345678"}', rule("a", LAST_4), rule("*")).value.content
    assert found == {"a": HIDDEN + "5678"}


def test_only_rules_that_say_so_are_lifted() -> None:
    rules = (MaskRule("*", "value", ("a",), reveal=True), rule("b"))
    value = b'{"a": 1, "b": 2}'
    assert decoded(value, *rules).value.content == {"a": HIDDEN, "b": HIDDEN}
    assert decoded(value, *rules, reveal=True).value.content == {"a": 1, "b": HIDDEN}


@pytest.mark.parametrize("encode", [msgspec.msgpack.encode, cbor2.dumps])
def test_text_in_byte_strings_is_masked_like_other_text(encode: Any) -> None:
    inner = {"secret": CARD, "open": "shown"}
    values = {
        "json": json.dumps(inner).encode(),
        "text": json.dumps(inner),
        "deep": [{"json": json.dumps({"more": json.dumps(inner)}).encode()}],
        "packed": encode(inner),
        "open": b"shown",
    }
    found = decoded(encode(values), rule("**.secret")).value
    assert CARD not in str(found.content)
    masked = {"secret": HIDDEN, "open": "shown"}
    assert json.loads(found.content["json"]) == json.loads(found.content["text"]) == masked
    assert json.loads(json.loads(found.content["deep"][0]["json"])["more"]) == masked
    # A byte string of another format may have the member.
    assert found.content["packed"] == HIDDEN
    # Bytes that need no mask are shown as JSON shows bytes.
    assert found.content["open"] == base64.b64encode(b"shown").decode()


@pytest.mark.parametrize("how", [HASH, LAST_4])
def test_equal_texts_have_equal_masks_in_strings_and_in_byte_strings(how: str) -> None:
    values = {"text": CARD, "bytes": CARD.encode()}
    found = decoded(cbor2.dumps(values), rule("*", how)).value.content
    assert found["text"] == found["bytes"] != HIDDEN
    [plain] = decoded(json.dumps([{"text": CARD}]).encode(), rule("*.text", how)).value.content
    assert plain["text"] == found["text"]


@pytest.mark.parametrize(
    "name",
    [
        "secret", "Secret", "secret ", " secret", "\tsecret\n", "ｓｅｃｒｅｔ", "ſecret",
        "se\u200bcret", "\ufeffsecret", "@ secret", "\u2460secret"[1:],
    ],
)  # fmt: skip
def test_no_spelling_that_looks_like_the_name_evades_a_mask(name: str) -> None:
    value = json.dumps({name: CARD, "secret2": "open"}).encode()
    assert decoded(value, rule("secret")).value.content == {name: HIDDEN, "secret2": "open"}


def test_large_values_are_masked_as_a_whole() -> None:
    value = b'{"secret": "' + CARD.encode() + b'", "pad": "' + b"x" * PARSED_BYTES_MAX + b'"}'
    assert decoded(value, rule("secret")).value.text == HIDDEN
    assert decoded(value, rule("")).value.text == HIDDEN
    assert decoded(value, rule("", LAST_4)).value.text == HIDDEN
    hashed = [decoded(each, rule("", HASH)).value.text for each in (value, value, value + b" ")]
    assert hashed[0] == hashed[1] != hashed[2]


def test_null_and_empty_values_stay() -> None:
    assert decoded(b"", rule("")).value.kind == "empty"


NAMES = st.sampled_from(["a", "b", "secret", "Secret", "@secret"])
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.just("open") | st.just(CARD)
)


@given(
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    ).map(lambda found: {"secret": CARD, "rest": found}),
    st.sampled_from(["json", "indented", "msgpack", "nested"]),
)
def test_no_secret_below_a_masked_name_is_left(content: Any, form: str) -> None:
    """Below each member named `secret`, nothing is left, however the value is written."""
    if form == "nested":
        content = {"payload": json.dumps(content)}
    data = (
        msgspec.msgpack.encode(content)
        if form == "msgpack"
        else json.dumps(content, indent=2 if form == "indented" else None).encode()
    )
    found = decoded(data, rule("**.secret")).value

    def check(value: Any) -> None:
        if isinstance(value, str) and value[:1] in ("{", "["):
            value = json.loads(value)
        if isinstance(value, dict):
            for name, each in value.items():
                if name.casefold().removeprefix("@") == "secret":
                    assert each in (HIDDEN, None)
                else:
                    check(each)
        elif isinstance(value, list):
            for each in value:
                check(each)

    if found.kind == "hidden":
        assert found.text == HIDDEN
    else:
        check(found.content)
