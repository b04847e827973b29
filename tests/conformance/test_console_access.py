"""Users of the console that the brokers know, and their rights, on both kinds of brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.admin.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.client.facade import Client
from barnabas.console.access.users import LoginSettings, Role
from barnabas.console.settings import ConsoleSettings
from conformance.sasl_brokers import LISTENER, SaslBarnabas, SaslKafka
from console_in_process import ConsoleInProcess

pytestmark = pytest.mark.conformance

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
SECONDS = 60
PUBLIC, SECRET = "orders", "salaries"


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslBarnabas | SaslKafka]:
    """A broker whose users alice and bob have few rights."""
    kind = SaslBarnabas if request.param == "barnabas" else SaslKafka
    running = kind(tmp_path_factory.mktemp("console"), AUTHORIZER)
    running.start()
    try:
        with Client(running.bootstrap, default_api_timeout_ms=SECONDS * 1000) as client:
            for name in (PUBLIC, SECRET):
                client.create_topic(name, 1, 1)
            wanted = [
                entry("alice", AclResourceType.TOPIC, PUBLIC, AclOperation.READ),
                entry("alice", AclResourceType.GROUP, "billing", AclOperation.DESCRIBE),
                entry("bob", AclResourceType.CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
            ]
            client.admin.create_acls(wanted)
            client.commit_offsets("payroll", {(SECRET, 0): 0})
            client.commit_offsets("billing", {(PUBLIC, 0): 0})
        yield running
    finally:
        running.stop()


def entry(user: str, kind: AclResourceType, name: str, operation: AclOperation) -> Acl:
    return Acl(
        resource_type=kind,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=AclPermission.ALLOW,
    )


@pytest.fixture(scope="module")
def console(broker: SaslBarnabas | SaslKafka) -> Iterator[ConsoleInProcess]:
    login = LoginSettings(
        broker_users="PLAIN", acts_as_user=True, roles={"alice": Role.ADMIN, "bob": Role.VIEWER}
    )
    client = {
        "security.protocol": LISTENER,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": "admin-secret",
    }
    settings = ConsoleSettings(
        broker.sasl_bootstrap,
        client,
        allow_changes=True,
        interval=3600.0,
        timeout=SECONDS,
        login=login,
    )
    with ConsoleInProcess(settings) as running:
        running.sample()
        yield running


def log_in(console: ConsoleInProcess, user: str, password: str | None = None) -> int:
    """Log in as a user of the brokers, and return the status."""
    console.cookie = ""
    answer = console.post("/login", user=user, password=password or f"{user}-secret", next="/")
    if answer.status == 303:
        console.cookie = answer.headers["set-cookie"].split(";")[0]
    return answer.status


def test_users_of_the_brokers_log_in_by_their_passwords_and_see_what_their_rights_allow(
    console: ConsoleInProcess,
) -> None:
    assert log_in(console, "alice", "wrong") == 403
    # The console's own rights are not those of a client that is not logged in.
    assert console.get("/topics").status == 303
    assert log_in(console, "alice") == 303
    page = console.get("/topics").text
    assert 'alice <span class="tag">admin' in page
    assert f'name={PUBLIC}"' in page
    assert SECRET not in page
    assert "payroll" not in console.get("/groups").text
    # Samples are taken with the rights of the console, and name all groups.
    assert "payroll" not in console.get("/").text


@pytest.mark.parametrize(
    ("path", "fields", "entry_words"),
    [
        ("/topic", {"name": SECRET}, f"--operation describe --topic {SECRET}"),
        ("/group", {"id": "payroll"}, "--operation describe --group payroll"),
        ("/reassignments", {}, "--operation describe --cluster"),
    ],
)
def test_a_page_without_a_right_names_the_entry_that_would_help(
    console: ConsoleInProcess, path: str, fields: dict[str, str], entry_words: str
) -> None:
    assert log_in(console, "alice") == 303
    answer = console.get(path, **fields)
    assert answer.status == 403
    assert f"barnabas acls add User:alice {entry_words}" in answer.text


def test_parts_of_a_page_without_a_right_say_so_and_the_others_are_shown(
    console: ConsoleInProcess,
) -> None:
    assert log_in(console, "alice") == 303
    topic = console.get("/topic", name=PUBLIC)
    assert topic.status == 200
    assert "TOPIC_AUTHORIZATION_FAILED" in topic.text
    assert "Partitions" in topic.text
    assert "billing" in topic.text
    security = console.get("/security")
    assert security.status == 200
    assert "CLUSTER_AUTHORIZATION_FAILED" in security.text


def test_a_change_that_the_brokers_refuse_names_the_entry_and_is_in_the_audit_log(
    console: ConsoleInProcess,
) -> None:
    assert log_in(console, "alice") == 303
    token = console.get("/audit").csrf
    answer = console.post("/topics/create", csrf=token, here="/audit", name="mine")
    assert answer.headers["location"] == "/audit"
    page = console.get("/audit").text
    assert "barnabas acls add User:alice --operation create --topic mine" in page
    newest = console.console.shared.audit.entries[0]
    assert (newest["user"], newest["source"], newest["result"]) == ("alice", "broker", "failed")


def test_a_viewer_gets_no_forms_and_403_with_the_missing_role(console: ConsoleInProcess) -> None:
    assert log_in(console, "bob") == 303
    page = console.get("/topics")
    assert "/topics/new" not in page.text
    token = console.get("/audit").csrf
    answer = console.post("/topics/create", csrf=token, here="/", name="mine")
    assert answer.status == 403
    assert "bob is viewer, and this change needs the role operator" in answer.text


def test_a_topic_and_a_group_that_do_not_exist_are_404(console: ConsoleInProcess) -> None:
    assert log_in(console, "admin") == 303
    assert console.get("/topic", name="absent").status == 404
    assert console.get("/group", id="absent").status == 404


def test_a_broker_without_the_console_s_rights_gives_403_for_the_console_too(
    broker: SaslBarnabas | SaslKafka,
) -> None:
    client = {
        "security.protocol": LISTENER,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "bob-secret",
    }
    settings = ConsoleSettings(broker.sasl_bootstrap, client, interval=3600.0, timeout=SECONDS)
    with ConsoleInProcess(settings) as running:
        answer = running.get("/topic", name=PUBLIC)
        assert answer.status == 403
        assert f"acls add User:bob --operation describe --topic {PUBLIC}" in answer.text
        assert running.get("/").status == 200
