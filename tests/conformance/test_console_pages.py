"""The console's pages of nodes, transactions, clients and rights, on both kinds of broker.

The brokers have an authorizer, two log directories and delegation tokens; the console logs in as a
super user.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.admin.acls import Acl, AclOperation, AclPermission, AclResourceType
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.settings import ConsoleSettings
from conformance.hanging_transaction import UNASSIGNED_PRODUCER_ID, open_a_transaction_that_hangs
from conformance.sasl_brokers import SaslBarnabas, SaslKafka, authorized_settings
from conformance.token_logins import plain
from console_in_process import ConsoleInProcess, table_rows
from waiting import eventually, eventually_equal

Broker = SaslBarnabas | SaslKafka
SECONDS = 60
TOPIC = "console-pages"
HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    settings = authorized_settings(directory)
    made = (SaslKafka if request.param == "kafka" else SaslBarnabas)(directory, settings)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[barnabas.Client]:
    with barnabas.Client(broker.bootstrap, default_api_timeout_ms=SECONDS * 1000) as made:
        made.create_topic(TOPIC, 1, 1)
        yield made


@pytest.fixture(scope="module")
def console(broker: Broker, client: barnabas.Client) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        broker.sasl_bootstrap, plain("admin"), allow_changes=True, interval=3600.0, timeout=SECONDS
    )
    with ConsoleInProcess(settings) as running:
        # Apache Kafka opens this listener after the other one.
        eventually(lambda: running.get("/quorum").status == 200)
        running.log_in()
        yield running


def test_the_quorum_has_its_leader(console: ConsoleInProcess) -> None:
    [row] = table_rows(console.get("/quorum").text).values()
    assert row["Role"] == "leader"
    assert row["Lag"] == "0"
    done = console.change("/quorum/remove", node=9)
    assert re.search("the quorum is static|the quorum has no voter 9", done.text)


def test_a_replica_moves_between_directories_after_a_preview(
    console: ConsoleInProcess, client: barnabas.Client
) -> None:
    page = console.get("/log-dirs").text
    paths = {path for path in table_rows(page) if path.startswith("/")}
    assert len(paths) == 2

    def place() -> str | None:
        found = client.admin.describe_replica_log_dirs([(1, (TOPIC, 0))])
        [directories] = found.values()
        return None if isinstance(directories, ClientError) else directories.path

    # In Apache Kafka, a new partition has no log until some time after its creation.
    before = eventually(place)
    [target] = paths - {before}
    fields = {"broker": 1, "topic": TOPIC, "partition": 0, "directory": target}
    shown = console.preview("/log-dirs/move", **fields).text
    [row] = table_rows(shown).values()
    assert (row["From"], row["To"]) == (before, target)
    console.change("/log-dirs/move", **fields, confirmed=1)
    eventually_equal(place, target)
    wrong = console.change("/log-dirs/move", **{**fields, "directory": "/nowhere"})
    assert "has no directory /nowhere" in wrong.text


def test_a_feature_is_lowered_and_raised_after_a_preview(console: ConsoleInProcess) -> None:
    name = "group.version"

    def level() -> str:
        return table_rows(console.get("/features").text)[name]["Level"].split()[0]

    before = level()
    fields = {"feature": name, "level": 0}
    row = table_rows(console.preview("/features/set", **fields).text)[name]
    assert (row["Now"], row["After"]) == (before, "0")
    assert f"set {name} to 0" in console.change("/features/set", **fields, confirmed=1).text
    eventually_equal(level, "0")
    raised = {"feature": name, "level": before, "confirmed": 1}
    assert f"set {name} to {before}" in console.change("/features/set", **raised).text
    eventually_equal(level, before)
    assert "already" in console.change("/features/set", feature=name, level=before).text
    assert "group.version" in console.change("/features/set", feature=name, level=99).text


def test_an_open_transaction_is_shown_and_its_producer_is_fenced(
    console: ConsoleInProcess, client: barnabas.Client, broker: Broker
) -> None:
    name = f"open-{HOSTILE}"
    with client.producer(transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"x").result()
        page = console.get("/transactions", state="Ongoing").text
        assert "<script>alert" not in page
        row = {html.unescape(key): value for key, value in table_rows(page).items()}[name]
        assert row["State"] == "Ongoing"
        assert row["Coordinator"] == "1"
        assert row["Partitions"].strip() == f"{TOPIC}:0"
        assert "Abort" in row["Change"]
        producers = table_rows(console.get("/transactions/producers", topic=TOPIC).text)
        assert "Abort" in producers["0"]["Open transaction from"]
        assert "stays" not in console.preview("/transactions/fence", id=name).text
        done = console.change("/transactions/fence", id=name, confirmed=1)
        assert "fenced the producer" in done.text
        with pytest.raises(ClientError):
            producer.commit_transaction()


def test_a_hanging_transaction_is_found_and_aborted(
    console: ConsoleInProcess, client: barnabas.Client, broker: Broker
) -> None:
    topic = "console-hanging"
    client.create_topic(topic, 1, 1)
    all_brokers = ConfigResource(ResourceType.BROKER, "")
    verification = "transaction.partition.verification.enable"
    client.admin.alter_configs(all_brokers, {verification: "false"})
    open_a_transaction_that_hangs(broker.bootstrap, topic)
    client.admin.alter_configs(all_brokers, {verification: None})
    row = table_rows(console.get("/transactions/hanging").text)[f"{topic}:0"]
    assert row["Producer id"] == str(UNASSIGNED_PRODUCER_ID)
    fields = {"topic": topic, "partition": 0, "start": row["From offset"]}
    shown = console.preview("/transactions/abort", **fields).text
    assert "does not hang" not in shown
    done = console.change("/transactions/abort", **fields, confirmed=1)
    assert "aborted the transaction" in done.text

    def is_gone() -> bool:
        return f"{topic}:0" not in table_rows(console.get("/transactions/hanging").text)

    eventually(is_gone)
    assert "there is no open transaction" in console.change("/transactions/abort", **fields).text


def test_quotas_are_set_and_removed(console: ConsoleInProcess) -> None:
    of = {"user": HOSTILE, "default_client_id": 1, "quota": "producer_byte_rate"}
    page = console.change("/quotas/set", **of, value="1MiB").text
    assert "<script>alert" not in page
    name = f"user {HOSTILE}, client-id (default)"

    def found() -> dict[str, str] | None:
        rows = table_rows(console.get("/quotas").text)
        return {html.unescape(key): value for key, value in rows.items()}.get(name)

    row = eventually(found)
    assert row["Limit"] == "1048576 bytes/s (1.0 MiB/s)"
    assert "more general quota" in console.preview("/quotas/remove", **of).text
    console.change("/quotas/remove", **of, confirmed=1)
    eventually(lambda: found() is None)
    without_entity = console.change("/quotas/set", quota="producer_byte_rate", value=1)
    assert "write a user, a client id or an IP address" in without_entity.text
    both = console.change("/quotas/set", **of, ip="10.0.0.1", value=1)
    assert "cannot be combined" in both.text


def test_a_subscription_to_metrics_is_saved_and_deleted(console: ConsoleInProcess) -> None:
    fields = {"name": "s-1", "metrics": "org.apache.kafka.", "interval": "1m", "match": ""}
    assert "saved the subscription s-1" in console.change("/telemetry/save", **fields).text

    def found() -> dict[str, str] | None:
        return table_rows(console.get("/telemetry").text).get("s-1")

    row = eventually(found)
    assert (row["Metrics"].strip(), row["Interval"], row["Clients"]) == (
        "org.apache.kafka.",
        "60 s",
        "all",
    )
    assert 'value="60000ms"' in console.get("/telemetry", name="s-1").text
    refused = console.change("/telemetry/save", **{**fields, "interval": "1ms"})
    assert "interval.ms" in refused.text
    assert "stop pushing" in console.preview("/telemetry/delete", name="s-1").text
    console.change("/telemetry/delete", name="s-1", confirmed=1)
    eventually(lambda: found() is None)


def test_the_secret_of_a_token_is_shown_once(console: ConsoleInProcess) -> None:
    page = console.post(
        "/tokens/create", csrf=console.token, renewers="User:bob", lifetime="1h"
    ).text
    token_id, secret = re.findall(r'<dd class="(?:mono|value)">([^<]+)</dd>', page)
    row = eventually(lambda: table_rows(console.get("/tokens").text).get(token_id))
    assert (row["Owner"], row["Renewers"]) == ("User:admin", "User:bob")
    listed = console.get("/tokens").text
    assert html.unescape(secret) not in html.unescape(listed)
    assert "expires at" in console.change("/tokens/renew", id=token_id, period="30m").text
    assert "can no longer" in console.preview("/tokens/expire", id=token_id).text
    assert "removed" in console.change("/tokens/expire", id=token_id, confirmed=1).text
    eventually(lambda: token_id not in table_rows(console.get("/tokens").text))
    assert "write User:NAME" in console.change("/tokens/create", owner="nobody").text


def test_the_rights_of_a_user_follow_from_the_entries(
    console: ConsoleInProcess, client: barnabas.Client
) -> None:
    def entry(operation: AclOperation, permission: AclPermission) -> Acl:
        return Acl(AclResourceType.TOPIC, "orders", "User:eve", operation, permission)

    client.admin.create_acls(
        [
            entry(AclOperation.READ, AclPermission.ALLOW),
            entry(AclOperation.WRITE, AclPermission.ALLOW),
            entry(AclOperation.WRITE, AclPermission.DENY),
        ]
    )

    def row() -> dict[str, str] | None:
        text, _, _ = console.get("/security/rights", principal="eve").text.partition("<h2>Entries")
        return next((each for each in table_rows(text).values() if "May" in each), None)

    found = eventually(row)
    eventually(lambda: (row() or {}).get("Is denied") == "write")
    assert found["Resource"] == "orders"
    assert set((row() or {})["May"].split(", ")) == {"read", "describe"}
    # The entries below are a table of their own, whose sorting leaves the first one alone.
    fields = {"principal": "eve", "entries.sort": "-permission"}
    sorted_page = console.get("/security/rights", **fields).text
    assert re.findall(r'class="tag \w+">(ALLOW|DENY)<', sorted_page) == ["DENY", "ALLOW", "ALLOW"]
    above = console.get("/security/rights", principal="admin").text
    # Apache Kafka does not show the config super.users.
    assert "User:admin may do everything" in above or "Super users may do everything" in above


@pytest.mark.parametrize("page", ["/tokens", "/quotas", "/transactions", "/telemetry"])
def test_a_refusal_of_the_cluster_is_a_sentence_on_the_page(broker: Broker, page: str) -> None:
    login = plain("bob") if page != "/tokens" else {}
    address = broker.bootstrap if page == "/tokens" else broker.sasl_bootstrap
    settings = ConsoleSettings(address, login, interval=3600.0, timeout=SECONDS)
    with ConsoleInProcess(settings) as running:
        shown = running.get(page)
    assert shown.status == 200
    assert re.search('class="(notice warn|empty)"', shown.text)


def test_links_are_pages_of_brokers_that_have_them(
    console: ConsoleInProcess, broker: Broker
) -> None:
    has_links = isinstance(broker, SaslBarnabas)
    eventually(lambda: ('href="/links"' in console.get("/topics").text) == has_links)
    page = console.get("/links")

    assert page.status == 200
    assert ("No links" in page.text) == has_links
    assert ("These brokers have no links" in page.text) != has_links
