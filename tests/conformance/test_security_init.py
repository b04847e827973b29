"""`barnabas security init`: the broker starts with its files, and only its users can connect."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

import barnabas
from barnabas.client.errors import AuthenticationError, ClientError
from conformance.secured_broker import SecuredBroker, cli
from documents.blocks import ROOT, commands_of, sections_of
from jvm.tool_host import ToolHost
from selection import nightly_unless
from waiting import PATIENCE_S


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    secured = SecuredBroker(tmp_path_factory.mktemp("init"))
    assert secured.init_result.returncode == 0, secured.init_result.stderr
    with secured:
        yield secured


def test_only_the_owner_may_read_the_written_files(broker: SecuredBroker) -> None:
    assert broker.files.stat().st_mode & 0o777 == 0o700
    for path in broker.files.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_password_is_printed_once_and_stored_in_its_file(broker: SecuredBroker) -> None:
    assert broker.init_result.stdout.count(broker.password) == 1
    assert len(broker.password) >= 32


def test_librdkafka_writes_and_reads_with_its_file(broker: SecuredBroker) -> None:
    keys = broker.keys("librdkafka")
    created = cli("topics", "create", "rd", "-F", broker.file("barnabas"))
    assert created.returncode == 0, created.stderr
    producer = confluent_kafka.Producer(keys)
    producer.produce("rd", b"secret words")
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**keys, "group.id": "rd", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rd"])
    (found,) = consumer.consume(1, PATIENCE_S)
    consumer.close()
    assert found.value() == b"secret words"


@pytest.mark.parametrize(
    "client", nightly_unless("certificate".__eq__, ["barnabas", "java", "certificate"])
)
def test_our_command_line_writes_and_reads_with_each_file(
    broker: SecuredBroker, client: str
) -> None:
    topic = f"cli-{client}"
    file = ("-F", broker.file(client))
    assert cli("topics", "create", topic, *file).returncode == 0
    assert cli("produce", topic, *file, stdin="in secret\n").returncode == 0
    read = cli("consume", topic, "--from", "beginning", "--exit-at-end", *file)
    assert read.returncode == 0, read.stderr
    assert read.stdout.splitlines()[-1].endswith("in secret")


def test_java_writes_and_reads_with_its_file(broker: SecuredBroker, tool_host: ToolHost) -> None:
    server = ("--bootstrap-server", broker.with_password, "--topic", "java")
    file = ("--command-config", broker.file("java"))
    assert cli("topics", "create", "java", "-F", broker.file("java")).returncode == 0
    sent = tool_host.run("ConsoleProducer", *server, *file, stdin="from java\n")
    assert sent.returncode == 0, sent.stderr
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
    read = tool_host.run("consumer.ConsoleConsumer", *server, *file, *limits)
    assert read.stdout.strip() == "from java", read.stderr


def test_our_client_accepts_the_files_of_spark_without_their_prefix(broker: SecuredBroker) -> None:
    keys = {key.removeprefix("kafka."): value for key, value in broker.keys("spark").items()}
    servers = keys.pop("bootstrap.servers")
    with barnabas.Client(servers, **keys) as client:
        assert client.describe_cluster().brokers


def test_a_user_can_write_only_after_the_grant_of_rights(broker: SecuredBroker) -> None:
    file = ("-F", broker.file("barnabas"))
    assert cli("topics", "create", "owned", *file).returncode == 0
    words = ("users", "add", "ann", "--password-file", "-", *file)
    assert cli(*words, stdin="ann-secret\n").returncode == 0
    ann = ("-X", "sasl.username=ann", "-X", "sasl.password=ann-secret")
    refused = cli("produce", "owned", *file, *ann, stdin="x\n")
    assert refused.returncode == 1
    assert "AUTHORIZATION_FAILED" in refused.stderr
    added = cli("acls", "add", "User:ann", "--producer", "--topic", "owned", *file)
    assert added.returncode == 0, added.stderr
    assert cli("produce", "owned", *file, *ann, stdin="x\n").returncode == 0


def test_states_of_a_share_group_are_for_users_with_cluster_action(broker: SecuredBroker) -> None:
    file = ("-F", broker.file("barnabas"))
    reset = "share.auto.offset.reset=earliest"
    entries = ("--operation", "describe", "--group", "inspectors", "--topic", "checks")
    for words in (
        ("topics", "create", "checks"),
        ("users", "add", "guest", "--password-file", "-"),
        ("acls", "add", "User:guest", *entries),
        ("configs", "set", "group", "inspectors", reset),
    ):
        done = cli(*words, *file, stdin="guest-secret\n")
        assert done.returncode == 0, done.stderr
    assert cli("produce", "checks", *file, stdin="wings\ntail\n").returncode == 0
    read = cli("consume", "checks", "--share", "inspectors", "-n", "1", *file)
    assert read.returncode == 0, read.stderr

    def kinds(*login: str) -> list[str]:
        done = cli("why", "--group", "inspectors", "--json", *file, *login)
        (explanation,) = json.loads(done.stdout)["answers"]
        return [reason["kind"] for reason in explanation["reasons"]]

    as_guest = ("-X", "sasl.username=guest", "-X", "sasl.password=guest-secret")
    assert kinds() == ["no-members", "delivered-before"]
    assert kinds(*as_guest) == ["no-members", "states-not-allowed"]


def test_clients_without_valid_credentials_are_refused(broker: SecuredBroker) -> None:
    keys = broker.keys("barnabas")
    servers = keys.pop("bootstrap.servers")
    with pytest.raises(AuthenticationError):
        barnabas.Client(servers, **{**keys, "sasl.password": "wrong"}).describe_cluster()
    limits = {"default.api.timeout.ms": "2000"}
    without_certificate = {"security.protocol": "SSL", "ssl.ca.location": keys["ssl.ca.location"]}
    for address, properties in (
        (broker.with_certificate, without_certificate),
        (broker.with_password, {}),
        (broker.with_certificate, {}),
        (broker.with_password, without_certificate),
        (broker.with_password, {"security.protocol": "SSL"}),
    ):
        with pytest.raises(ClientError):
            barnabas.Client(address, **properties, **limits).describe_cluster()


def test_nothing_is_overwritten(broker: SecuredBroker, tmp_path: Path) -> None:
    def written() -> dict[str, str]:
        return {path.name: path.read_text() for path in broker.files.iterdir() if path.is_file()}

    before = written()
    again = cli("security", "init", str(broker.files))
    assert again.returncode == 2
    assert "is not empty" in again.stderr
    assert written() == before


def test_the_commands_of_the_page_name_the_written_files(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    (block,) = [
        block
        for section in sections_of("docs/security.md")
        for block in section.blocks
        if block.checked_by == "tests/conformance/test_security_init.py"
    ]
    init, start, create = (shlex.split(command.text)[1:] for command in commands_of(block))
    place = init.index("secured")
    done = cli(*init[:place], str(tmp_path / "new"), *init[place + 1 :])
    assert done.returncode == 0, done.stderr
    for word in (start[-1], create[-1]):
        assert (tmp_path / word.replace("secured", "new")).is_file()
        assert word.replace("secured", str(tmp_path / "new")) in done.stdout
    table = (ROOT / "docs" / "security.md").read_text().split("| file in `secured` | for |")[1]
    listed = re.findall(r"`([\w.-]+)`", table.partition("\n\n")[0])
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert written <= set(listed)


@pytest.mark.parametrize(
    "words",
    [("--host", "a b"), ("--host", ""), ("--user", "broker-1"), ("--user", "a,b"), ("--days", "0")],
)
def test_unusable_names_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert cli("security", "init", str(tmp_path / "new"), *words).returncode == 2
    assert not (tmp_path / "new").exists()


def test_json_has_no_password(tmp_path: Path) -> None:
    done = cli("security", "init", str(tmp_path / "new"), "--json")
    made = json.loads(done.stdout)
    password = (tmp_path / "new" / made["password_file"]).read_text().strip()
    assert password not in done.stdout
