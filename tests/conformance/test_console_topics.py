"""Topics, groups and writing in the console, with Barnabas and with Apache Kafka."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from barnabas import Consumer, ShareConsumer
from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from barnabas.serializers import AvroDeserializer, AvroSerializer, SchemaRegistry
from conformance.console_brokers import SECONDS, address, client
from conformance.streams_member import MEMBER, PROCESS, StreamsMember
from console_in_process import FORM, HOST, Answer, ConsoleInProcess, table_rows
from unit.serializers.registry_server import RegistryServer
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["address", "client"]

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with RegistryServer() as server:
        made = SchemaRegistry(server.url)
        AvroSerializer(made, SCHEMA).serialize("writing-records", {"n": 0})
        yield made


@pytest.fixture(scope="module")
def console(address: str, registry: SchemaRegistry) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        address, {}, allow_changes=True, interval=3600.0, timeout=SECONDS, registry=registry
    )
    with ConsoleInProcess(settings) as running:
        running.log_in()
        yield running


@pytest.fixture(scope="module")
def topic(client: Client) -> str:
    """A topic with 100 records of 1970 in the first of two partitions."""
    name = "topics-records"
    client.create_topic(name, 2, 1, {"retention.ms": "-1"})
    with client.producer() as producer:
        producer.send_batch(name, [(b"k%d" % n, b"v", [], 1000 + n) for n in range(100)], 0)
    return name


def words(page: Answer) -> str:
    """Return the text of a page, without its tags."""
    text = page.text.split("<main", 1)[-1]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def confirm(console: ConsoleInProcess, preview: Answer, path: str) -> Answer:
    """Send the form of a preview exactly as it is; return the page that follows."""
    form = preview.text.split(f'action="{path}"', 1)[1]
    fields = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
    body = urlencode([(name, html.unescape(value)) for name, value in fields]).encode()
    headers = {"content-type": FORM, "origin": f"http://{HOST}"}
    done = console.request("POST", path, headers=headers, body=body)
    assert done.status == 303, done.text
    target, _, query = done.headers["location"].partition("?")
    return console.request("GET", target, query=query)


def configs_of(client: Client, name: str) -> dict[str, str | None]:
    [configs] = client.describe_topic_configs([name]).values()
    return {each.name: each.value for each in configs if each.source == "topic"}


def test_a_list_reads_the_facts_of_its_rows_and_all_to_sort_by_them(
    console: ConsoleInProcess, client: Client
) -> None:
    names = [f"facts-{number:03}" for number in range(101)]
    policy = {"cleanup.policy": "compact,delete"}
    client.create_topics(
        [NewTopic(name, 1, 1, policy if name == names[-1] else {}) for name in names]
    )
    with client.producer() as producer:
        producer.send_batch(names[-2], [(b"k", b"v", [], None)] * 7, 0)
    console.sample()

    def rows(**fields: str) -> dict[str, dict[str, str]]:
        return table_rows(console.get("/topics", q="facts-", **fields).text)

    # The page has the first hundred topics. The last policy is not read until it is asked for.
    eventually(lambda: rows()["facts-000"]["Cleanup policy"] == "delete")
    assert console.console.topic_facts.of(names).keys() == set(names[:-1])
    eventually(lambda: next(iter(rows(sort="policy"))) == names[-1])
    eventually(lambda: next(iter(rows(sort="-count"))) == names[-2])
    assert rows(sort="-count")[names[-2]]["Records"] == "7"
    assert "not known yet" not in words(console.get("/topics", sort="-count"))


CONFIGS = {"config:retention.ms": "7d", "config:cleanup.policy": "compact"}


def test_a_topic_is_checked_created_and_copied(
    console: ConsoleInProcess, client: Client, topic: str
) -> None:
    form = console.get("/topics/new").text
    assert "604800000 (7d)" in form
    assert "<option>LogAppendTime</option>" in form
    fields = {"name": "topics-made", "partitions": 3, "replicas": 1, **CONFIGS}
    checked = words(console.preview("/topics/create", check=1, **fields))
    assert "cleanup.policy delete compact" in checked
    assert "topics-made" not in client.topics()
    assert "created topic topics-made" in words(console.change("/topics/create", **fields))
    assert (
        configs_of(client, "topics-made").items()
        >= {
            "retention.ms": "604800000",
            "cleanup.policy": "compact",
        }.items()
    )

    def is_copied() -> bool:
        # Apache Kafka describes a new topic some time after its response.
        like = console.get("/topics/new", like="topics-made").text
        return 'value="604800000"' in like and "<option selected>compact</option>" in like

    eventually(is_copied)


@pytest.mark.parametrize(
    ("change", "field", "kept"),
    [
        ({"name": "topics-x", "config:retention.ms": "7x"}, "config:retention.ms", '"7x"'),
        ({"name": "topics-x", "config:segment.bytes": "-7"}, "config:segment.bytes", '"-7"'),
        ({"name": "topics records"}, "name", '"topics records"'),
        ({"name": "topics-records"}, "name", '"topics-records"'),
        ({"name": "topics-x", "replicas": "99"}, "replicas", '"99"'),
        ({"name": "topics-x", "partitions": "x"}, "partitions", '"x"'),
    ],
)
def test_a_refused_topic_keeps_its_form_with_the_problem_at_the_field(
    console: ConsoleInProcess, topic: str, change: dict[str, str], field: str, kept: str
) -> None:
    token = console.get("/topics/new").csrf
    fields = {"partitions": "5", **change}
    done = console.post("/topics/create", csrf=token, here="/topics/new", **fields)
    assert done.status == 303
    page = console.get("/topics/new").text
    assert f'id="problem-{field}"' in page
    assert f"value={kept}" in page
    assert "topics-x" not in console.get("/topics").text


def test_configs_are_changed_after_a_preview_of_both_values(
    console: ConsoleInProcess, client: Client
) -> None:
    name = "topics-configs"
    client.create_topic(name, 1, 1, {"retention.ms": "5000", "segment.ms": "60000"})
    changes = {"config:retention.ms": "2h", "config:segment.ms": ""}
    shown = console.preview("/topic/configs", name=name, **changes)
    assert "retention.ms 5000 (5s) 7200000 (2h)" in words(shown)
    assert "segment.ms 60000 (1m) 604800000 (7d)" in words(shown)
    assert configs_of(client, name)["retention.ms"] == "5000"
    # A user who cancels finds what was typed.
    assert 'value="2h"' in console.get("/topic/edit", name=name).text
    assert "changed retention.ms, segment.ms" in words(confirm(console, shown, "/topic/configs"))
    eventually_equal(lambda: configs_of(client, name).get("retention.ms"), "7200000")
    assert "segment.ms" not in configs_of(client, name)
    wrong = console.change("/topic/configs", name=name, **{"config:retention.ms": "-7"})
    assert 'class="notice wrong"' in wrong.text
    same = console.change("/topic/configs", name=name, **{"config:retention.ms": "2h"})
    assert "nothing changes" in words(same)


@pytest.mark.parametrize(
    ("fields", "row", "start"),
    [
        ({"to": "offset", "offset": "30", "partitions": "0"}, "0 30 30", 30),
        ({"to": "time", "time": "1040"}, "30 40 10", 40),
        ({"to": "all"}, "40 100 60", 100),
    ],
)
def test_records_are_deleted_after_a_preview_of_their_number(
    console: ConsoleInProcess, client: Client, fields: dict[str, str], row: str, start: int
) -> None:
    name = "topics-purged"
    if name not in client.topics():
        client.create_topic(name, 2, 1, {"retention.ms": "-1"})
        with client.producer() as producer:
            producer.send_batch(name, [(b"k", b"v", [], 1000 + n) for n in range(100)], 0)
    shown = console.preview("/topic/purge", name=name, **fields)
    assert f"{name}-0 {row}" in words(shown)
    with client.producer() as producer:
        # A record that arrives between preview and confirmation stays.
        producer.send(name, b"later", partition=1).result()
    confirm(console, shown, "/topic/purge")
    found = client.list_offsets({(name, 0): "earliest"})
    assert found[name, 0].offset == start
    ends = client.list_offsets({(name, 1): "latest"})[name, 1].offset
    assert client.list_offsets({(name, 1): "earliest"})[name, 1].offset < ends


def test_partitions_are_added_and_a_topic_is_deleted_after_previews(
    console: ConsoleInProcess, client: Client
) -> None:
    name = "topics-gone"
    client.create_topic(name, 1, 1)
    shown = console.preview("/topic/partitions", name=name, partitions=2)
    assert f"{name} 1 2" in words(shown)
    assert f"{name} has 2 partitions" in words(confirm(console, shown, "/topic/partitions"))
    eventually(lambda: len(client.describe_topics([name])[name].partitions) == 2)
    less = console.change("/topic/partitions", name=name, partitions=1)
    assert "can only grow" in words(less)
    assert "to confirm, type" in words(console.change("/topic/delete", name=name, confirm="x"))
    shown = console.preview("/topic/delete", name=name, confirm=name)
    assert name in client.topics()
    confirm(console, shown, "/topic/delete")
    eventually(lambda: name not in client.topics())


def test_a_topic_shows_its_groups_its_skew_and_its_partitions_in_order(
    console: ConsoleInProcess, client: Client, topic: str
) -> None:
    client.commit_offsets("topics-reader", {(topic, 0): 40})
    console.sample()
    console.sample()
    page = console.get("/topic", name=topic, sort="-records")
    assert re.search(r"topics-reader classic Empty 1 0 60 ", words(page)), words(page)
    assert "Retention no limit Records 100 " in words(page)
    assert "Skew of records 2.0× Skew of sizes 2.0× Skew of rates –" in words(page)
    places = [page.text.index(f"partition={number}") for number in (0, 1)]
    assert places == sorted(places)
    listed = words(console.get("/topics", q="topics-rec"))
    assert re.search(r" topics-records 2 1 0 100 delete 0 0 B \S+ \S+ 1 ", listed), listed
    assert "Nothing matches" in words(console.get("/topics", q="no such name"))


def test_plans_of_moves_and_partitions_with_problems_are_pages(
    console: ConsoleInProcess, topic: str
) -> None:
    plan = words(console.get("/reassignments/plan", plan=1, topics=topic))
    assert "Nothing to do" in plan
    missing = words(console.get("/reassignments/plan", plan=1, topics="absent"))
    assert "This cluster has no topic absent." in missing
    impossible = console.get("/reassignments/plan", plan=1, topics=topic, how="even", replicas=3)
    assert "requires 3 replicas" in words(impossible)
    assert "No partition has a problem" in words(console.get("/partitions"))
    assert "Nothing changes" in words(console.preview("/topic/elect"))
    same = {"topic": topic, "partition": 0, "brokers": 1}
    assert "nothing moves" in words(console.change("/reassignments/start", **same))
    assert "no replicas move" in words(console.change("/reassignments/cancel"))
    assert "no replicas move" in words(console.change("/reassignments/limit", throttle="1MB"))
    throttles = console.preview("/reassignments/throttles")
    assert "removed the throttles" in words(confirm(console, throttles, "/reassignments/throttles"))


MOVES = [
    ({"to": "latest"}, "10 100 +90"),
    ({"to": "earliest", "topic": "topics-records", "partitions": "0"}, "10 0 -10"),
    ({"to": "shift", "shift": "-3"}, "10 7 -3"),
    ({"to": "offset", "offset": "500"}, "10 100 +90 the nearest offset of the log"),
    ({"to": "time", "time": "1050"}, "10 50 +40"),
    ({"to": "ago", "ago": "1h"}, "10 100 +90"),
    ({"to": "file", "csv": "topics-records,0,12"}, "10 12 +2"),
]


@pytest.mark.parametrize(("fields", "row"), MOVES)
def test_offsets_move_exactly_as_previewed(
    console: ConsoleInProcess, client: Client, topic: str, fields: dict[str, str], row: str
) -> None:
    client.commit_offsets("topics-moved", {(topic, 0): 10})
    shown = console.preview("/group/reset", id="topics-moved", **fields)
    assert f"{topic}-0 {row} " in words(shown)
    assert client.committed("topics-moved")[topic, 0].offset == 10
    confirm(console, shown, "/group/reset")
    assert client.committed("topics-moved")[topic, 0].offset == int(row.split()[1])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"to": "nowhere"}, "To: choose"),
        ({"to": "ago", "ago": "soon"}, "write a length of time"),
        ({"to": "shift", "shift": "x"}, "must be a number"),
        ({"to": "latest", "topic": "topics-records", "partitions": "9"}, "no partition 9"),
        ({"to": "latest", "partitions": "0"}, "name the topic"),
        ({"to": "file", "csv": "topics-records,7,0"}, "no partition 7"),
        ({"to": "file", "csv": "x"}, "write topic,partition,offset"),
    ],
)
def test_a_wrong_move_of_offsets_is_refused_and_keeps_its_form(
    console: ConsoleInProcess, client: Client, topic: str, fields: dict[str, str], problem: str
) -> None:
    client.commit_offsets("topics-moved", {(topic, 0): 10})
    page = "/group?id=topics-moved"
    token = console.get("/group", id="topics-moved").csrf
    console.post("/group/reset", csrf=token, here=page, id="topics-moved", **fields)
    shown = console.get("/group", id="topics-moved").text
    assert problem in shown
    assert all(value in shown for value in fields.values())
    assert client.committed("topics-moved")[topic, 0].offset == 10


def test_offsets_are_exported_deleted_by_partition_and_deleted_with_their_group(
    console: ConsoleInProcess, client: Client, topic: str
) -> None:
    group = "topics-deleted"
    client.commit_offsets(group, {(topic, 0): 10, (topic, 1): 0})
    exported = console.get("/group/offsets.csv", id=group)
    assert exported.text == f"{topic},0,10\n{topic},1,0\n"
    assert "attachment" in exported.headers["content-disposition"]
    shown = console.preview("/group/offsets/delete", id=group, topic=topic, partitions="1")
    assert f"{topic}-1 0" in words(shown)
    confirm(console, shown, "/group/offsets/delete")
    assert client.committed(group).keys() == {(topic, 0)}
    none = console.change("/group/offsets/delete", id=group, topic="absent")
    assert "has no such offsets" in words(none)
    shown = console.preview("/group/delete", id=group, confirm=group)
    assert f"{topic}-0 10" in words(shown)
    confirm(console, shown, "/group/delete")
    assert group not in {each.group_id for each in client.admin.list_groups()}


def test_a_member_is_removed_and_the_assignment_is_shown_over_time(
    console: ConsoleInProcess, topic: str, address: str
) -> None:
    group = "topics-members"
    keys: Mapping[str, Any] = {"bootstrap_servers": address, "group_id": group}
    with (
        Consumer(topic, **keys, group_instance_id="first") as first,
        Consumer(topic, **keys, group_instance_id="second") as second,
    ):
        eventually(lambda: first.poll(0.1) is not None and len(first.assignment()) == 2)
        console.sample()

        def is_shared() -> bool:
            first.poll(0.1)
            second.poll(0.1)
            return len(first.assignment()) == len(second.assignment()) == 1

        eventually(is_shared)
        console.sample()
        page = console.get("/group", id=group)
        assert "Assignment over time" in page.text
        assert "first static" in words(page)
        refused = console.change("/group/reset", id=group, to="latest")
        assert "that would overwrite the offsets" in words(refused)
        member = re.search(r'name="member" value="(first[^"]*)"', page.text)
        assert member is not None
        fields = {"id": group, "member": member[1]}
        shown = console.preview("/group/members/remove", **fields)
        done = confirm(console, shown, "/group/members/remove")
        assert f"removed first from {group}" in words(done)
        assert "has no member" in words(console.change("/group/members/remove", **fields))


def test_a_share_group_shows_what_became_of_its_records(
    console: ConsoleInProcess, client: Client, topic: str, address: str
) -> None:
    group = "topics-share"
    key = {"id": group, "key": "share.auto.offset.reset", "value": "earliest"}
    shown = console.preview("/group/config", **key)
    assert "share.auto.offset.reset" in words(shown)
    confirm(console, shown, "/group/config")
    keys: Mapping[str, Any] = {"bootstrap_servers": address, "group_id": group}

    def shown_group() -> str:
        return words(console.get("/group", id=group))

    with ShareConsumer(topic, **keys) as consumer:
        # The second poll acknowledges the records of the first.
        eventually(lambda: bool(consumer.poll(0.3)))
        eventually(lambda: consumer.poll(0.1) is not None and "127.0.0.1" in shown_group())
        console.sample()
        # Start, end, lag.
        eventually(lambda: re.search(rf"{topic} :0 \d+ 100 0 ", shown_group()), shown_group)
        assert "no request returns it" in shown_group()
    eventually(lambda: "Empty" in shown_group())
    moved = console.preview("/group/reset", id=group, to="offset", offset=90, topic=topic)
    assert re.search(rf"{topic}-0 \d+ 90 ", words(moved))
    confirm(console, moved, "/group/reset")
    eventually(lambda: f"{topic} :0 90 " in shown_group(), shown_group)
    deleted = console.preview("/group/offsets/delete", id=group, topic=topic)
    assert "deleted 2 offsets" in words(confirm(console, deleted, "/group/offsets/delete"))


def test_a_streams_group_shows_its_topology_its_tasks_and_its_offsets(
    console: ConsoleInProcess, client: Client, topic: str, address: str
) -> None:
    group = "topics-streams"
    changelog = f"{group}-counts-changelog"
    client.create_topic(changelog, 2, 1)
    member = StreamsMember(address, client.admin, group, topic, [changelog])
    member.join()
    page = console.get("/group", id=group)
    row = table_rows(page.text)[MEMBER]
    assert (row["Process"], row["Active"].split()) == (PROCESS, ["0_0", "0_1"])
    assert page.text.count('class="arrow"') == 2
    assert f"<title>changelog: {changelog}</title>" in page.text
    assert "Topology epoch 0" in words(page)
    member.leave()
    client.commit_offsets(group, {(topic, 0): 90})
    page = console.get("/group", id=group)
    assert f"{topic} :0 90 100 10 " in words(page)
    console.sample()
    listed = words(console.get("/groups", q=group))
    assert f" {group} streams Empty 0 10 " in listed


def test_the_lag_in_time_of_a_group_is_that_of_the_topic(
    console: ConsoleInProcess, client: Client
) -> None:
    group, topics = "lag-in-time", ("lag-late", "lag-done", "lag-unread")
    hour_ago = round(time.time() * 1000) - 3_600_000
    for name in topics:
        client.create_topic(name, 1, 1)
        with client.producer() as producer:
            producer.send(name, b"v", partition=0, timestamp_ms=hour_ago)
    client.commit_offsets(group, {("lag-late", 0): 0, ("lag-done", 0): 1})
    console.sample()

    def shown(name: str) -> str:
        row = table_rows(console.get("/topic", name=name).text).get(group, {})
        return row.get("Lag in time", "no row")

    assert shown("lag-done") == "0.0 s"
    assert re.fullmatch(r"1 h|[56]\d min", shown("lag-late"))
    assert shown("lag-unread") == "no row"


def written(client: Client, address: str, name: str, partition: int) -> list[tuple[Any, ...]]:
    """Return key, value, headers and timestamp of all records of a partition."""
    end = client.list_offsets({(name, partition): "latest"})[name, partition].offset
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(name, partition)])
        found: list[tuple[Any, ...]] = []
        while len(found) < end:
            found += [
                (each.key, each.value, list(each.headers), each.timestamp)
                for each in consumer.poll(1)
            ]
    return found


def test_records_of_all_kinds_are_written_and_sent_again_byte_for_byte(
    console: ConsoleInProcess, client: Client, registry: SchemaRegistry, address: str
) -> None:
    name, target = "writing-records", "writing-copies"
    client.create_topic(name, 2, 1)
    client.create_topic(target, 2, 1)
    sent = {"topic": name, "partition": 1}
    text = console.change("/produce", **sent, key="k", value="a\r\nb", headers="a=1\na=2\nb:hex=00")
    assert f"wrote to {name}, partition 1, offset 0" in text.text
    hexes = {"key_kind": "hex", "key": "00 ff", "value_kind": "null"}
    console.change("/produce", **sent, **hexes, timestamp="2026-01-31T12:00", compression="zstd")
    console.change("/produce", **sent, value_kind="schema", value='{"n": 7}')
    found = written(client, address, name, 1)
    assert found[0][:3] == (b"k", b"a\nb", [("a", b"1"), ("a", b"2"), ("b", b"\x00")])
    assert found[1] == (b"\x00\xff", None, [], 1_769_860_800_000)
    assert found[2][0] is None
    assert AvroDeserializer(registry)(found[2][1]) == {"n": 7}

    query = urlencode([("topic", name), ("at", "1-0"), ("at", "1-1")])
    page = console.request("GET", "/resend", query=query)
    assert "Send 2 messages" in words(page)
    # The list sorts, and its links keep all places.
    for order in ("place", "-place", "size", "-size"):
        link = urlencode({"topic": name, "at": "1-0,1-1", "sort": order})
        rows = list(table_rows(console.request("GET", "/resend", query=link).text).values())
        found_places = [each["Offset"] for each in rows]
        assert found_places == (["1:0", "1:1"] if order in ("place", "-size") else ["1:1", "1:0"])
    assert rows[0]["Value"].startswith("a b")
    token = console.get("/produce").csrf
    fields = [("csrf", token), ("here", "/"), ("topic", name), ("at", "1-0"), ("at", "1-1")]
    fields += [("target", target), ("partition", "0"), ("keep_timestamp", "1"), ("drop", "a")]
    fields += [("add", "fixed=yes"), ("origin", "1")]
    headers = {"content-type": FORM, "origin": f"http://{HOST}"}
    body = urlencode(fields).encode()
    shown = console.request("POST", "/resend", headers=headers, body=body)
    assert f"of {name} to {target}?" in words(shown)
    copied = table_rows(shown.text)["1"]
    assert (copied["Offset"], copied["To partition"]) == ("1", "0")
    assert "a, a fixed, resent.from.topic" in words(shown)
    assert client.list_offsets({(target, 0): "latest"})[target, 0].offset == 0
    assert f"sent 2 messages to {target}" in words(confirm(console, shown, "/resend"))
    copies = written(client, address, target, 0)
    origin = [("resent.from.topic", name.encode()), ("resent.from.partition", b"1")]
    added = [("fixed", b"yes"), *origin]
    assert copies[0] == (
        b"k", b"a\nb", [("b", b"\x00"), *added, ("resent.from.offset", b"0")], found[0][3],
    )  # fmt: skip
    assert copies[1] == (*found[1][:2], [*added, ("resent.from.offset", b"1")], found[1][3])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"value_kind": "json", "value": "{"}, "value"),
        ({"value_kind": "schema", "value": '{"n": "x"}'}, "value"),
        ({"value_kind": "schema", "value_subject": "absent"}, "value_subject"),
        ({"key_kind": "file"}, "key_file"),
        ({"headers": "a:hex=0"}, "headers"),
        ({"timestamp": "soon"}, "timestamp"),
        ({"partition": "x"}, "partition"),
    ],
)
def test_a_refused_record_keeps_its_form_with_the_problem_at_the_field(
    console: ConsoleInProcess, fields: dict[str, str], field: str
) -> None:
    token = console.get("/produce").csrf
    given = {"value": "typed text", "topic": "writing-records", **fields}
    assert console.post("/produce", csrf=token, here="/produce", **given).status == 303
    page = console.get("/produce").text
    assert f'id="problem-{field}"' in page
    assert html.escape(given["value"]).replace("&quot;", "&#34;") in page


def test_the_check_while_typing_says_whether_key_and_value_fit(console: ConsoleInProcess) -> None:
    token = console.get("/produce").csrf
    fields = {"topic": "writing-records", "key_kind": "hex", "key": "0", "value_kind": "schema"}
    answer = console.post("/produce/check", csrf=token, **fields, value='{"n": 1}')
    assert '"ok":false' in answer.text.split("value")[0]
    assert '"value":{"ok":true,"text":"valid, 6 B"}' in answer.text


def test_a_record_that_is_not_there_cannot_be_sent_again(
    console: ConsoleInProcess, topic: str
) -> None:
    assert "has offsets 0 to 100" in words(console.get("/resend", topic=topic, at="0-100"))
    assert console.get("/resend", topic=topic, at="9-0").status == 404
    assert console.get("/resend", topic="absent", at="0-0").status == 404
    assert console.get("/resend", topic=topic, at="x").status == 400
    assert console.get("/resend", topic=topic).status == 400
