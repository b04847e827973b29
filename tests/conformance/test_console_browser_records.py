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
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from tools.chromium import IS_INSTALLED, Chromium
from unit.serializers.registry_server import RegistryServer

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

FLIGHTS, FORMATS, MASKED = "user-flights", "user-formats", "user-masked"
KEYS, TRANSACTIONS = "user-keys", "user-transactions"
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
    user.sees("5 found")
    shown = [each["Value"] for each in user.rows()]
    wanted = ['"delay": 42', '"pack": 43', '"cbor": 44', "<delay>45", "fa fb fc fd fe ff"]
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
