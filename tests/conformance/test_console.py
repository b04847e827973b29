"""The web console with a broker of each kind: Barnabas and Apache Kafka."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping

import pytest

from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings, SearchLimits
from barnabas.testing.broker_process import BrokerProcess
from conformance.console_brokers import SECONDS, address, client
from console_in_process import ConsoleInProcess, table_rows
from tools.console_output import READY, read_line
from waiting import eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["address", "client"]

HOSTILE = '"><script>alert(1)</script>\u202e'
# Pages wait for their searches, so that no test sees one that still runs.
LIMITS = SearchLimits(page_seconds=SECONDS)


# The default of retention.ms, from the broker's log.retention.hours.
WEEK = '<span class="dim">604800000</span>'


@pytest.fixture(scope="module")
def console(address: str) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        address, {}, allow_changes=True, interval=3600.0, timeout=SECONDS, search=LIMITS
    )
    with ConsoleInProcess(settings) as running:
        running.log_in()
        yield running


@pytest.fixture(scope="module")
def topic(client: Client, address: str) -> str:
    """A topic with two partitions: 1,000 plain records in one, five special ones in the other."""
    name = "console-records"
    client.create_topic(name, 2, 1, {"retention.ms": "-1", "max.message.bytes": "2000000"})
    with client.producer() as producer:
        producer.send_batch(name, [(b"k%d" % n, b"plain %d" % n, [], None) for n in range(1000)], 0)
        special = [
            (b"json", b'{"b": [1, 2.50], "a": null}', [("source", b"unit")], 1_000),
            (HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())], 2_000),
            (b"bytes", bytes(range(256)), [], 3_000),
            (b"large", b"x" * 1_000_000, [], 4_000),
            (b"tombstone", None, [], 5_000),
        ]
        producer.send_batch(name, special, 1)
    return name


def rows(text: str) -> list[str]:
    """Return PARTITION:OFFSET of each message on a page."""
    return re.findall(r">(\d+:\d+)</a>", text)


def test_every_page_is_shown(console: ConsoleInProcess, topic: str, client: Client) -> None:
    client.commit_offsets("console-shown", {(topic, 0): 100})
    console.sample()
    console.sample()
    node = client.describe_cluster().brokers[0].id
    for path, fields, expected in (
        ("/", {}, ["Metadata quorum: leader", "active", "metadata.version", 'class="axes"']),
        ("/topics", {}, [topic, "Cleanup policy", ">delete<"]),
        ("/topic", {"name": topic}, ["Partitions", "set on this topic", "retention.ms", WEEK]),
        ("/groups", {}, ["console-shown"]),
        ("/group", {"id": "console-shown"}, [f"{topic}</a>:0", "900"]),
        ("/broker", {"id": node}, ["Log directories", "set in the broker&#39;s file"]),
        ("/broker", {"id": 999}, ["No broker with this id"]),
        ("/reassignments", {}, ["No replicas move"]),
        ("/security", {}, ["SECURITY_DISABLED", "Users (SCRAM)"]),
        ("/produce", {"topic": topic}, ["Write a message"]),
    ):
        page = console.get(path, **fields)
        assert page.status == (404 if fields.get("id") == 999 else 200), page.text
        for text in expected:
            assert text in page.text, (path, text)


def test_long_tables_have_pages(console: ConsoleInProcess, client: Client) -> None:
    name = "console-wide"
    client.create_topic(name, 201, 1)

    def partitions(page: int) -> int:
        text = console.get("/topic", name=name, page=page).text
        return text.count('<a href="/messages?topic=console-wide&amp;partition=')

    # Apache Kafka reports new partitions some time after its response.
    eventually_equal(lambda: [partitions(page) for page in (1, 2, 3, 99)], [100, 100, 1, 1])
    text = console.get("/topic", name=name, page=2).text
    assert "Page 2 of 3 (201 rows)" in text
    assert "name=console-wide&amp;page=1" in text
    assert "name=console-wide&amp;page=3" in text
    client.delete_topics([name])


def test_samples_have_more_time_than_pages(address: str, topic: str) -> None:
    settings = ConsoleSettings(address, {}, interval=3600.0, timeout=0.0)
    with ConsoleInProcess(settings) as impatient:
        assert impatient.get("/topics").status in (502, 504)
        impatient.sample()
        history = impatient.console.history
        assert history.error == ""
        assert history.latest is not None
        assert topic in history.latest.topics


def test_why_and_doctor_are_pages(console: ConsoleInProcess, topic: str) -> None:
    assert "readable" not in console.get("/why").text
    why = console.get("/why", target=f"{topic}:0@5", ask=1).text
    assert f"{topic}-0 at 5" in why
    assert console.get("/why", target=f"{topic}:9", ask=1).status == 404
    assert console.get("/why", target="a@1", ask=1).status == 400
    doctor = console.get("/doctor", ask=1).text
    verdicts = re.findall(r'class="verdict">(\w+)<', doctor)
    assert verdicts == sorted(verdicts, key=["wrong", "note", "ok"].index)
    assert "ok" in verdicts


def test_hostile_keys_values_headers_and_names_are_escaped(
    console: ConsoleInProcess, topic: str, client: Client
) -> None:
    client.commit_offsets(HOSTILE, {(topic, 0): 1})
    console.sample()
    pages = (
        ("/messages", {"topic": topic, "partition": 1, "from": "beginning"}),
        ("/message", {"topic": topic, "partition": 1, "offset": 1}),
        ("/groups", {}),
        ("/group", {"id": HOSTILE}),
        ("/topics", {"q": HOSTILE}),
        ("/messages", {"topic": topic, "value": HOSTILE, "time": HOSTILE}),
        ("/why", {"target": HOSTILE, "kind": "group", "ask": 1}),
        ("/topic", {"name": HOSTILE}),
        ("/login", {"next": HOSTILE}),
    )
    for path, fields in pages:
        text = console.get(path, **fields).text
        assert "<script>alert" not in text, path
        assert "\u202e" not in text, path
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in console.get("/groups").text


def test_json_is_indented_bytes_are_dumped_and_large_values_are_cut(
    console: ConsoleInProcess, topic: str
) -> None:
    text = console.get("/messages", topic=topic, partition=1, **{"from": "beginning"}).text
    assert rows(text) == ["1:0", "1:1", "1:2", "1:3", "1:4"]
    assert "{&#34;b&#34;: [1, 2.50], &#34;a&#34;: null}" in text
    full = console.get("/message", topic=topic, partition=1, offset=0).text
    assert "{\n  &#34;b&#34;: [\n    1,\n    2.50\n  ],\n  &#34;a&#34;: null\n}" in full
    assert "0040  40 41 42 43" in text
    assert "cut, 977 KiB in all" in text
    assert len(text) < 35_000
    assert '<em class="dim">null</em>' in text
    assert len(console.get("/message", topic=topic, partition=1, offset=3).text) < 100_000


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"partition": 0, "key": "k999"}, ["0:999"]),
        ({"partition": 0, "value": "plain 998"}, ["0:998"]),
        ({"partition": 1, "header": "source=uni"}, ["1:0"]),
        ({"partition": 1, "header": "source=other"}, []),
        ({"partition": 0, "from": "offset", "offset": 990, "limit": 2}, ["0:990", "0:991"]),
        ({"partition": 1, "from": "time", "time": 4000}, ["1:3", "1:4"]),
        ({"partition": 0, "limit": 2}, ["0:999", "0:998"]),
        ({"partition": 1, "limit": 2}, ["1:4", "1:3"]),
        ({"partition": 0, "from": "offset", "offset": 2**62}, []),
    ],
)
def test_messages_are_found(
    console: ConsoleInProcess, topic: str, fields: dict[str, object], found: list[str]
) -> None:
    page = console.get("/messages", topic=topic, **fields)
    assert page.status == 200
    assert rows(page.text) == found


def test_a_search_stops_at_its_limit_with_a_notice_and_goes_on(address: str, topic: str) -> None:
    limits = SearchLimits(records=500, page_seconds=SECONDS)
    search = {"topic": topic, "partition": 0, "value": "plain 999", "from": "beginning"}
    with ConsoleInProcess(ConsoleSettings(address, {}, interval=3600.0, search=limits)) as running:
        first = running.get("/messages", **search).text
        assert rows(first) == []
        assert "it stopped at its limit of 500 records" in first
        [job] = re.findall(r"job=(\w+)", first)[:1]
        second = running.get("/messages", **search, job=job, do="go").text
        assert rows(second) == ["0:999"]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (SearchLimits(size=1000, page_seconds=SECONDS), "limit of 1000 B"),
        (SearchLimits(seconds=0.0, page_seconds=SECONDS), "limit of 0 s"),
    ],
)
def test_a_search_is_bounded_in_bytes_and_time(
    address: str, topic: str, limits: SearchLimits, text: str
) -> None:
    with ConsoleInProcess(ConsoleSettings(address, {}, interval=3600.0, search=limits)) as running:
        page = running.get("/messages", topic=topic, **{"from": "beginning"}, value="plain 999")
        assert text in page.text


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/messages", {"topic": "absent"}, 404),
        ("/messages", {"topic": "console-records", "partition": 7}, 404),
        ("/messages", {"topic": "console-records", "partition": "x"}, 400),
        ("/messages", {"topic": "console-records", "from": "time", "time": "soon"}, 400),
        ("/message", {"topic": "console-records", "partition": 0, "offset": 5000}, 404),
        ("/topic", {"name": "absent"}, 404),
        ("/topic", {}, 400),
        ("/topics/new", {"like": "absent"}, 404),
        ("/topic/edit", {"name": "absent"}, 404),
        ("/messages/tail", {"topic": "absent"}, 404),
        ("/messages/download", {"topic": "absent"}, 404),
        ("/message", {"topic": "absent", "partition": 0, "offset": 0}, 404),
        ("/message", {"topic": "console-records", "partition": 7, "offset": 0}, 404),
        ("/message/versions", {"topic": "absent", "partition": 0, "offset": 0}, 404),
        ("/message/difference", {"topic": "absent", "partition": 0, "offset": 0}, 404),
        ("/produce", {"topic": "absent"}, 404),
        ("/resend", {"topic": "absent", "at": "0-0"}, 404),
        ("/transactions/producers", {"topic": "absent"}, 404),
        ("/group/offsets.csv", {"id": "absent"}, 404),
        ("/why", {"target": "absent", "kind": "topic", "ask": 1}, 404),
        ("/why", {"target": "absent", "kind": "group", "ask": 1}, 404),
        ("/why", {"target": "absent", "ask": 1}, 404),
        ("/reassignments/plan", {"topics": "console-records absent"}, 404),
        ("/reassignments/plan", {"topics": "absent", "plan": 1}, 404),
        ("/broker", {"id": "x"}, 400),
        ("/schema", {"subject": "absent"}, 404),
        ("/connect/connector", {"cluster": "absent", "name": "x"}, 404),
        ("/link", {"name": "absent"}, 404),
    ],
)
@pytest.mark.usefixtures("topic")
def test_wrong_requests_get_a_page_with_the_reason(
    console: ConsoleInProcess, path: str, fields: dict[str, object], status: int
) -> None:
    page = console.get(path, **fields)
    assert page.status == status
    assert 'class="notice wrong"' in page.text
    # No name of an error code, and no advice for a terminal.
    assert "UNKNOWN_TOPIC" not in page.text
    assert "`barnabas" not in page.text


def test_a_search_of_an_absent_topic_ends_while_the_client_still_looks_for_it(
    address: str,
) -> None:
    search = SearchLimits(page_seconds=0.0)
    settings = ConsoleSettings(address, {}, interval=3600.0, timeout=SECONDS, search=search)
    with ConsoleInProcess(settings) as running:
        page = running.get("/messages", topic="absent")
        assert page.status == 404
        assert "This cluster has no topic absent." in page.text


def test_the_lag_of_a_group_has_a_line_over_time(
    console: ConsoleInProcess, topic: str, client: Client
) -> None:
    for offset in (200, 500):
        client.commit_offsets("console-lag", {(topic, 0): offset})
        console.sample()
    text = console.get("/group", id="console-lag").text
    assert "Lag: latest 500, highest 800" in text
    assert text.count('<path class="line ') == 1


def test_a_search_ends_at_the_marker_of_a_transaction(
    console: ConsoleInProcess, client: Client
) -> None:
    """The last offset is that of a marker, which consumers never receive."""
    client.create_topic("console-transactions", 1, 1)
    with client.producer(transactional_id="console-writer") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("console-transactions", b"committed")
    fields = {"topic": "console-transactions", "from": "beginning"}
    # Kafka writes the marker after its response.
    eventually_equal(lambda: rows(console.get("/messages", **fields).text), ["0:0"])
    text = console.get("/messages", **fields).text
    assert "Everything was examined" in text
    missing = console.get("/message", topic="console-transactions", partition=0, offset=2)
    assert missing.status == 404


def test_a_group_that_does_not_exist_is_named_as_missing(console: ConsoleInProcess) -> None:
    page = console.get("/group", id="console-no-such-group")
    assert page.status == 404
    assert "There is no such group" in page.text
    assert "Offsets" not in page.text


def test_entries_and_users_are_added_and_deleted(
    make_broker: Callable[[Mapping[str, str]], BrokerProcess],
) -> None:
    broker = make_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ).start()
    acl = {
        "principal": f"User:{HOSTILE}", "permission": "ALLOW", "operation": "READ", "host": "*",
        "resource_type": "TOPIC", "resource_name": "orders", "pattern_type": "PREFIXED",
    }  # fmt: skip
    user = {"user": "alice", "mechanism": "SCRAM_SHA_256"}
    settings = ConsoleSettings(broker.bootstrap, {}, allow_changes=True, timeout=SECONDS)
    with ConsoleInProcess(settings) as console:
        console.log_in()
        text = console.change("/security/acls/add", **acl).text
        assert "added: allow" in text
        assert "orders" in text
        assert "<script>alert" not in text
        wrong = console.change("/security/acls/add", **{**acl, "operation": "ANY"}).text
        assert "Operation cannot be ANY" in wrong
        text = console.change("/security/users/set", **user, password="secret").text
        assert table_rows(text)["alice"]["Mechanism"] == "SCRAM_SHA_256"
        assert "secret" not in text
        shown = console.preview("/security/acls/delete", **{**acl, "permission": "DENY"}).text
        assert "This entry denies operations" in shown
        assert "<script>alert" not in shown
        assert "can no longer log in" in console.preview("/security/users/delete", **user).text
        acl["confirmed"] = user["confirmed"] = "1"
        assert "No entries" in console.change("/security/acls/delete", **acl).text
        assert "No users" in console.change("/security/users/delete", **user).text
        assert "there is no such entry" in console.change("/security/acls/delete", **acl).text


def test_the_command_announces_its_address_follows_messages_and_ends(
    address: str, topic: str, client: Client
) -> None:
    words = [sys.executable, "-m", "barnabas", "console", "-b", address, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = read_line(process.stdout, READY)
        tail = f"{url}/messages/tail?topic={topic}&value=followed"
        with urllib.request.urlopen(tail, timeout=SECONDS) as events:
            assert events.readline() == b"event: ready\n"
            with client.producer() as producer:
                producer.send(topic, b"not this one", partition=1)
                producer.send(topic, b"<followed>", partition=1)
            lines = iter(events.readline, b"")
            data = next(line for line in lines if line.startswith(b'data: {"row'))
        assert ">&lt;followed&gt;</pre>" in json.loads(data[6:])["row"]
        foreign = urllib.request.Request(url, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(foreign, timeout=SECONDS)
        process.terminate()
        assert process.wait(SECONDS) == 0
