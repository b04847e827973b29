"""The pytest plugin as users run it, with pytest in separate processes."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from selection import nightly_unless
from waiting import eventually

pytest_plugins = ["pytester"]

NAME = "barnabas.testing.pytest_plugin"
# A checkout that was installed before the plugin was there has no entry point for it.
INSTALLED = any(each.value == NAME for each in importlib.metadata.entry_points(group="pytest11"))
OPTIONS = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider", "-s"]
if not INSTALLED:
    OPTIONS += ["-p", NAME]

SENDS = """
import pytest
from barnabas import Producer

def send(bootstrap, topic, value=b"value"):
    with Producer(bootstrap) as producer:
        return producer.send(topic, value).result(90)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the processes of this test make their temporary directories."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest over a module: run(source, option, ...)."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "CI"):
        monkeypatch.delenv(name, raising=False)

    def run_module(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess(*OPTIONS, *options, timeout=300)

    return run_module


def test_a_run_that_uses_no_fixture_imports_four_small_modules(run) -> None:
    result = run(
        """
        import sys

        def test_something():
            print("imported", *sorted(name for name in sys.modules if name.startswith("barnabas")))
        """
    )
    result.assert_outcomes(passed=1)
    [line] = re.findall(r"imported (.+)", result.stdout.str())
    assert line.split() == ["barnabas", "barnabas.testing", NAME, "barnabas.version"]


def test_tests_share_a_broker_and_have_new_topics(run, temporary: Path) -> None:
    result = run(
        SENDS
        + """
addresses, topics = set(), set()

@pytest.mark.parametrize("number", range(3))
def test_first_offset(kafka_broker, kafka_topic, number):
    assert send(kafka_broker.bootstrap, kafka_topic).offset == 0
    addresses.add(kafka_broker.bootstrap)
    topics.add(kafka_topic)

@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": "60000"})
def test_marker(kafka_broker, kafka_topic):
    from barnabas import Admin
    with Admin(kafka_broker.bootstrap) as admin:
        assert len(admin.describe_topics([kafka_topic])[kafka_topic].partitions) == 3
    assert (len(addresses), len(topics)) == (1, 3)
""",
        "--strict-markers",
    )
    result.assert_outcomes(passed=4)
    assert not list(temporary.iterdir())


def test_settings_come_from_the_ini_file_and_from_an_override(
    run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nkafka_settings =\n    num.partitions = 4\n")
    source = """
from barnabas import Admin

def test_partitions(kafka_broker):
    assert kafka_broker.settings["num.partitions"] == "{wanted}"
    assert kafka_broker.settings["group.initial.rebalance.delay.ms"] == "0"
    with Admin(kafka_broker.bootstrap) as admin:
        from barnabas.client.admin.topics import NewTopic
        admin.create_topics([NewTopic("t")])
        assert len(admin.describe_topics(["t"])["t"].partitions) == {wanted}
"""
    run(source.format(wanted=4)).assert_outcomes(passed=1)
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafka_settings(kafka_settings):
            return {**kafka_settings, "num.partitions": "5"}
        """
    )
    run(source.format(wanted=5)).assert_outcomes(passed=1)


def test_a_killed_or_paused_broker_is_restored_for_the_next_test(run) -> None:
    result = run(
        SENDS
        + """
@pytest.fixture
def closing(kafka_broker):
    yield
    # A test's own fixtures end with a broker that answers.
    assert send(kafka_broker.bootstrap, "closing")

@pytest.mark.parametrize("fault", ["kill", "pause", "stop"])
def test_fault(kafka_broker, closing, fault):
    send(kafka_broker.bootstrap, "kept")
    getattr(kafka_broker, fault)()

def test_after(kafka_broker, kafka_topic):
    assert send(kafka_broker.bootstrap, kafka_topic).offset == 0
    assert send(kafka_broker.bootstrap, "kept").offset == 3
"""
    )
    result.assert_outcomes(passed=4)


def test_a_broker_that_dies_is_an_error_of_that_test_only(run) -> None:
    result = run(
        SENDS
        + """
import os, signal

def test_fault(kafka_broker):
    os.kill(kafka_broker.pid, signal.SIGTERM)
    kafka_broker.wait()

def test_after(kafka_broker, kafka_topic):
    send(kafka_broker.bootstrap, kafka_topic)
"""
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*BrokerDiedError: the broker ended by itself*"])


def test_a_failed_test_shows_the_log_of_the_broker(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_settings = barnabas.log.level=info\n")
    result = run("def test_failure(kafka_broker):\n    assert not kafka_broker.bootstrap\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Log of kafka_broker*", "*Node ready: id=1*"])


def test_broken_links_are_restored_for_the_next_test(run, temporary: Path) -> None:
    result = run(
        SENDS
        + """
from barnabas.testing import CLIENTS

def test_cut(kafka_cluster):
    kafka_cluster.create_topic("orders", partitions=2)
    assert send(kafka_cluster.bootstrap, "orders")
    for node in kafka_cluster.nodes:
        kafka_cluster.cut((CLIENTS, node))
    with Producer(kafka_cluster.bootstrap, delivery_timeout_ms=500, request_timeout_ms=400,
                  linger_ms=0, max_block_ms=500) as producer:
        with pytest.raises(Exception) as raised:
            producer.send("orders", b"lost").result(10)
    kafka_cluster.node(2).kill()

def test_whole(kafka_cluster):
    assert all(node.is_running for node in kafka_cluster.nodes.values())
    assert send(kafka_cluster.bootstrap, "orders")

@pytest.mark.parametrize("kafka_cluster", [1, {"brokers": 1, "controllers": 1}], indirect=True)
def test_other_sizes(kafka_cluster):
    assert len(kafka_cluster.brokers) == 1
    assert send(kafka_cluster.bootstrap, "orders")
"""
    )
    result.assert_outcomes(passed=4)
    assert not list(temporary.iterdir())


def test_users_of_the_ini_file_are_on_secured_brokers_and_clusters(
    run, pytester: pytest.Pytester, temporary: Path
) -> None:
    pytester.makeini(
        """
        [pytest]
        kafka_cluster_secured = true
        kafka_users =
            ann: produce orders*, produce ledger
            bob: consume orders, group billing-*, password s3cret
        """
    )
    result = run(
        """
        import pytest
        from barnabas import AuthenticationError, BrokerError, Consumer, Producer

        def send(user, topic):
            with Producer(**user.barnabas) as producer:
                return producer.send(topic, b"value").result(90)

        def test_broker(secured_kafka):
            users = secured_kafka.users
            secured_kafka.create_topics(["orders-1", "orders"])
            assert send(users["ann"], "orders-1").offset == 0
            assert users["bob"].password == "s3cret"
            with pytest.raises(BrokerError, match="AUTHORIZATION_FAILED"):
                send(users["bob"], "orders")
            with pytest.raises(AuthenticationError):
                send(users["ann"].with_password("wrong"), "orders")

        @pytest.mark.parametrize("kafka_cluster", [1], indirect=True)
        def test_cluster(kafka_cluster):
            kafka_cluster.create_topic("orders")
            send(kafka_cluster.users["ann"], "orders")
            reads = dict(group_id="billing-1", auto_offset_reset="earliest")
            with Consumer("orders", **kafka_cluster.users["bob"].barnabas, **reads) as consumer:
                assert next(iter(consumer)).value == b"value"

        @pytest.mark.parametrize("kafka_cluster", [{"brokers": 1, "secured": False}], indirect=True)
        def test_open_cluster(kafka_cluster):
            with Producer(kafka_cluster.bootstrap) as producer:
                producer.send("orders", b"value").result(90)
        """
    )
    result.assert_outcomes(passed=3)
    assert not list(temporary.iterdir())


def test_each_worker_of_xdist_has_its_own_broker(run, tmp_path: Path) -> None:
    addresses = tmp_path / "addresses"
    result = run(
        SENDS
        + f"""
@pytest.mark.parametrize("number", range(4))
def test_address(kafka_broker, kafka_topic, number, worker_id):
    assert send(kafka_broker.bootstrap, kafka_topic).offset == 0
    with open({str(addresses)!r}, "a") as file:
        file.write(f"{{worker_id}} {{kafka_broker.bootstrap}}\\n")
""",
        "-n",
        "2",
        "--dist",
        "load",
    )
    result.assert_outcomes(passed=4)
    pairs = set(addresses.read_text().splitlines())
    assert len(pairs) == 2
    assert len({pair.split()[1] for pair in pairs}) == 2


def test_a_scope_can_be_a_single_test(run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_broker_scope = function\n")
    result = run(
        """
        pids = set()
        def test_one(kafka_broker): pids.add(kafka_broker.pid)
        def test_other(kafka_broker): assert kafka_broker.pid not in pids
        """
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("ini", "source", "complaint"),
    [
        ("kafka_broker_scope = day", "def test(kafka_broker): pass", "one of session, package"),
        ("kafka_settings = broken", "def test(kafka_broker): pass", "lines KEY=VALUE"),
        (
            "",
            "import pytest\n@pytest.mark.kafka_topic(3)\ndef test(kafka_topic): pass",
            "takes partitions=",
        ),
        (
            "kafka_settings = listeners=PLAINTEXT://127.0.0.1:9092",
            "def test(kafka_broker): pass",
            "kafka_settings has listeners, which the fixtures choose themselves",
        ),
        (
            "kafka_settings = node.id=7",
            "def test(kafka_cluster): pass",
            "kafka_settings has node.id",
        ),
        (
            "kafka_users = ann: write orders",
            "def test(secured_kafka): pass",
            "kafka_users has 'ann: write orders': 'write orders' is not one of produce, consume",
        ),
        (
            "kafka_barnabas = ./nowhere",
            "def test(kafka_broker): pass",
            "/nowhere: *No such file",
        ),
    ],
)
def test_invalid_options_are_reported(
    run, pytester: pytest.Pytester, ini: str, source: str, complaint: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    result = run(source)
    assert result.ret != 0
    said = result.stdout.str() + result.stderr.str()
    assert re.search(re.escape(complaint).replace(r"\*", ".*"), said)


def test_assertions_of_barnabas_are_not_rewritten(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(marking="import pytest\npytest.register_assert_rewrite('barnabas')\n")
    result = run(
        """
        def test_loader():
            import barnabas.client.connections.cluster as module
            assert type(module.__loader__).__name__ == "SourceFileLoader"
        """,
        "-p",
        "marking",
    )
    result.assert_outcomes(passed=1)


def servers_in(directory: Path) -> list[int]:
    """Ids of the brokers that run in a temporary directory."""
    return processes(f"barnabas.cli.main start .*{directory}")


def processes(pattern: str) -> list[int]:
    """Ids of the processes whose command line has a pattern."""
    words = ["pgrep", "-f", pattern]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@pytest.mark.parametrize(
    "options", nightly_unless(lambda words: not words, [[], ["-n", "2"]]), ids=["alone", "xdist"]
)
def test_brokers_end_with_a_killed_pytest_and_leave_nothing(
    pytester: pytest.Pytester, temporary: Path, tmp_path: Path, options: list[str]
) -> None:
    started = tmp_path / "started"
    pytester.makepyfile(
        f"""
        import sys, time, pytest
        @pytest.mark.parametrize("number", range(2))
        def test_long(kafka_broker, number):
            open({str(started)!r}, "a").write("one\\n")
            # Only Linux wakes a paused process when its parent dies.
            if sys.platform == "linux":
                kafka_broker.pause()
            time.sleep(600)
        """
    )
    words = [*pytester._getpytestargs(), *OPTIONS, *options]
    process = pytester.popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        count = 2 if options else 1
        eventually(lambda: started.exists() and started.read_text().count("one") == count)
        assert len(servers_in(temporary)) == count
        process.kill()
        process.wait()
        eventually(lambda: not servers_in(temporary))
        eventually(lambda: not list(temporary.glob("barnabas-*")))
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


REGISTRY_SETTINGS = """
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from barnabas.serializers import SchemaRegistry

def test_settings_of_clients(schema_registry, kafka_topic):
    subject = f"{kafka_topic}-value"
    theirs = SchemaRegistryClient(schema_registry.confluent)
    number = theirs.register_schema(subject, Schema('"string"', "AVRO"))
    assert SchemaRegistry(**schema_registry.barnabas).latest(subject).schema_id == number
    assert schema_registry.java == {"schema.registry.url": schema_registry.url}
    assert schema_registry.spark == {"registry": schema_registry.url}
"""
REGISTRY_FAULTS = """
import pytest
from barnabas.serializers import Schema, SchemaRegistry

def register(registry):
    return SchemaRegistry(registry.url).register("kept", Schema('"string"'))

@pytest.mark.parametrize("fault", ["kill", "pause", "stop"])
def test_fault(schema_registry, fault):
    register(schema_registry)
    getattr(schema_registry, fault)()

def test_after(schema_registry):
    assert SchemaRegistry(schema_registry.url).versions("kept") == [1]
"""


def test_clients_use_the_settings_of_the_registry(run, temporary: Path) -> None:
    run(REGISTRY_SETTINGS).assert_outcomes(passed=1)
    assert not list(temporary.iterdir())


@pytest.mark.nightly
def test_a_killed_or_paused_registry_is_restored_for_the_next_test(run) -> None:
    run(REGISTRY_FAULTS).assert_outcomes(passed=4)


@pytest.mark.nightly
def test_the_registry_lives_as_long_as_the_broker(run, pytester: pytest.Pytester) -> None:
    source = """
import pytest
urls = set()

@pytest.mark.parametrize("number", range(2))
def test_url(schema_registry, number):
    urls.add(schema_registry.url)

def test_count():
    assert len(urls) == {wanted}
"""
    pytester.makeini("[pytest]\nkafka_broker_scope = function\n")
    run(source.format(wanted=2)).assert_outcomes(passed=3)
    pytester.makeini("[pytest]\nschema_registry_scope = day\n")
    result = run(source.format(wanted=2))
    result.stdout.fnmatch_lines(["*schema_registry_scope is 'day', but must be one of session, *"])


@pytest.mark.nightly
def test_a_registry_ends_with_a_killed_pytest_and_leaves_nothing(
    pytester: pytest.Pytester, temporary: Path, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    pytester.makepyfile(
        f"""
        import time
        def test_long(schema_registry):
            open({str(started)!r}, "w").write(f"{{schema_registry.port}}\\n")
            time.sleep(600)
        """
    )
    words = [*pytester._getpytestargs(), *OPTIONS]
    process = pytester.popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: started.exists() and started.read_text().endswith("\n"))
        registry = f"barnabas.cli.main registry .*:{started.read_text().strip()} "
        assert processes(registry)
        process.kill()
        process.wait()
        eventually(lambda: not processes(registry))
        eventually(lambda: not servers_in(temporary))
        eventually(lambda: not list(temporary.glob("barnabas-*")))
    finally:
        process.kill()
