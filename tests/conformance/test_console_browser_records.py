"""Messages in the console as a user of Chromium reads them: searches, formats, masks, versions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import cbor2
import msgspec
import pyarrow.parquet as pq
import pytest

from barnabas.client.facade import Client
from barnabas.serializers import AvroSerializer, SchemaRegistry
from barnabas.serializers.schema import encode_header
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from tools.chromium import IS_INSTALLED, Chromium
from unit.serializers.registry_server import RegistryServer
from waiting import eventually_equal

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

FLIGHTS, FORMATS, MASKED = "user-flights", "user-formats", "user-masked"
KEYS, TRANSACTIONS, DISPLAYED = "user-keys", "user-transactions", "user-displayed"
# 22:13:20 in UTC on the first day of the records of `DISPLAYED`.
EVENING_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
CARD = "4111-1111-1111-1234"
MASKS = f"""
[[mask]]
topic = "{MASKED}"
where = "value"
path = "card"
how = "last4"

[[mask]]
topic = "{MASKED}"
where = "header"
path = "token"
"""
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "delay", "type": "int"}]}'
PROTO = 'syntax = "proto3"; message Flight { string origin = 1; int32 delay = 2; }'


@pytest.fixture(scope="module")
def client(clients_bootstrap: str) -> Iterator[Client]:
    with Client(clients_bootstrap) as made:
        for name in (FLIGHTS, FORMATS, MASKED, KEYS, TRANSACTIONS):
            made.create_topic(name, 1, 1)
        made.create_topic(DISPLAYED, 1, 1, {"retention.ms": "-1"})
        yield made


@pytest.fixture(scope="module")
def registry(client: Client) -> Iterator[str]:
    """A registry, whose schemas some records of a topic have."""
    with RegistryServer() as server:
        avro = AvroSerializer(SchemaRegistry(server.url), SCHEMA)
        with client.producer() as producer:
            producer.send(FORMATS, avro.serialize(FORMATS, {"delay": 42}))
            producer.send(FORMATS, msgspec.msgpack.encode({"pack": 43}))
            producer.send(FORMATS, cbor2.dumps({"cbor": 44}))
            producer.send(FORMATS, b"<flight><delay>45</delay></flight>")
            producer.send(FORMATS, bytes(range(250, 256)))
            schema = server.add('{"type": "object"}', "JSON")
            producer.send(FORMATS, encode_header(schema) + b'{"schema":46}')
        yield server.url


@pytest.fixture(scope="module")
def user(
    client: Client, registry: str, clients_bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleUser]:
    directory = tmp_path_factory.mktemp("rules")
    masks, proto = directory / "masks.toml", directory / "flight.proto"
    masks.write_text(MASKS)
    proto.write_text(PROTO)
    options = ["--registry", registry, "--mask", str(masks), "--interval", "1"]
    options += ["--protobuf", f"{KEYS}={proto}:Flight", "--format", f"{KEYS}:key=text"]
    with (
        running_console(clients_bootstrap, *options) as running,
        Chromium() as browser,
    ):
        running.log_in(browser, "/topics")
        yield ConsoleUser(browser, running.url)


@pytest.fixture(scope="module")
def displayed(client: Client) -> None:
    """Two records, an hour apart, whose JSON is stored without spaces and with escapes."""
    with client.producer() as producer:
        headers = [("trace", b"42")]
        for number, value in enumerate(
            (b'{"amount":67.18,"city":"Z\\u00fcrich"}', b'{"amount":5.0,"order":{"id":"a1"}}')
        ):
            at = EVENING_MS + number * HOUR_MS
            producer.send(DISPLAYED, value, b"k%d" % number, headers=headers, timestamp_ms=at)


@pytest.fixture(scope="module")
def flights(client: Client) -> None:
    with client.producer() as producer:
        for number in range(300):
            value = {"flight": number, "delay": number % 60, "from": {"origin": "JFK"}}
            producer.send(FLIGHTS, json.dumps(value).encode(), b"k%d" % number)
        producer.send(FLIGHTS, b"no JSON, =1+1", b"text")


def test_a_filter_in_cel_finds_messages_and_shows_where_it_is_wrong(
    user: ConsoleUser, flights: None
) -> None:
    user.open("/messages", topic=FLIGHTS)
    user.choose("From", "the beginning")
    user.type("Filter", "value.delay > 57 && value.flight < 120")
    user.press("Search")
    # Two of each 60 flights, and the text has no member.
    user.sees("4 found", "301 of 301 offsets examined", "the filter failed for 1 of them")
    assert [next(iter(each.values())) for each in user.rows()] == ["0:58", "0:59", "0:118", "0:119"]
    user.type("Filter", "value.delay >")
    user.press("Search")
    user.sees("filter is not valid", r"value\.delay > *\^")


def test_a_filter_has_all_fields_of_a_message_and_stays_in_the_address(
    user: ConsoleUser, displayed: None
) -> None:
    wanted = (
        'value.amount > 50.0 && key == "k0" && headers.trace == "42" && partition == 0 '
        '&& offset == 0 && time < timestamp("2024-01-01T00:00:00Z") && size > 20'
    )
    user.open("/messages", topic=DISPLAYED)
    user.type("Filter", wanted)
    user.press("Search")
    user.sees("1 found", "2 of 2 offsets examined")
    address = str(user.finds("location.pathname + location.search"))
    user.open("/topics")
    user.open(address)
    user.sees("1 found")
    assert user.finds("field(document.body, 'Filter').value") == wanted


def test_a_text_is_found_as_the_page_displays_it_in_any_case(
    user: ConsoleUser, displayed: None
) -> None:
    user.open("/messages", topic=DISPLAYED, **{"from": "beginning"})
    # The record has no space there, and an escape for the letter.
    for text, ignores_case, found in (
        ('"amount": 67.18', False, 1),
        ("Zürich", False, 1),
        ("zÜRICH", False, 0),
        ("zÜRICH", True, 1),
    ):
        user.type("Contains", text)
        if ignores_case:
            user.part("More conditions").check("Ignore case")
        user.press("Search")
        user.sees(f"{found} found", "2 of 2 offsets examined")


def test_paths_into_json_and_sizes_are_columns(user: ConsoleUser, displayed: None) -> None:
    user.open("/messages", topic=DISPLAYED, **{"from": "beginning"})
    user.part("Columns, time zone").type("Columns", "size,value.order.id")
    user.press("Search")
    user.sees("2 found")
    row = user.row("0:1")
    # Key, value and header have 2, 34 and 7 bytes.
    assert (row["Size"], row["value.order.id"]) == ("43 B", "a1")
    user.press("Remove the column size")
    user.sees("2 found")
    assert "Size" not in user.row("0:1")
    user.press("size")
    user.sees("2 found")
    assert user.row("0:1")["Size"] == "43 B"


def test_messages_from_an_offset_or_a_time_are_shown_in_a_time_zone(
    user: ConsoleUser, displayed: None
) -> None:
    user.open("/messages", topic=DISPLAYED)
    user.choose("From", "an offset")
    user.type("Offset", "1")
    user.press("Search")
    user.sees("1 found")
    assert user.row("0:1")["Time"].startswith("2023-11-14 23:13:20")
    user.part("Columns, time zone").type("Time zone", "Asia/Tokyo")
    user.press("Search")
    user.sees("1 found")
    assert user.row("0:1")["Time"].startswith("2023-11-15 08:13:20")
    # The browser remembers the zone, and the form reads times in it.
    user.open("/messages", topic=DISPLAYED)
    user.choose("From", "a time")
    user.type("Time (Asia/Tokyo)", "2023-11-15T08:00")
    user.press("Search")
    user.sees("1 found", "0:1")
    user.part("Columns, time zone").type("Time zone", "UTC")
    user.press("Search")
    user.sees(r"Time \(UTC\)")


def test_long_values_collapse_and_all_open_by_a_link(user: ConsoleUser, client: Client) -> None:
    topic = "user-long"
    client.create_topic(topic, 1, 1)
    with client.producer() as producer:
        for _ in range(2):
            producer.send(topic, b"long " * 100)
    values = "document.querySelectorAll('#messages details')"

    def are_open() -> list[bool]:
        return list(user.browser.run(f"[...{values}].map((each) => each.open)"))

    user.open("/messages", topic=topic, **{"from": "beginning"})
    eventually_equal(are_open, [False, False])
    user.press("Expand all")
    eventually_equal(are_open, [True, True])
    user.press("Collapse all")
    eventually_equal(are_open, [False, False])


def test_a_search_is_downloaded_as_json_lines_csv_and_parquet(
    user: ConsoleUser, flights: None, tmp_path: Path
) -> None:
    fields = {"topic": FLIGHTS, "from": "beginning", "columns": "offset,value.from.origin,value"}
    user.open("/messages", **fields, text='"delay": 59')
    user.sees("5 found")
    lines = user.download("JSON lines", tmp_path / "lines").splitlines()
    assert [json.loads(each)["value"]["flight"] for each in lines] == [59, 119, 179, 239, 299]
    text = user.download("CSV", tmp_path / "csv").decode()
    table = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(each["offset"], each["value.from.origin"]) for each in table][-1] == ("299", "JFK")
    parquet = pq.read_table(io.BytesIO(user.download("Parquet", tmp_path / "parquet")))
    assert parquet.column("offset").to_pylist() == [59, 119, 179, 239, 299]


def test_formats_besides_json_and_text_are_shown_as_json_xml_and_hex(user: ConsoleUser) -> None:
    user.open("/messages", topic=FORMATS, **{"from": "beginning"})
    user.sees("6 found")
    shown = [each["Value"] for each in user.rows()]
    wanted = ['"delay": 42', '"pack": 43', '"cbor": 44', "<delay>45", "fa fb fc fd fe ff"]
    wanted.append('"schema": 46')
    assert [part for part, text in zip(wanted, shown, strict=True) if part not in text] == []
    user.press("0:2")
    user.choose("Value as", "bytes")
    user.press("Show")
    user.sees("a1 64 63 62 6f 72")


def test_a_protobuf_file_shows_values_without_a_registry(user: ConsoleUser, client: Client) -> None:
    with client.producer() as producer:
        place = producer.send(KEYS, b"\x0a\x03JFK\x10\x2a", b"flight").result()
    user.open("/message", topic=KEYS, partition=0, offset=place.offset)
    user.sees('"origin": "JFK"', '"delay": 42')


def test_masked_fields_are_hidden_in_lists_pages_searches_and_downloads(
    user: ConsoleUser, client: Client, tmp_path: Path
) -> None:
    with client.producer() as producer:
        value = json.dumps({"card": CARD, "name": "ann"}).encode()
        producer.send(MASKED, value, headers=[("token", b"t0ken-5ecret")]).result()
    user.open("/messages", topic=MASKED)
    text = user.sees("1 found", '"name": "ann"', "1234")
    assert CARD not in text
    assert "t0ken-5ecret" not in text
    data = user.download("JSON lines", tmp_path / "lines")
    assert b"1234" in data
    assert CARD.encode() not in data
    assert b"t0ken-5ecret" not in data
    user.press("0:0")
    text = user.sees("ann")
    assert CARD not in text
    assert "t0ken-5ecret" not in text
    # A masked part cannot be found.
    user.open("/messages", topic=MASKED, text=CARD)
    user.sees("0 found", "No message matches")


def test_internal_topics_say_in_words_what_their_records_do(
    user: ConsoleUser, client: Client
) -> None:
    client.commit_offsets("user-group", {(KEYS, 0): 42})
    user.open("/topics", internal=1, q="__consumer")
    user.press("search messages of __consumer_offsets")
    user.choose("From", "the beginning")
    user.type("Contains", "user-group")
    user.press("Search")
    user.sees(f"The group user-group commits offset 42 of {KEYS}, partition 0")
    with client.producer(transactional_id="user-words") as producer:
        producer.init_transactions()
    user.open("/messages", topic="__transaction_state", text="user-words", **{"from": "beginning"})
    user.sees(r"The transaction of user-words is empty: producer \d+, epoch 0")


def test_each_offset_of_a_transaction_is_explained_with_its_batch(
    user: ConsoleUser, client: Client
) -> None:
    with client.producer(transactional_id="user-writer", compression_type="gzip") as producer:
        producer.init_transactions()
        for value, ends in ((b"committed", True), (b"aborted", False)):
            producer.begin_transaction()
            producer.send(TRANSACTIONS, value)
            producer.flush()
            producer.commit_transaction() if ends else producer.abort_transaction()
        producer.begin_transaction()
        producer.send(TRANSACTIONS, b"open").result()
        user.open("/message", topic=TRANSACTIONS, partition=0, offset=0)
        user.sees("user-writer", "committed", "gzip", "epoch 0")
        for wanted in ("marker", "was aborted", "marker", "still open"):
            user.press("Offset after")
            user.sees(wanted)
        producer.abort_transaction()


def test_versions_of_a_key_are_listed_and_two_messages_are_compared(
    user: ConsoleUser, client: Client
) -> None:
    with client.producer() as producer:
        for number in (1, 2):
            value = json.dumps({"number": number, "same": True}).encode()
            producer.send(FLIGHTS, value, b"versions")
        place = producer.send(FLIGHTS, None, b"versions").result()
    user.open("/message", topic=FLIGHTS, partition=0, offset=place.offset)
    user.press("Versions of this key")
    user.sees("deletes the key", '"number": 1', '"number": 2')
    user.open("/message", topic=FLIGHTS, partition=0, offset=place.offset - 1)
    user.press("Difference")
    changed = [(each["Change"], each["Text"]) for each in user.rows() if each["Change"]]
    assert changed == [("−", '"number": 1,'), ("+", '"number": 2,')]
