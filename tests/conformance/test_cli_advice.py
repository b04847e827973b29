"""Every command that `doctor` and `why` advise runs as it is printed."""

from __future__ import annotations

import contextlib
import shlex
import string
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.common.advice import Advice
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.producer.producer import Producer
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.free_ports import free_ports
from conformance.cli_shell import Shell
from conformance.hanging_transaction import open_a_transaction_that_hangs
from selection import nightly_unless
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance

# Commands that start a broker, or examine the files of a stopped one.
SERVERS = {Advice.START_NEW_BROKER, Advice.START_NODE}
OF_FILES = {Advice.REPAIR_LOG, Advice.REPAIR_LOG_APPLY, Advice.VERIFY_LOG}
# Their status tells what they have found.
EXAMINATIONS = {"doctor", "why"}
# They name a mirror of the link.
OF_MIRRORS = {Advice.FOLLOW_SOURCE, Advice.PROMOTE_MIRROR, Advice.RESUME_MIRROR}
VALUES = {
    "broker": "1",
    "brokers": "1",
    "client_id": "loader",
    "feature": "share.version",
    "group": "billing",
    "key": "follower.replication.throttled.rate",
    "level": "1",
    "link": "prod",
    "mechanism": "SCRAM-SHA-512",
    "offset": "0",
    "partition": "0",
    "replicas": "1",
    "topic": "orders",
    "transactional_id": "pay",
}
# A mirror that is not created, because its source does not exist.
MIRROR = "returns-mirror"
REPLACED = {
    "NAME": "ANONYMOUS",
    "producer_byte_rate=BYTES": "producer_byte_rate=1000000000",
    "TIME": "2026-01-31T12:00",
    "TOPIC": "orders",
    "User:NAME": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.partition.verification.enable": "false",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("advice"), settings) as it:
        yield it


@pytest.fixture(scope="module")
def shell(broker: BrokerProcess) -> Iterator[Shell]:
    """A cluster with a topic, a group, and an open transaction."""
    made = Shell(broker.bootstrap)
    broker.create_topic("orders")
    with Client(broker.bootstrap) as client, client.producer() as producer:
        producer.send("orders", b"first")
    made.ok("configs", "set", "broker", "1", f"{VALUES['key']}=1000")
    made.ok("features", "downgrade", "share.version=0", "transaction.version=0")
    open_a_transaction_that_hangs(broker.bootstrap, "orders")
    paying = Producer(broker.bootstrap, transactional_id="pay")
    paying.init_transactions()
    paying.begin_transaction()
    paying.send("orders", b"second")
    paying.flush()
    yield made
    # `transactions terminate` has fenced it.
    with contextlib.suppress(ClientError):
        paying.close(flush=False)


def prepare_group(shell: Shell) -> None:
    """Commit an offset of the group."""
    words = ("groups", "reset", "billing", "--topic", "orders", "--to-earliest", "--execute")
    eventually(lambda: shell.run_in_process(*words).returncode == 0)


def prepare_link(shell: Shell) -> None:
    """Create a link whose source does not exist."""
    mirror = {f"topic.{MIRROR}": "stopped 00 lost records"}
    settings = {"bootstrap.servers": "127.0.0.1:1", "state": "paused", **mirror}
    words = [f"barnabas.link.prod.{key}={value}" for key, value in settings.items()]
    shell.ok("configs", "set", "broker", "default", "--force", *words)


def prepare_new_topic(shell: Shell) -> None:
    """Delete the topic that the command creates."""
    shell.run_in_process("topics", "delete", "returns", "--yes")


PREPARED: dict[Advice, Callable[[Shell], None]] = {
    Advice.CREATE_TOPIC: prepare_new_topic,
    Advice.DELETE_GROUP: prepare_group,
    Advice.DESCRIBE_LINK: prepare_link,
    Advice.RESET_TO_EARLIEST: prepare_group,
    Advice.RESET_TO_LATEST: prepare_group,
    Advice.RESUME_LINK: prepare_link,
    **dict.fromkeys(OF_MIRRORS, prepare_link),
}


def words_of(advice: Advice, **more: str) -> list[str]:
    """Return the words of an advised command; those for the user to replace are replaced."""
    values = {**VALUES, **more}
    names = {name for _, name, _, _ in string.Formatter().parse(advice.value) if name}
    _, *words = shlex.split(advice.text(**{name: values[name] for name in names}))
    return [REPLACED.get(word, word) for word in words]


COMMANDS = sorted(set(Advice) - SERVERS - OF_FILES, key=str)
# What `make check` runs of them: those that need a preparation, and each third one.
CHOSEN = {*PREPARED, *COMMANDS[::3]}


@pytest.mark.parametrize("advice", nightly_unless(CHOSEN.__contains__, COMMANDS))
def test_an_advised_command_runs(
    advice: Advice, shell: Shell, broker: BrokerProcess, tmp_path: Path
) -> None:
    PREPARED.get(advice, lambda _shell: None)(shell)
    more = {"address": broker.bootstrap}
    if advice is Advice.CREATE_TOPIC:
        more["topic"] = "returns"
    if advice in OF_MIRRORS:
        more["topic"] = MIRROR
    if advice is Advice.ABORT_TRANSACTION:
        more["offset"] = "1"
    words = words_of(advice, **more)
    if advice is Advice.ADD_USER:
        # On a terminal, the command asks for the password.
        (tmp_path / "password").write_text("secret")
        words += ["--password-file", str(tmp_path / "password")]
    run = shell.run if words[0] == "consume" else shell.run_in_process
    done = run(*words)
    allowed = (0, 1) if words[0] in EXAMINATIONS else (0,)
    assert done.returncode in allowed, (words, done.stdout, done.stderr)
    if advice is Advice.SHOW_RECORD:
        assert done.stdout == "first\n"


def test_advised_commands_for_the_files_of_a_stopped_broker_run(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as stopped:
        stopped.create_topic("orders")
    shell = Shell(stopped.bootstrap)
    for advice in OF_FILES:
        shell.ok(*words_of(advice, directory=str(stopped.data_directory)))


@pytest.mark.parametrize("advice", sorted(SERVERS, key=str))
def test_advised_commands_start_a_broker(advice: Advice, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\nlisteners=PLAINTEXT://{address}\nlog.dirs={tmp_path}/of-file\n")
    words = [
        str(file) if word == "SERVER.PROPERTIES" else word
        for word in words_of(advice, address=address)
    ]
    shell = Shell(address)
    process = subprocess.Popen(shell.command(*words), cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        eventually(lambda: shell.run_in_process("topics", "list").returncode == 0)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
