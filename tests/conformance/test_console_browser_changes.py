"""Changes of topics, groups and messages, as a user of Chromium makes them in the console."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Consumer, ShareConsumer
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.facade import Client
from barnabas.serializers import AvroDeserializer, AvroSerializer, SchemaRegistry
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from conformance.streams_member import MEMBER, StreamsMember
from tools.chromium import IS_INSTALLED, Chromium
from unit.serializers.registry_server import RegistryServer
from waiting import eventually, eventually_equal

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

RECORDS, WRITTEN, COPIES = "changes-records", "changes-written", "changes-copies"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.fixture(scope="module")
def client(clients_bootstrap: str) -> Iterator[Client]:
    with Client(clients_bootstrap) as made:
        for name in (RECORDS, WRITTEN, COPIES):
            made.create_topic(name, 1, 1, {"retention.ms": "-1"})
        with made.producer() as producer:
            batch: Any = [(b"k%d" % n, b"v", [], 1000 + n) for n in range(100)]
            producer.send_batch(RECORDS, batch, 0)
        yield made


@pytest.fixture(scope="module")
def registry(client: Client) -> Iterator[str]:
    with RegistryServer() as server:
        AvroSerializer(SchemaRegistry(server.url), SCHEMA).serialize(WRITTEN, {"n": 0})
        yield server.url


@pytest.fixture(scope="module")
def user(clients_bootstrap: str, registry: str) -> Iterator[ConsoleUser]:
    options = ["--registry", registry, "--interval", "0.5"]
    with (
        running_console(clients_bootstrap, *options) as running,
        Chromium() as browser,
    ):
        running.log_in(browser, "/topics")
        yield ConsoleUser(browser, running.url)


def values(client: Client, bootstrap: str, topic: str) -> list[Any]:
    """Return key, value and headers of all records of a topic with one partition."""
    end = client.list_offsets({(topic, 0): "latest"})[topic, 0].offset
    found: list[Any] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        eventually(lambda: found.extend(consumer.poll(1)) or len(found) >= end)
    return [(each.key, each.value, list(each.headers)) for each in found]


def test_a_topic_is_created_changed_purged_and_deleted(user: ConsoleUser, client: Client) -> None:
    name = "changes-life"
    user.open("/topics")
    user.press("Create a topic")
    # Each config has its default with units, and a sentence about it.
    setting = "field(document.body, 'retention.ms')"
    assert user.finds(f"{setting}.placeholder") == "604800000 (7d)"
    assert user.finds(f"{setting}.closest('.setting').querySelector('p').innerText.length > 20")
    user.fill(Name=name, Partitions="2", Replicas="1")
    user.type("retention.ms", "7x")
    user.press("Create")
    # The form keeps what was typed, with the problem at its field.
    user.sees("7x")
    user.type("retention.ms", "2d")
    user.choose("cleanup.policy", "delete")
    user.press("Create")
    user.sees(f"created topic {name}")
    user.open("/topic", name=name)
    user.sees("Retention 2d", "Partitions 2")
    user.press("Edit configs")
    user.type("retention.ms", "12h")
    user.press("Preview")
    user.sees(r"retention\.ms 172800000 \(2d\) 43200000 \(12h\)")
    user.press("Change")
    user.sees("changed retention.ms")
    with client.producer() as producer:
        for _ in range(3):
            producer.send(name, b"value", partition=0).result()
    user.open("/topic", name=name)
    part = user.part("Delete records")
    part.choose("Which", "all records")
    part.press("Preview")
    assert user.row(f"{name}-0")
    user.press("Delete")
    eventually_equal(lambda: client.list_offsets({(name, 0): "earliest"})[name, 0].offset, 3)
    user.open("/topic", name=name)
    part = user.part("Delete the topic")
    part.type(f"Type {name} to confirm", name)
    part.press("Delete")
    user.press("Delete")
    eventually(lambda: name not in client.topics())


def test_a_preview_shows_each_value_and_cancel_changes_nothing(
    user: ConsoleUser, client: Client
) -> None:
    def retention() -> str | None:
        [configs] = client.describe_topic_configs([COPIES]).values()
        return next(each.value for each in configs if each.name == "retention.ms")

    user.open("/topic/edit", name=COPIES)
    user.type("retention.ms", "1h")
    user.type("segment.ms", "30m")
    user.press("Preview")
    rows = {row[0]: row[1:] for row in (list(each.values()) for each in user.rows())}
    assert rows["retention.ms"][0].startswith("-1")
    assert rows["retention.ms"][1].startswith("3600000 (1h)")
    assert rows["segment.ms"][1].startswith("1800000 (30m)")
    user.press("Cancel")
    assert retention() == "-1"


def test_messages_are_written_as_text_json_bytes_a_file_and_by_a_schema(
    user: ConsoleUser,
    client: Client,
    clients_bootstrap: str,
    registry: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / "value.bin"
    file.write_bytes(bytes(range(256)))
    for kind, text in (
        ("text", "plain"),
        ("JSON", '{"a": 1}'),
        ("bytes in hex", "00 ff"),
        ("a file", ""),
        ("JSON, by the schema", '{"n": 7}'),
        ("null", ""),
    ):
        user.open("/topic", name=WRITTEN)
        user.press("Write a message")
        part = user.group("Value")
        part.choose("Written as", kind)
        if kind == "a file":
            part.part("File").choose_file("File", file)
        else:
            part.type("Content", text)
        user.type("Partition", "0")
        user.choose("Compression", "gzip")
        user.type("Headers", "kind=written\nnone")
        user.press("Write")
        user.sees(f"wrote to {WRITTEN}", "partition 0")
    found = values(client, clients_bootstrap, WRITTEN)
    assert [each[1] for each in found[:4]] == [
        b"plain", b'{"a": 1}', b"\x00\xff", bytes(range(256)),
    ]  # fmt: skip
    assert AvroDeserializer(SchemaRegistry(registry))(found[4][1]) == {"n": 7}
    assert found[5][1] is None
    assert found[0][2] == [("kind", b"written"), ("none", None)]
    user.open("/message", topic=WRITTEN, partition=0, offset=0)
    user.sees("Compression gzip")


def test_chosen_messages_of_a_search_are_sent_to_another_topic(
    user: ConsoleUser, client: Client, clients_bootstrap: str
) -> None:
    user.open("/messages", topic=RECORDS, **{"from": "beginning"})
    user.check("Choose 0:2")
    user.check("Choose 0:5")
    user.press("Send the chosen messages again")
    assert [each["Key"] for each in user.rows("Messages")] == ["k2", "k5"]
    user.press("Key")
    user.press("Key")
    assert [each["Key"] for each in user.rows("Messages")] == ["k5", "k2"]
    user.fill(To_the_topic=COPIES)
    user.type("Add headers, one", "again=yes\nby=hand")
    user.press("Preview")
    user.sees(f"2 messages .* of {RECORDS} to {COPIES}")
    user.press("Offset")
    assert [each["Offset"] for each in user.rows()] == ["5", "2"]
    user.press("Send")
    user.sees(f"sent 2 messages to {COPIES}")
    found = values(client, clients_bootstrap, COPIES)
    assert [each[0] for each in found] == [b"k2", b"k5"]
    assert found[0][2] == [("again", b"yes"), ("by", b"hand")]


def test_the_offsets_of_a_group_move_after_a_preview_and_are_deleted(
    user: ConsoleUser, client: Client, tmp_path: Path
) -> None:
    group = "changes-offsets"
    client.commit_offsets(group, {(RECORDS, 0): 10})

    def committed() -> int:
        return client.committed(group)[RECORDS, 0].offset

    for to, label, text, wanted in (
        ("by a number", "By", "-3", 7),
        ("a time", "Time, UTC", "1970-01-01T00:00:01.050", 50),
        ("the end", "", "", 100),
        ("the offsets of a file", "Lines", f"{RECORDS},0,12", 12),
    ):
        user.open("/group", id=group)
        part = user.part("Move the offsets")
        part.choose("To", to)
        if label != "Lines":
            part.fill(Topic=RECORDS, Partitions="0")
        if label:
            part.type(label, text)
        before = committed()
        part.press("Preview")
        row = list(user.row(f"{RECORDS}-0").values())
        assert row[1:3] == [str(before), str(wanted)]
        assert committed() == before
        user.press("Move")
        user.sees("moved")
        assert committed() == wanted
    user.open("/group", id=group)
    assert user.download("Offsets as CSV", tmp_path / "csv") == f"{RECORDS},0,12\n".encode()
    part = user.part("Delete the offsets of a topic")
    part.type("Topic", RECORDS)
    part.press("Preview")
    user.press("Delete")
    eventually(lambda: (RECORDS, 0) not in client.committed(group))


def test_a_group_shows_its_members_and_the_owners_of_partitions_over_time(
    user: ConsoleUser, client: Client, clients_bootstrap: str
) -> None:
    topic, group = "changes-members", "changes-members-group"
    client.create_topic(topic, 2, 1)
    keys: Any = {"bootstrap_servers": clients_bootstrap, "group_id": group}
    members: list[Consumer] = []

    def are_sampled() -> bool:
        """Return whether all members have partitions, and the console has a sample of that."""
        for each in members:
            each.poll(0.1)
        if not all(len(each.assignment()) == 2 // len(members) for each in members):
            return False
        user.open("/groups", q=group)
        counted = [each["Members"] for each in user.rows() if each["Group"] == group]
        user.open("/topic", name=topic)
        assigned = [each["Assigned partitions"] for each in user.rows() if "Group" in each]
        return counted == [str(len(members))] and assigned == ["2"]

    def are_shown() -> bool:
        for each in members:
            each.poll(0.1)
        user.open("/group", id=group)
        text = user.text()
        return "Assignment over time" in text and "first static" in text and "second" in text

    with (
        Consumer(topic, **keys, group_instance_id="first") as first,
        Consumer(topic, **keys, group_instance_id="second") as second,
    ):
        for member in (first, second):
            members.append(member)
            eventually(are_sampled)
        eventually(are_shown, user.text)
        shares = [each["Assignment"] for each in user.rows("Members")]
    assert sorted(shares) == [f"{topic}:0", f"{topic}:1"]


def test_a_share_group_and_a_streams_group_show_their_records_and_their_topology(
    user: ConsoleUser, client: Client, clients_bootstrap: str
) -> None:
    share, streams, changelog = "changes-share", "changes-streams", "changes-streams-counts"
    resource = ConfigResource(ResourceType.GROUP, share)
    client.admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})
    keys: Any = {"bootstrap_servers": clients_bootstrap, "group_id": share}
    with ShareConsumer(RECORDS, **keys) as consumer:
        eventually(lambda: consumer.poll(1))
        user.open("/group", id=share)
        user.sees("(Kind|Type) share", "Members 1", f"{RECORDS}:0")
        states = {"To deliver again", "Acknowledged", "Given up", "Most deliveries"}
        assert states <= user.row(f"{RECORDS}:0", "Offsets").keys()
    client.create_topic(changelog, 1, 1)
    member = StreamsMember(clients_bootstrap, client.admin, streams, RECORDS, [changelog])
    member.join()
    user.open("/groups", q="changes-str")
    user.press(streams)
    user.sees("(Kind|Type) streams", "Topology")
    boxes = user.finds(
        "[...document.querySelectorAll('svg.topology text')].map((each) => each.textContent)"
    )
    assert {RECORDS, changelog} <= set(boxes)
    assert user.row(MEMBER, "Tasks of the streams application")["Active"] == "0_0"
    member.leave()


def test_sort_filter_and_forms_need_no_javascript(user: ConsoleUser, client: Client) -> None:
    browser = user.browser
    client.create_topic("changes-wide", 7, 1)

    def are_counted() -> bool:
        user.open("/topics", q="changes-")
        return all(each["Partitions"].isdigit() for each in user.rows())

    # The page has the partitions of a new topic after the next sample.
    eventually(are_counted)
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        user.open("/topics")
        user.type("Name contains", "changes-")
        user.press("Show")
        orders = []
        for _ in range(2):
            user.press("Partitions")
            orders.append([int(each["Partitions"]) for each in user.rows()])
        assert orders[0] == orders[1][::-1]
        assert sorted(orders[0]) in orders
        assert len(set(orders[0])) > 1
        user.press("Create a topic")
        user.fill(Name="changes-plain", Partitions="1", Replicas="1")
        user.press("Create")
        user.sees("created topic changes-plain")
        user.open("/messages", topic=RECORDS, **{"from": "beginning"}, key="k77")
        user.sees("1 found", "k77")
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    assert "changes-plain" in client.topics()


def test_sort_filter_and_columns_stay_in_the_address(user: ConsoleUser) -> None:
    user.open("/topics")
    user.type("Name contains", "changes-")
    user.press("Show")
    user.press("Partitions")
    part = user.part("Columns")
    part.check("Groups")
    part.press("Show")
    address = str(user.finds("location.pathname + location.search"))
    assert re.search("q=changes-", address)
    assert "sort=" in address
    rows = user.rows()
    assert "Groups" not in rows[0]
    assert all(each["Topic"].startswith("changes-") for each in rows)
    # A bookmark shows the same table again.
    user.open("/groups")
    user.open(address)
    assert [each["Topic"] for each in user.rows()] == [each["Topic"] for each in rows]
