"""Access control lists with real clients and Kafka's tool, on Barnabas and on Apache Kafka.

Every client is anonymous. The rights differ by the host of the client. Entries are changed from
OWN_HOST.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, Producer as ConfluentProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation as ConfluentOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import barnabas
from barnabas.cli.group import group
from barnabas.client.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.client.errors import BrokerError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.resources import CLUSTER_NAME
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jvm.tool_host import ToolHost

pytestmark = pytest.mark.conformance

Broker = BrokerProcess | KafkaProcess
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:root",
}
ANONYMOUS = "User:ANONYMOUS"
# A host with all rights, and a host with the rights that a test grants.
OWN_HOST, OTHER_HOST = "127.0.0.1", "127.0.0.77"


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_jars: Callable[[str], str],
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("acls")
    made: Broker
    if request.param == "kafka":
        made = KafkaProcess(directory, SETTINGS)
    else:
        made = BrokerProcess(directory, SETTINGS)
    made.start()
    try:
        with barnabas.Admin(made.bootstrap) as admin:
            admin.create_acls(
                [
                    Acl(kind, CLUSTER_NAME if kind == AclResourceType.CLUSTER else "*", ANONYMOUS,
                        AclOperation.ALL, host=OWN_HOST)
                    for kind in (
                        AclResourceType.CLUSTER,
                        AclResourceType.TOPIC,
                        AclResourceType.GROUP,
                        AclResourceType.TRANSACTIONAL_ID,
                    )
                ]
            )  # fmt: skip
        yield made
    finally:
        made.close()


@pytest.fixture
def admin(broker: Broker) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(broker.bootstrap) as made:
        yield made


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"acls-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(broker.bootstrap) as client:
        client.create_topic(name, 1, 1)
    return name


def test_entries_are_created_found_and_deleted(admin: barnabas.Admin) -> None:
    user = f"User:{uuid.uuid4().hex[:8]}"
    reads = Acl(AclResourceType.TOPIC, "orders", user, AclOperation.READ)
    denied = Acl(
        AclResourceType.GROUP,
        "g-",
        user,
        AclOperation.ALL,
        AclPermission.DENY,
        "10.0.0.0/24",
        PatternType.PREFIXED,
    )
    bad = Acl(AclResourceType.CLUSTER, "not-the-cluster", user, AclOperation.ALTER)
    found = admin.create_acls([reads, denied, bad], raise_errors=False)
    assert found[reads] is None
    assert found[denied] is None
    assert isinstance(found[bad], BrokerError)
    own = AclFilter(principal=user)
    eventually(lambda: set(admin.describe_acls(own)) == {reads, denied})
    matching = AclFilter(
        AclResourceType.GROUP, "g-1", principal=user, pattern_type=PatternType.MATCH
    )
    assert admin.describe_acls(matching) == [denied]
    absent = AclFilter(principal="User:absent")
    deleted = admin.delete_acls([own, absent])
    assert not isinstance(deleted[own], BrokerError)
    assert set(deleted[own].acls) == {reads, denied}
    assert not isinstance(deleted[absent], BrokerError)
    assert deleted[absent].acls == ()
    eventually(lambda: admin.describe_acls(own) == [])


def test_librdkafka_creates_finds_and_deletes_entries(broker: Broker) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    user = f"User:{uuid.uuid4().hex[:8]}"
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.PREFIXED,
        user,
        "*",
        ConfluentOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    own_filter = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        user,
        None,
        ConfluentOperation.ANY,
        AclPermissionType.ANY,
    )
    for made in client.create_acls([binding]).values():
        made.result(30)
    eventually(lambda: client.describe_acls(own_filter).result(30) == [binding])
    (deleted,) = client.delete_acls([own_filter]).values()
    assert deleted.result(30) == [binding]


def metadata_error(broker: Broker, topic: str) -> ErrorCode:
    """Return the error code in a Metadata response to OTHER_HOST."""
    client = RawClient(broker.bootstrap, source=OTHER_HOST)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    response: Any = client.ask(request, 9)
    client.close()
    return ErrorCode(response.topics[0].error_code)


def test_an_allow_entry_grants_access_and_a_deny_entry_removes_it(
    broker: Broker, admin: barnabas.Admin, topic: str
) -> None:
    assert metadata_error(broker, topic) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow = Acl(AclResourceType.TOPIC, topic, ANONYMOUS, AclOperation.READ, host="127.0.0.0/24")
    admin.create_acls([allow])
    eventually(lambda: metadata_error(broker, topic) is ErrorCode.NONE)
    deny = Acl(
        AclResourceType.TOPIC,
        topic[:6],
        "User:*",
        AclOperation.DESCRIBE,
        AclPermission.DENY,
        OTHER_HOST,
        PatternType.PREFIXED,
    )
    admin.create_acls([deny])
    eventually(lambda: metadata_error(broker, topic) is ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    admin.delete_acls([AclFilter(host=OTHER_HOST)])
    eventually(lambda: metadata_error(broker, topic) is ErrorCode.NONE)


def test_a_producer_without_permission_gets_an_authorization_error(
    broker: Broker, admin: barnabas.Admin, topic: str
) -> None:
    deny = Acl(AclResourceType.TOPIC, topic, ANONYMOUS, AclOperation.WRITE, AclPermission.DENY)
    admin.create_acls([deny])
    errors: list[KafkaError | None] = []
    client = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def is_refused() -> bool:
        client.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        client.flush(30)
        return errors[-1] is not None

    eventually(is_refused)
    assert errors[-1] is not None
    assert errors[-1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException):
        client.init_transactions(5)


# Kafka's tool


def acl_command(tool_host: ToolHost, broker: Broker, *words: str) -> str:
    done = tool_host.run("AclCommand", "--bootstrap-server", broker.bootstrap, *words)
    assert done.returncode == 0, done
    return "\n".join(sorted(line for line in done.stdout.splitlines() if line.strip()))


def test_kafkas_tool_prints_the_same_for_both_brokers(broker: Broker, tool_host: ToolHost) -> None:
    principal = "User:CN=mary,OU=sales"
    mary = ("--allow-principal", principal)
    printed = [
        acl_command(tool_host, broker, "--add", *mary, "--producer", "--topic", "orders"),
        acl_command(
            tool_host,
            broker,
            "--add",
            *mary,
            "--consumer",
            "--topic",
            "pay",
            "--group",
            "*",
            "--resource-pattern-type",
            "prefixed",
        ),
        acl_command(
            tool_host,
            broker,
            "--add",
            "--deny-principal",
            principal,
            "--deny-host",
            "10.1.2.3",
            "--operation",
            "DescribeConfigs",
            "--cluster",
        ),
        acl_command(tool_host, broker, "--list", "--principal", principal),
        acl_command(
            tool_host,
            broker,
            "--remove",
            "--force",
            *mary,
            "--operation",
            "Create",
            "--topic",
            "orders",
        ),
        acl_command(tool_host, broker, "--list", "--principal", principal),
        acl_command(
            tool_host,
            broker,
            "--list",
            "--topic",
            "payments",
            "--resource-pattern-type",
            "match",
            "--principal",
            principal,
        ),
    ]
    assert printed == PRINTED.setdefault("by the tool", printed)
    assert "operation=WRITE, permissionType=ALLOW" in printed[0]


# The tool's output for the first of the two brokers.
PRINTED: dict[str, list[str]] = {}


# The command line


def run(broker: Broker, *words: str, status: int = 0) -> str:
    done = CliRunner().invoke(group, ["acls", *words, "-b", broker.bootstrap])
    assert done.exit_code == status, done.output
    return done.output


def test_entries_are_added_listed_and_removed_by_the_command(broker: Broker) -> None:
    added = json.loads(run(broker, "add", "bob", "--consumer", "--topic", "cli", "--json"))
    assert [(each["operation"], each["principal"]) for each in added] == [
        ("read", "User:bob"),
        ("describe", "User:bob"),
    ]
    eventually(lambda: json.loads(run(broker, "list", "bob", "--json")) == added)
    run(broker, "add", "bob", "--deny", "--operation", "all", "--topic", "c", "--prefixed")
    eventually(lambda: len(run(broker, "list", "bob", "--topic", "cli").splitlines()) == 4)
    # The prefixed entry applies to the topic too, but has another pattern.
    run(broker, "remove", "bob", "--topic", "cli")
    eventually(
        lambda: run(broker, "list", "bob", "--no-header") == "topic\tc...\tUser:bob\t*\tall\tdeny\n"
    )
    run(broker, "remove", "bob", "--all")
    eventually(lambda: not run(broker, "list", "bob"))


def test_the_command_names_the_deciding_entry(broker: Broker) -> None:
    run(broker, "add", "eve", "--operation", "write", "--topic", "w-", "--prefixed")
    eventually(lambda: bool(run(broker, "list", "eve")))
    allowed = run(broker, "why", "eve", "describe", "--topic", "w-1")
    assert "allowed, because an entry allows write on topic w-... to User:eve" in allowed
    denied = json.loads(run(broker, "why", "eve", "read", "--topic", "w-1", "--json", status=1))
    assert (denied["allowed"], denied["acl"]) == (False, None)
    run(broker, "remove", "eve", "--all")


def test_invalid_arguments_of_the_command_are_wrong_usage(broker: Broker) -> None:
    assert "name a resource" in run(broker, "add", "eve", "--operation", "read", status=2)
    assert "choose entries" in run(broker, "remove", status=2)
    words = ("add", "eve", "--operation", "create", "--group", "g")
    assert "no operation on a group" in run(broker, *words, status=2)
