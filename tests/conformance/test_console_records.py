"""One record in the console: its batch, transaction, versions and differences, and its masks."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

import cbor2
import msgspec
import pytest

from barnabas.client.facade import Client
from barnabas.console.messages.formats import DECODERS, FormatRule
from barnabas.console.messages.key_versions import VersionLimits
from barnabas.console.messages.masking import HASH, HEADER, LAST_4, MaskRule
from barnabas.console.settings import ConsoleSettings, SearchLimits
from conformance.console_brokers import SECONDS, address, client
from console_in_process import ConsoleInProcess, table_rows
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["address", "client"]

LIMITS = VersionLimits(records=1000, size=10_000_000, seconds=20.0)
FORMATS = (FormatRule("records-chosen", "value", DECODERS["hex"]),)
MASKS = (
    MaskRule("records-masked*", "value", ("**", "card")),
    MaskRule("records-masked*", "value", ("**", "iban"), LAST_4),
    MaskRule("records-masked*", "key", (), HASH),
    MaskRule("records-masked*", HEADER, ("token",)),
    MaskRule("records-revealed", "value", ("pin",), reveal=True),
)


@pytest.fixture(scope="module")
def console(address: str) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        address,
        {},
        allow_changes=True,
        interval=3600.0,
        timeout=SECONDS,
        versions=LIMITS,
        # A page waits for the whole search, however slowly the process of its filter starts.
        search=SearchLimits(page_seconds=SECONDS),
        formats=FORMATS,
        masks=MASKS,
    )
    with ConsoleInProcess(settings) as running:
        running.log_in()
        yield running


def facts(page: str) -> dict[str, str]:
    """The facts of a page, and the rows of its last table, by name."""
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    rows = re.findall(r'<th scope="row">(\w[^<]*)</th><td>(.*?)</td>', page)
    return dict(pairs + rows)


def shown(page: str) -> list[str]:
    """The texts of keys and values on a page."""
    return re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)


def test_every_offset_of_a_transaction_is_explained(
    console: ConsoleInProcess, client: Client
) -> None:
    topic = "records-transactions"
    client.create_topic(topic, 1, 1)
    with client.producer(transactional_id="records-writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"committed", key=b"k")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"aborted", key=b"k")
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"open", key=b"k")
        producer.flush()

        def page(offset: int) -> str:
            return console.get("/message", topic=topic, partition=0, offset=offset).text

        fates = [facts(page(offset)).get("Transaction") for offset in range(5)]
        assert fates == ["committed", "marker", "aborted", "marker", "open"]
        assert "consumers with read_committed do not receive this record." in page(2)
        assert facts(page(0))["Transactional id"] == "records-writer"
        assert re.fullmatch(
            r"id \d+, epoch \d+, sequence numbers from 0", facts(page(0))["Producer"]
        )
        assert [facts(page(offset))["Kind"] for offset in (1, 3)] == ["COMMIT", "ABORT"]
        assert "coordinator epoch" in facts(page(1))
        assert shown(page(4)) == ["k", "open"]

        versions = "/message/versions"
        place = {"topic": topic, "partition": 0, "offset": 4}
        assert shown(console.get(versions, **place).text) == ["k", "committed"]
        all_versions = console.get(versions, **place, uncommitted=1).text
        assert shown(all_versions) == ["k", "open", "aborted", "committed"]
        assert version_marks(all_versions) == {4: "open", 2: "aborted", 0: ""}
        assert version_marks(console.get(versions, **place).text) == {0: ""}
        producer.abort_transaction()
    eventually_equal(lambda: facts(page(4))["Transaction"], "aborted")


def version_marks(page: str) -> dict[int, str]:
    """The mark of the transaction of each version of a key, by offset; "" for none."""
    names = [name.split() for name, row in table_rows(page).items() if "Difference" in row]
    kinds = {"aborted", "open"}
    return {int(offset): "".join(kinds.intersection(words)) for offset, *words in names}


def marks(page: str) -> dict[int, str]:
    """The mark of the transaction of each message of a list, by offset; "" for none."""
    rows = re.findall(r'<tr id="m0-(\d+)"(?: class="(\w+)")?>(.*?)</tr>', page, re.DOTALL)
    for _, kind, row in rows:
        assert (f">{kind}</span>" in row) == bool(kind), row
    return {int(offset): kind for offset, kind, _ in rows}


def test_lists_mark_aborted_and_open_transactions(
    console: ConsoleInProcess, client: Client
) -> None:
    topic = "records-marks"
    client.create_topic(topic, 1, 1)
    expected: dict[int, str] = {}
    with (
        client.producer(transactional_id="records-marker") as producer,
        client.producer() as plain,
    ):
        producer.init_transactions()
        for number in range(40):
            producer.begin_transaction()
            producer.send(topic, b"of a transaction", key=b"k")
            producer.flush()
            if number % 3 == 0:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            expected[2 * number] = "" if number % 3 else "aborted"
        producer.begin_transaction()
        producer.send(topic, b"of a transaction", key=b"k")
        producer.flush()
        plain.send(topic, b"without a transaction")
        plain.flush()
        expected |= {80: "open", 81: ""}

        def found(**fields: object) -> dict[int, str]:
            page = console.get("/messages", topic=topic, limit=100, **fields)
            assert page.status == 200, page.text
            return marks(page.text)

        assert found() == expected
        assert found(**{"from": "beginning"}) == expected
        assert found(value="of a") == {o: kind for o, kind in expected.items() if o != 81}
        committed = {offset: "" for offset, kind in expected.items() if not kind and offset < 80}
        assert found(committed=1) == committed
        lines = console.get("/messages/download", topic=topic, limit=100).text.splitlines()
        fates = {line["offset"]: line["transaction"] for line in map(json.loads, lines)}
        unmarked = {"committed": "", None: ""}
        assert {offset: unmarked.get(fate, fate) for offset, fate in fates.items()} == expected
        assert (fates[2], fates[81]) == ("committed", None)
        producer.abort_transaction()
    eventually_equal(lambda: marks(console.get("/messages", topic=topic).text)[80], "aborted")


def test_the_batch_of_a_record_is_shown(console: ConsoleInProcess, client: Client) -> None:
    topic = "records-batches"
    client.create_topic(topic, 1, 1)
    with client.producer(compression_type="zstd", linger_ms=5000, enable_idempotence=False) as made:
        for number in range(3):
            made.send(topic, b"%d" % number)
        made.flush()
    page = console.get("/message", topic=topic, partition=0, offset=1).text
    found = facts(page)
    assert (found["Compression"], found["Transaction"]) == ("zstd", "none")
    assert found["Offsets"] == "0 to 2, 3 records"
    assert found["Producer"] == "neither idempotent nor transactional"
    assert found["Leader epoch"].isdigit()
    assert found["Format"] == "version 2"
    beyond = console.get("/message", topic=topic, partition=0, offset=3)
    assert beyond.status == 404
    assert "offsets 0 to 3" in beyond.text


def test_times_of_a_message_are_in_the_chosen_zone(
    console: ConsoleInProcess, client: Client
) -> None:
    topic = "records-zones"
    client.create_topic(topic, 1, 1, {"retention.ms": "-1"})
    with client.producer() as producer:
        producer.send(topic, b"value", b"key", timestamp_ms=1_769_860_800_000).result()
    place = {"topic": topic, "partition": 0, "offset": 0, "zone": "Asia/Tokyo"}
    for path in ("/message", "/message/versions"):
        page = console.get(path, **place).text
        assert "2026-01-31 21:00:00.000+09:00" in page
        assert "Times are Asia/Tokyo." in page


def test_versions_of_a_key_are_listed_and_compared(
    console: ConsoleInProcess, client: Client
) -> None:
    topic = "records-versions"
    client.create_topic(topic, 1, 1)
    with client.producer() as producer:
        for number in range(60):
            value = {"number": number, "name": "ann", "tags": ["a"], "z": 1}
            producer.send(topic, json.dumps(value).encode(), key=b"ann")
            producer.send(topic, b"other", key=b"bob")
        producer.send(topic, b'{"z": 1, "name": "ann", "tags": ["a"], "number": 60}', key=b"ann")
        producer.send(topic, None, key=b"ann")
        producer.send(topic, b"no key")
    place = {"topic": topic, "partition": 0, "offset": 0}
    page = console.get("/message/versions", **place).text
    assert shown(page)[0] == "ann"
    offsets = re.findall(r'<th scope="row"[^>]*>\s*<a [^>]*>(\d+)</a>', page)
    assert [int(each) for each in offsets] == [121, 120, *range(118, 22, -2)]
    assert page.count("deletes the key") == 1
    rest = re.search(r'href="([^"]*before=(\d+)[^"]*)">Older versions', page)
    assert rest is not None
    older = console.get("/message/versions", **place, before=rest[2]).text
    assert re.findall(r'<tr><th scope="row"><a [^>]*>(\d+)</a>', older)[-1] == "0"
    assert "Older versions" not in older

    difference = console.get("/message/difference", **{**place, "offset": 120}).text
    assert re.findall(r'<tr class="(added|removed)">.*?<code>(.*?)</code>', difference) == [
        ("removed", "  &#34;number&#34;: 59,"), ("added", "  &#34;number&#34;: 60,"),
    ]  # fmt: skip
    chosen = console.get("/message/difference", **place, other_partition=0, other_offset=121).text
    assert "<code>null</code>" in chosen
    assert "No version before" in console.get("/message/difference", **place).text
    no_key = {**place, "offset": 122}
    assert "The message has no key" in console.get("/message/versions", **no_key).text
    for path in ("/message/versions", "/message/difference"):
        assert console.get(path, **{**place, "offset": 999}).status == 404


def test_a_search_for_versions_is_bounded_and_continues(
    console: ConsoleInProcess, client: Client
) -> None:
    topic = "records-many"
    client.create_topic(topic, 1, 1)
    with client.producer() as producer:
        producer.send(topic, b"first", key=b"rare")
        for _ in range(2500):
            producer.send(topic, b"x", key=b"common")
        producer.send(topic, b"last", key=b"rare")
    before, found, pages = 2502, [], 0
    while before is not None:
        page = console.get(
            "/message/versions", topic=topic, partition=0, offset=0, before=before
        ).text
        found += shown(page)[1:]
        rest = re.search(r'before=(\d+)[^"]*">Older versions', page)
        assert (rest is None) == ("The search stopped at its limit of 1000 records" not in page)
        before = None if rest is None else int(rest[1])
        pages += 1
    assert found == ["last", "first"]
    assert pages > 1


def test_internal_topics_are_shown_in_words(console: ConsoleInProcess, client: Client) -> None:
    client.create_topic("records-words", 1, 1)
    client.commit_offsets("records-group", {("records-words", 0): 42})
    with client.producer(transactional_id="records-words") as producer:
        producer.init_transactions()

    def words(topic: str) -> str:
        ends = client.list_offsets(
            {(topic, each): "latest" for each in client.partitions_for([topic])[topic]}
        )
        texts = [
            console.get("/message", topic=topic, partition=partition, offset=offset).text
            for (_, partition), end in ends.items()
            for offset in range(max(0, end.offset - 20), end.offset)
        ]
        return " ".join(texts)

    commit = "The group records-group commits offset 42 of records-words, partition 0."
    eventually(lambda: commit in words("__consumer_offsets"))
    # Other tests commit offsets on the same broker.
    search = {"from": "beginning", "text": "records-words"}
    listed = console.get("/messages", topic="__consumer_offsets", **search).text
    assert commit in listed
    assert "The transaction of records-words is empty: producer" in words("__transaction_state")


def test_formats_are_recognized_and_chosen(console: ConsoleInProcess, client: Client) -> None:
    value = {"origin": "JFK", "delay": 42}
    text = '{\n  "origin": "JFK",\n  "delay": 42\n}'
    for topic in ("records-formats", "records-chosen"):
        client.create_topic(topic, 1, 1)
        with client.producer() as producer:
            producer.send(topic, msgspec.msgpack.encode(value), key=cbor2.dumps(value))
            producer.send(topic, b"<a><b>1</b></a>", key=b"12")

    def page(topic: str, offset: int, **fields: str) -> list[str]:
        found = console.get("/message", topic=topic, partition=0, offset=offset, **fields)
        return [each.replace("&#34;", '"') for each in shown(found.text)]

    assert page("records-formats", 0) == [text, text]
    assert page("records-formats", 1) == ["12", "&lt;a&gt;\n  &lt;b&gt;1&lt;/b&gt;\n&lt;/a&gt;"]
    assert (
        page("records-formats", 1, value_format="text")[1]
        == "&lt;a&gt;&lt;b&gt;1&lt;/b&gt;&lt;/a&gt;"
    )
    assert page("records-chosen", 1)[1].startswith("0000  3c 61 3e")
    assert page("records-chosen", 0, value_format="msgpack")[1] == text
    listed = console.get("/messages", topic="records-formats", key_format="hex").text
    assert "0000  a2 66 6f" in listed
    assert "partition=0&amp;offset=0&amp;key_format=hex" in listed
    assert console.get("/messages", topic="records-formats", key_format="x").status == 400


SECRETS = ("4111-1111-1111-1234", "DE02120300000000202051", "ann@example.org", "t0ken-5ecret")


@pytest.fixture(scope="module")
def masked(client: Client) -> str:
    """A topic with secrets in keys, values and headers, in several forms."""
    card, iban, email, token = SECRETS
    value = {"customer": {"card": card, "name": "Ann"}, "accounts": [{"iban": iban}]}
    plain = json.dumps(value).encode()
    values = [
        plain,
        json.dumps({**value, "nested": plain.decode()}, indent=2).encode(),
        msgspec.msgpack.encode(value),
        cbor2.dumps(value),
        f"<customer><card>{card}</card><iban>{iban}</iban></customer>".encode(),
        f"card={card} iban={iban}".encode(),
        b'{"customer": {"card": "' + card.encode(),
        b"\0\0\0\0\7" + plain,
        b"\xff\xfe" + plain,
    ]
    client.create_topic("records-masked", 1, 1)
    with client.producer() as producer:
        for each in values:
            headers = [("token", token.encode()), ("other", b"open")]
            producer.send("records-masked", each, key=email.encode(), headers=headers)
    return "records-masked"


# Pages that do not end. A test of tails reads them.
ENDLESS = ("/messages/tail",)


def test_no_response_has_a_masked_secret(
    console: ConsoleInProcess, client: Client, masked: str
) -> None:
    """All pages, also those to come, get the topic; the bytes of no response have a secret."""
    end = client.list_offsets({(masked, 0): "latest"})[(masked, 0)].offset
    everything = {"name": masked, "partition": 0, "offset": 1, "from": "beginning", "reveal": 1}
    requests: list[tuple[str, dict[str, object]]] = [
        (path, everything) for path in console.paths if path not in ENDLESS
    ]
    for path in ("/message", "/message/versions", "/message/difference"):
        assert path in console.paths
        requests += [(path, {"partition": 0, "offset": offset}) for offset in range(end)]
    for name in ("jsonl", "csv", "parquet"):
        for columns in ("", "key,value,headers", "value.customer.card,headers.token"):
            fields = {"from": "beginning", "format": name, "columns": columns}
            requests.append(("/messages/download", fields))
    for secret in SECRETS:
        for name in ("key", "value", "text"):
            requests.append(("/messages", {"from": "beginning", name: secret[:-1]}))
        expression = f'string(value).contains("{secret[:5]}") || size(key) > 2'
        requests.append(("/messages", {"from": "beginning", "filter": expression}))
    for name in ("auto", "schema", *DECODERS):
        formats = {"key_format": name, "value_format": name}
        place = {"partition": 0, "offset": 1, **formats}
        others = {"other_partition": 0, "other_offset": 8}
        requests.append(("/messages", {"at": "0-0", **formats}))
        requests.append(("/message/versions", place))
        requests.append(("/message/difference", {**place, **others}))
    for path, fields in requests:
        found = console.get(path, topic=masked, **fields)
        assert found.status < 500 or found.status == 501, found.text
        assert not secrets_in(found.body), (path, fields)
    page = console.get("/message", topic=masked, partition=0, offset=0).text
    assert "Rules of the operator mask" in page
    assert "••••2051" in page


def secrets_in(body: bytes) -> list[str]:
    """The secrets that a response has, in the forms in which a page could show them."""
    found = []
    for secret in SECRETS:
        data = secret.encode()
        forms = (
            data,
            base64.b64encode(data)[:-4],
            data.hex().encode(),
            data[:12].hex(" ").encode(),
        )
        if any(form in body for form in forms):
            found.append(secret)
    return found


def test_new_messages_arrive_masked(console: ConsoleInProcess, client: Client) -> None:
    topic = "records-masked-tail"
    client.create_topic(topic, 1, 1)
    following = console.follow("/messages/tail", b"event: message", topic=topic)
    card, _, email, token = SECRETS
    value = json.dumps({"customer": {"card": card, "name": "Eve"}}).encode()
    with client.producer() as producer:

        def write() -> bool:
            headers = [("token", token.encode())]
            producer.send(topic, value, key=email.encode(), headers=headers)
            producer.flush()
            return following.done()

        eventually(write)
    body = following.result().body
    assert b"Eve" in body
    assert not secrets_in(body)


def test_a_masked_part_is_not_found(console: ConsoleInProcess, masked: str) -> None:
    def rows(**fields: str) -> int:
        page = console.get("/messages", topic=masked, **{"from": "beginning", **fields}).text
        return page.count('<a href="/message?')

    card, iban, email, token = SECRETS
    assert rows() == 9
    assert rows(value="Ann") == 4
    for fields in (
        {"value": card[:6]},
        {"value": iban[:6]},
        {"key": email},
        {"header": f"token={token}"},
    ):
        assert rows(**fields) == 0
    assert rows(header="other=open") == 9
    assert rows(filter='value.customer.name == "Ann"') == 4
    assert rows(filter=f'value.customer.card.startsWith("{card[:4]}")') == 0


def test_administrators_see_what_a_rule_lets_them_see(
    console: ConsoleInProcess, client: Client, address: str
) -> None:
    topic = "records-revealed"
    client.create_topic(topic, 1, 1)
    with client.producer() as producer:
        producer.send(topic, b'{"pin": "0815"}')
    place = {"topic": topic, "partition": 0, "offset": 0}
    assert "0815" not in console.get("/message", **place).text
    assert "revealed" not in console.get("/audit").text
    assert "0815" in console.get("/message", **place, reveal=1).text
    assert "revealed" in console.get("/audit").text
    settings = ConsoleSettings(address, {}, interval=3600.0, timeout=SECONDS, masks=MASKS)
    with ConsoleInProcess(settings) as reader:
        found = reader.get("/message", **place, reveal=1)
        assert found.status == 200
        assert "0815" not in found.text


def test_masked_messages_are_copied_to_masked_topics_only(
    console: ConsoleInProcess, client: Client, masked: str
) -> None:
    client.create_topic("records-open", 1, 1)
    client.create_topic("records-masked-copy", 1, 1)
    fields = {"topic": masked, "at": "0-0", "partition": "same"}
    refused = console.change("/resend", target="records-open", **fields)
    assert "has other masks than records-open" in refused.text
    shown = console.preview("/resend", target="records-masked-copy", **fields)
    assert not secrets_in(shown.body)
    assert client.list_offsets({("records-open", 0): "latest"})[("records-open", 0)].offset == 0
