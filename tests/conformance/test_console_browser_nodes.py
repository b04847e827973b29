"""Pages of the cluster, its security and its pipelines, as a user of Chromium reads them."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.acls import Acl, AclOperation, AclPermission, AclResourceType
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.spark.pipelines.project import NewProject, create_project, load_project
from barnabas.testing.free_ports import HOST, free_ports
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from conformance.hanging_transaction import UNASSIGNED_PRODUCER_ID, open_a_transaction_that_hangs
from conformance.sasl_brokers import SaslBarnabas, authorized_settings
from conformance.token_logins import plain
from deploy import prometheus_server
from tools.chromium import IS_INSTALLED, Chromium
from unit.spark.pipelines.stored_checkpoints import write_run
from unit.spark.query_batches import batch
from waiting import eventually

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC, GROUP = "nodes-records", "nodes-group"


@pytest.fixture(scope="module")
def metrics() -> str:
    """The address of the broker's metrics listener."""
    return f"{HOST}:{free_ports(1)[0]}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, metrics: str) -> Iterator[SaslBarnabas]:
    """A broker with an authorizer, users, tokens, two log directories, and a metrics listener."""
    directory = tmp_path_factory.mktemp("nodes")
    settings = authorized_settings(directory) | {"metrics.listener": metrics}
    with SaslBarnabas(directory, settings) as made:
        yield made


@pytest.fixture(scope="module")
def client(broker: SaslBarnabas) -> Iterator[barnabas.Client]:
    """A client of a broker that serves a producer and a consumer all the time."""
    with barnabas.Client(broker.bootstrap) as made:
        made.create_topic(TOPIC, 1, 1)
        made.commit_offsets(GROUP, {(TOPIC, 0): 0})
        stop = threading.Event()

        def write_and_read() -> None:
            keys = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}
            with (
                barnabas.Client(broker.bootstrap) as own,
                own.producer() as producer,
                barnabas.Consumer(**keys) as consumer,
            ):
                consumer.assign([(TOPIC, 0)])
                while not stop.wait(0.05):
                    producer.send(TOPIC, b"x" * 100)
                    consumer.poll(0.1)

        writer = threading.Thread(target=write_and_read)
        writer.start()
        try:
            yield made
        finally:
            stop.set()
            writer.join()


@pytest.fixture(scope="module")
def project(
    broker: SaslBarnabas, client: barnabas.Client, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A project of a pipeline, with the files that a run leaves."""
    directory = tmp_path_factory.mktemp("pipelines") / "flights"
    create_project(directory, NewProject(TOPIC, broker.bootstrap, f"{TOPIC}-out"))
    write_run(load_project(directory), TOPIC)
    return directory


@pytest.fixture(scope="module")
def driver() -> Iterator[str]:
    """The address of a driver of Spark with one query."""
    found = QueryMetrics()
    found.on_started("copy")
    found.on_progress("copy", batch())
    with QueryMetricsServer(found, HOST, 0) as server:
        yield server.address


def login() -> list[str]:
    """Return the options of a console that logs in as a super user."""
    return [word for key, value in plain("admin").items() for word in ("-X", f"{key}={value}")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as made:
        yield made


@pytest.fixture(scope="module")
def user(
    broker: SaslBarnabas,
    metrics: str,
    project: Path,
    driver: str,
    browser: Chromium,
) -> Iterator[ConsoleUser]:
    options = [*login(), "--metrics", metrics, "--interval", "0.5"]
    options += ["--pipeline", str(project), "--queries", driver]
    with running_console(broker.sasl_bootstrap, *options) as running:
        running.log_in(browser, "/")
        yield ConsoleUser(browser, running.url)


def test_the_first_page_shows_health_brokers_disks_and_versions(user: ConsoleUser) -> None:
    user.open("/")
    user.sees("Healthy", "Brokers 1")
    broker = user.row("1", "Brokers")
    assert broker["State"].startswith("active")
    assert broker["Logs"].endswith("B")
    assert re.fullmatch(r"\d+ %", broker["Disk"])
    assert "4.4" in broker.values()
    user.table("Brokers").press("1")
    user.sees("Log directories", "Broker 1")
    assert user.row("log.dirs")


def test_charts_over_a_day_show_rates_times_of_requests_and_lags(user: ConsoleUser) -> None:
    user.open("/")
    for span in ("15m", "24h"):
        user.press(span)
        for title in ("Records written", "Bytes", "Produce", "Fetch", f"Lag of groups.*{GROUP}"):
            user.finds(
                f"[...document.querySelectorAll('figure.chart svg.axes')].some((each) => "
                f"/^{title}/.test(each.getAttribute('aria-label')) && "
                f"each.querySelector('path.line'))"
            )
    # The axis of a day has times of yesterday.
    times = "[...document.querySelectorAll('svg.axes text.at')].map((each) => each.textContent)"
    assert len(set(user.finds(times))) >= 3
    user.open("/topic", name=TOPIC, span="24h")
    user.finds("document.querySelector('svg.axes path.line') !== null")


def test_the_busiest_topics_and_clients_are_on_the_first_page(user: ConsoleUser) -> None:
    user.open("/")
    topic = user.row(TOPIC, "Busiest topics")
    assert float(topic["Records in/s"].replace(" ", "")) > 0
    client = user.row("barnabas-console", "Busiest clients")
    assert client["Principal"] == "User:admin"


def test_a_topic_shows_its_groups_with_lag_and_its_partitions_with_sizes_and_rates(
    user: ConsoleUser,
) -> None:
    def rate() -> float:
        user.open("/topic", name=TOPIC)
        shown = user.row("0", "Partitions")["Records in/s"].replace(" ", "")
        return float(shown) if re.fullmatch(r"[\d.]+", shown) else 0.0

    eventually(rate)
    partition = user.row("0", "Partitions")
    assert re.fullmatch(r"[\d.]+ [KMG]?i?B", partition["Size"])
    assert int(partition["Records"].replace(" ", "")) > 0

    def lag_in_time() -> str:
        user.open("/topic", name=TOPIC)
        rows = [each for each in user.rows() if each.get("Group") == GROUP]
        return rows[0]["Lag in time"].replace("–", "") if rows else ""

    eventually(lag_in_time)
    group = user.row(GROUP)
    assert group["Partitions with offsets"] == "1"
    assert int(group["Lag"].replace(" ", "")) > 0
    user.press(GROUP)
    assert re.match(r"\d", user.row(f"{TOPIC}:0")["Lag in time"])


@pytest.mark.skipif(not prometheus_server.IS_INSTALLED, reason="prometheus is missing")
def test_charts_have_what_prometheus_collected_before_the_console_started(
    broker: SaslBarnabas, client: barnabas.Client, metrics: str, browser: Chromium, tmp_path: Path
) -> None:
    with prometheus_server.PrometheusServer(tmp_path, [metrics], f"{HOST}:1") as server:
        rate = "sum(rate(kafka_server_brokertopicmetrics_messagesin_total[30s]))"
        prometheus_server.eventually(lambda: server.query(rate))
        options = [*login(), "--prometheus", f"http://{server.address}"]
        # The console's own samples are an hour apart.
        options += ["--interval", "3600"]
        with running_console(broker.sasl_bootstrap, *options) as running:
            user = ConsoleUser(browser, running.url)
            running.log_in(browser, "/")

            def line() -> object:
                user.open("/")
                return browser.run(
                    "document.querySelector('svg.axes[aria-label^=\"Records written\"] path.line')"
                    "?.getAttribute('d')"
                )

            prometheus_server.eventually(line)


@contextlib.contextmanager
def open_transaction(
    client: barnabas.Client, topic: str, transactional_id: str
) -> Iterator[tuple[barnabas.Producer, int]]:
    """Yield a producer, and the offset of the record that its transaction has in a new topic."""
    client.create_topic(topic, 1, 1)
    # No transaction ends before its test, however slow the machine is.
    keys = {"transactional_id": transactional_id, "transaction_timeout_ms": 600_000}
    with client.producer(**keys) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        yield producer, producer.send(topic, b"x").result().offset


def test_open_transactions_and_producers_are_shown_and_a_producer_is_fenced(
    user: ConsoleUser, client: barnabas.Client
) -> None:
    topic = "nodes-transactions"
    with open_transaction(client, topic, "nodes-open") as (producer, _):
        user.open("/transactions")
        row = user.row("nodes-open")
        assert row["State"] == "Ongoing"
        user.form_of("Topic").type("Topic", topic)
        user.form_of("Topic").press("Show")
        assert user.row("0")
        assert any(user.rows())
        user.open("/transactions")
        part = user.part("Fence a producer")
        part.type("Transactional id", "nodes-open")
        part.press("Fence")
        user.sees("nodes-open")
        user.press("Fence")
        user.sees("fenced the producer")
        with pytest.raises(barnabas.ClientError):
            producer.commit_transaction()


def test_a_hanging_transaction_is_found_and_aborted(
    user: ConsoleUser, client: barnabas.Client, broker: SaslBarnabas
) -> None:
    topic = "nodes-hanging"
    client.create_topic(topic, 1, 1)
    brokers = ConfigResource(ResourceType.BROKER, "")
    verification = "transaction.partition.verification.enable"
    client.admin.alter_configs(brokers, {verification: "false"})
    open_a_transaction_that_hangs(broker.bootstrap, topic)
    client.admin.alter_configs(brokers, {verification: None})
    user.open("/transactions")
    user.form_of("Open for longer than").press("Search")
    assert user.row(f"{topic}:0")["Producer id"] == str(UNASSIGNED_PRODUCER_ID)
    user.press("Abort")
    user.sees(topic)
    user.press("Abort")
    user.sees("aborted the transaction")

    def is_gone() -> bool:
        user.open("/transactions/hanging")
        return "No transaction hangs" in user.text()

    eventually(is_gone)


def test_a_quota_is_set_and_removed(user: ConsoleUser) -> None:
    user.open("/quotas")
    part = user.part("Set a quota")
    part.type("User", "eve")
    part.choose("Quota", "producer_byte_rate")
    part.type("Limit", "1MiB")
    part.press("Set")
    assert "1.0 MiB/s" in user.row("user eve")["Limit"]
    user.press("Remove")
    user.sees("eve")
    user.press("Remove")
    user.sees("No quotas")


def test_a_delegation_token_and_a_subscription_to_metrics_are_created(user: ConsoleUser) -> None:
    user.open("/tokens")
    part = user.part("Create a token")
    part.type("Renewers", "User:bob")
    part.press("Create")
    user.sees("The HMAC is a password. The console shows it now, and never again")
    user.open("/tokens")
    user.sees("User:admin", "User:bob")
    user.open("/telemetry")
    part = user.part("New subscription")
    part.type("Name", "nodes-metrics")
    part.type("Prefixes of metrics", "org.apache.kafka.")
    part.press("Save")
    assert "org.apache.kafka." in " ".join(user.row("nodes-metrics").values())


def test_quorum_log_directories_and_features_are_pages(user: ConsoleUser) -> None:
    user.open("/quorum")
    assert "leader" in user.row("1").values()
    user.press("Log directories")
    rows = [each for each in user.rows() if each["Directory"].endswith(("/one", "/two"))]
    assert len(rows) == 2
    user.press("Features")
    assert int(user.row("metadata.version")["Supported to"]) >= 1
    part = user.part("Set the level of a feature")
    part.choose("Feature", "group.version")
    part.type("Level", "0")
    part.press("Set")
    row = user.row("group.version")
    assert "0" in row.values()
    user.press("Cancel")
    user.sees("Features")


def test_entries_users_and_the_rights_of_a_user_are_shown(
    user: ConsoleUser, client: barnabas.Client
) -> None:
    denied = Acl(
        AclResourceType.TOPIC, "orders", "User:eve", AclOperation.WRITE, AclPermission.DENY
    )
    client.admin.create_acls([denied])
    user.open("/security")
    part = user.part("Add an entry")
    part.type("Principal", "User:eve")
    part.choose("Operation", "READ")
    part.choose("Resource", "TOPIC")
    part.type("Name", "orders")
    part.press("Add")
    user.sees("User:eve", "READ", "DENY")
    part = user.part("Add a user")
    part.type("User", "eve")
    part.type("Password", "a long password")
    part.press("Set")
    user.sees("SCRAM.SHA")
    user.open("/security/rights")
    user.type("User", "eve")
    user.press("Show")
    row = user.row("orders")
    assert "read" in row["May"]
    assert "write" in row["Is denied"]


def test_a_page_without_a_right_names_the_entry_that_would_help(
    broker: SaslBarnabas, client: barnabas.Client, browser: Chromium
) -> None:
    options = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN"]
    options += ["-X", "sasl.username=bob", "-X", "sasl.password=bob-secret", "--interval", "3600"]
    with running_console(broker.sasl_bootstrap, *options) as running:
        user = ConsoleUser(browser, running.url)
        user.open("/topic", name=TOPIC)
        user.sees(f"barnabas acls add User:bob --operation describe --topic {TOPIC}")
        status = "performance.getEntriesByType('navigation')[0].responseStatus"
        assert browser.run(status) == 403


def test_flows_of_pipelines_and_streaming_queries_are_shown(user: ConsoleUser) -> None:
    user.open("/")
    user.press("Pipelines")
    flow = user.row("records")
    assert (flow["Rows written"], flow["Rows/s"]) == ("1", "2.5")
    assert flow["Expectations not met"] == "has a key: 3 of 4"
    user.sees("completed", "Queries of", "copy running 50")


def test_the_page_why_names_what_a_group_waits_for(
    user: ConsoleUser, client: barnabas.Client
) -> None:
    topic = "nodes-waits"
    with open_transaction(client, topic, "nodes-waits") as (producer, offset):
        user.open("/topic", name=topic)
        user.press("Why does it wait?")
        user.sees("transactional id nodes-waits")
        user.type("Topic, topic:partition", f"{topic}:0@{offset}")
        user.press("Examine")
        user.sees("transactional id nodes-waits")
        producer.abort_transaction()
    user.open("/why", target=GROUP, ask=1)
    user.sees("no members")


def test_the_page_doctor_lists_what_it_examined(user: ConsoleUser) -> None:
    user.open("/")
    user.press("Doctor")
    user.press("Examine the addresses and the cluster")
    user.sees(r"No problems found|\d+ problems?")
    assert len(user.finds("[...document.querySelectorAll('.findings li')].map(textOf)")) > 3
