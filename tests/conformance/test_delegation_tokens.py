"""Delegation tokens of clients, of Kafka's own tool and of `barnabas tokens`, on each broker.

The brokers have an authorizer. `admin` has all rights; `alice` and `bob` have no rights.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.client.admin.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType
from barnabas.client.admin.credentials import DelegationToken
from barnabas.client.errors import BrokerError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.protocol.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from conformance.cli_shell import Shell
from conformance.raw_client import RawClient
from conformance.sasl_brokers import SaslBarnabas, SaslKafka
from conformance.token_logins import by_token, plain
from jvm.tool_host import ToolHost
from waiting import eventually

Broker = SaslBarnabas | SaslKafka
SETTINGS = {
    "delegation.token.secret.key": "a secret of the brokers",
    "delegation.token.expiry.check.interval.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    kind = SaslKafka if request.param == "kafka" else SaslBarnabas
    made = kind(directory, SETTINGS)
    made.start()
    try:
        # Apache Kafka opens this listener after the other one.
        eventually(lambda: is_open(made))
        yield made
    finally:
        made.kill()


def is_open(broker: Broker) -> bool:
    try:
        RawClient(broker.sasl_bootstrap).close()
    except ConnectionRefusedError:
        return False
    return True


def admin_of(broker: Broker, properties: dict[str, str]) -> barnabas.Admin:
    return barnabas.Admin(broker.sasl_bootstrap, **properties)


def file_of(directory: Path, properties: dict[str, str]) -> str:
    path = directory / f"client-{uuid.uuid4().hex[:8]}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def error_of(call: Callable[[], object]) -> int:
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.error_code


def is_known(admin: barnabas.Admin, token: DelegationToken) -> bool:
    """Return whether the broker lists the token, so that clients can log in by it."""
    return token.token_id in [each.token_id for each in admin.describe_delegation_tokens()]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_by_a_token_and_is_its_owner(broker: Broker, mechanism: str) -> None:
    with admin_of(broker, plain("admin")) as admin:
        token = admin.create_delegation_token(["User:bob"])
        assert (token.owner, token.requester, token.renewers) == (
            "User:admin",
            "User:admin",
            ("User:bob",),
        )
        assert token.max_timestamp - token.issue_timestamp == 7 * 24 * HOUR_MS
        assert token.expiry_timestamp - token.issue_timestamp == 24 * HOUR_MS
        eventually(lambda: is_known(admin, token))
        topic = f"token-{uuid.uuid4().hex[:8]}"
        with admin_of(broker, by_token(token.token_id, token.hmac, mechanism)) as own:
            # Only the super user may create topics.
            own.create_topics([barnabas.NewTopic(topic, 1, 1)])
            not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert error_of(own.create_delegation_token) == not_allowed
            assert error_of(own.describe_delegation_tokens) == not_allowed
            assert error_of(lambda: own.renew_delegation_token(token.hmac)) == not_allowed
            assert error_of(lambda: own.expire_delegation_token(token.hmac)) == not_allowed
        admin.expire_delegation_token(token.hmac)


def test_unknown_tokens_and_wrong_hmacs_are_refused(broker: Broker) -> None:
    with admin_of(broker, plain("alice")) as admin:
        token = admin.create_delegation_token()
        eventually(lambda: is_known(admin, token))
    for properties in (
        by_token(token.token_id, b"wrong"),
        by_token("no-such-token", token.hmac),
        # Without tokenauth, the name is that of a user.
        {
            key: value.replace('tokenauth="true"', "")
            for key, value in by_token(token.token_id, token.hmac).items()
        },
    ):
        with pytest.raises(barnabas.AuthenticationError), admin_of(broker, properties) as other:
            other.describe_cluster()


def raw_of(broker: Broker, name: str | None) -> RawClient:
    """Return a connection of a user of PLAIN; without a name, to the open listener."""
    if name is None:
        return RawClient(broker.bootstrap)
    raw = RawClient(broker.sasl_bootstrap)
    assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    message = f"\0{name}\0{name}-secret".encode()
    assert raw.ask(SaslAuthenticateRequest(auth_bytes=message), 2).error_code == 0
    return raw


def creating(
    owner: tuple[str | None, str | None] | None = None, renewer: str | None = None
) -> CreateDelegationTokenRequest:
    renewers = (
        [] if renewer is None else [CreatableRenewers(principal_type=renewer, principal_name="x")]
    )
    request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = owner
    return request


MISMATCH = int(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
REFUSED = int(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
NOT_ALLOWED = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
WRONG_TYPE = int(ErrorCode.INVALID_PRINCIPAL_TYPE)


REFUSED_CREATIONS = [
    (None, None, None, NOT_ALLOWED),
    (None, ("User", "bob"), "Group", NOT_ALLOWED),
    ("alice", ("User", "bob"), "Group", REFUSED),
    ("alice", ("Group", "bob"), None, REFUSED),
    ("alice", ("User", "alice"), "Group", WRONG_TYPE),
    ("alice", (None, None), "Group", WRONG_TYPE),
    ("alice", ("", ""), "", WRONG_TYPE),
    ("alice", (None, "bob"), None, int(ErrorCode.UNKNOWN_SERVER_ERROR)),
]


@pytest.mark.parametrize(
    ("version", "name", "owner", "renewer", "error"),
    [
        (version, *row)
        for row in REFUSED_CREATIONS
        for version in (1, 2, 3)
        # Requests before version 3 have no owner.
        if version == 3 or row[1] is None
    ],
)
def test_a_refused_creation_has_the_complete_response_of_kafka(
    broker: Broker,
    version: int,
    name: str | None,
    owner: tuple[str | None, str | None] | None,
    renewer: str | None,
    error: int,
) -> None:
    raw = raw_of(broker, name)
    try:
        response: Any = raw.ask(creating(owner, renewer), version)
    finally:
        raw.close()
    user = ("User", name or "ANONYMOUS")
    token_owner = owner if owner is not None and owner[1] else user
    if error == ErrorCode.UNKNOWN_SERVER_ERROR:
        user = token_owner = ("User", "ANONYMOUS")
    assert response.error_code == error
    assert (response.principal_type, response.principal_name) == token_owner
    requester = (response.token_requester_principal_type, response.token_requester_principal_name)
    assert requester == (user if version >= 3 else ("", ""))
    times = response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms
    assert times == (-1, -1, -1)
    assert (response.token_id, bytes(response.hmac)) == ("", b"")


def test_each_wrong_request_for_a_token_has_kafkas_error_and_expiry(broker: Broker) -> None:
    admin, alice, bob = raw_of(broker, "admin"), raw_of(broker, "alice"), raw_of(broker, "bob")
    anonymous = raw_of(broker, None)
    try:
        made: Any = alice.ask(creating(), 3)
        secret = bytes(made.hmac)

        def renew(raw: RawClient, hmac: bytes, period: int = -1) -> tuple[int, int]:
            done: Any = raw.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period), 2)
            return done.error_code, done.expiry_timestamp_ms

        def expire(raw: RawClient, hmac: bytes, period: int = -1) -> tuple[int, int]:
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period)
            done: Any = raw.ask(request, 2)
            return done.error_code, done.expiry_timestamp_ms

        def is_listed() -> bool:
            described: Any = alice.ask(DescribeDelegationTokenRequest(owners=None), 3)
            assert described.error_code == 0
            return made.token_id in [each.token_id for each in described.tokens]

        eventually(is_listed)
        assert renew(alice, secret)[0] == 0
        for change in (renew, expire):
            assert change(anonymous, secret) == (NOT_ALLOWED, -1)
            assert change(alice, b"") == (int(ErrorCode.DELEGATION_TOKEN_NOT_FOUND), 0)
            # Not even the super user may change the tokens of others.
            assert change(admin, secret) == (MISMATCH, 0)
            assert change(bob, secret) == (MISMATCH, 0)
        assert renew(alice, secret, 1 << 62)[1] <= made.max_timestamp_ms
        assert expire(alice, secret, (1 << 63) - 1) == (0, made.max_timestamp_ms)
        before_ms = time.time_ns() // 1_000_000
        error, expired_ms = expire(alice, secret, -42)
        assert error == 0
        assert before_ms <= expired_ms <= time.time_ns() // 1_000_000
        # A renewal before Kafka has applied the expiry would make the token live on.
        eventually(lambda: not is_listed())
        assert renew(alice, secret) == (int(ErrorCode.DELEGATION_TOKEN_NOT_FOUND), 0)
        listed: Any = anonymous.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert (listed.error_code, listed.tokens) == (NOT_ALLOWED, [])
        listed = alice.ask(DescribeDelegationTokenRequest(owners=[]), 3)
        assert (listed.error_code, listed.tokens) == (0, [])
    finally:
        for raw in (admin, alice, bob, anonymous):
            raw.close()


def test_tokens_of_others_need_rights(broker: Broker) -> None:
    allow, user = AclPermission.ALLOW, AclResourceType.USER
    with admin_of(broker, plain("admin")) as admin, admin_of(broker, plain("bob")) as bob:
        acl = Acl(user, "User:alice", "User:bob", AclOperation.CREATE_TOKENS, allow)
        admin.create_acls([acl])
        found: list[DelegationToken] = []

        def create() -> bool:
            try:
                found.append(bob.create_delegation_token(owner="User:alice"))
            except BrokerError as error:
                # The broker does not have the entry yet.
                return error.error_code != REFUSED
            return True

        eventually(create)
        (token,) = found
        assert (token.owner, token.requester) == ("User:alice", "User:bob")
        # The requester sees the token, but may not change it.
        eventually(lambda: is_known(bob, token))
        assert error_of(lambda: bob.renew_delegation_token(token.hmac)) == MISMATCH
        own = admin.create_delegation_token()
        eventually(lambda: is_known(admin, own))
        assert not is_known(bob, own)
        one = Acl(
            AclResourceType.DELEGATION_TOKEN,
            own.token_id,
            "User:bob",
            AclOperation.DESCRIBE,
            allow,
        )
        admin.create_acls([one])
        eventually(lambda: is_known(bob, own))
        (shown,) = bob.describe_delegation_tokens(["User:admin"])
        assert shown == own
        admin.delete_acls([AclFilter(principal="User:bob")])
        eventually(lambda: not is_known(bob, own))
        admin.create_acls(
            [Acl(user, "User:admin", "User:bob", AclOperation.DESCRIBE_TOKENS, allow)]
        )
        eventually(lambda: is_known(bob, own))
        admin.delete_acls([AclFilter(principal="User:bob")])
        admin.expire_delegation_token(own.hmac)


def test_an_expired_token_is_removed_and_ends_the_session(broker: Broker) -> None:
    with admin_of(broker, plain("alice")) as admin:
        token = admin.create_delegation_token(max_lifetime_ms=4_000)
        assert token.max_timestamp - token.issue_timestamp == 4_000
        eventually(lambda: is_known(admin, token))
        with admin_of(broker, by_token(token.token_id, token.hmac)) as own:
            own.describe_cluster()
            eventually(lambda: not is_known(admin, token), within_s=20)
            time.sleep(0.2)
            with pytest.raises(barnabas.AuthenticationError):
                own.describe_cluster()
        gone = int(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        assert error_of(lambda: admin.renew_delegation_token(token.hmac)) == gone


def test_kafkas_own_tool_and_a_java_client_use_tokens(
    broker: Broker, tool_host: ToolHost, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", broker.sasl_bootstrap)
    config = ("--command-config", file_of(tmp_path, plain("admin")))

    def tool(*words: str) -> str:
        done = tool_host.run("DelegationTokenCommand", *server, *config, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    created = tool(
        "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob",
    )  # fmt: skip
    row = next(line for line in created.splitlines() if "User:admin" in line).split()
    token_id, secret = row[0], base64.b64decode(row[1])
    eventually(lambda: token_id in tool("--describe", "--owner-principal", "User:admin"))
    renewed = tool("--renew", "--renew-time-period", "-1", "--hmac", row[1])
    assert "Completed renew operation" in renewed
    login = file_of(tmp_path, by_token(token_id, secret, "SCRAM-SHA-512"))
    topic = f"java-{uuid.uuid4().hex[:8]}"
    words = (*server, "--command-config", login, "--create", "--topic", topic)
    done = tool_host.run("TopicCommand", *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    expired = tool("--expire", "--expiry-time-period", "-1", "--hmac", row[1])
    assert "Completed expire operation" in expired
    eventually(lambda: token_id not in tool("--describe"))


def test_the_command_creates_lists_renews_and_expires_tokens(
    broker: Broker, tmp_path: Path
) -> None:
    shell = Shell(broker.sasl_bootstrap)
    login = ("--config-file", file_of(tmp_path, plain("admin")))
    made = shell.json("tokens", "create", "--renewer", "User:bob", "--lifetime", "2h", *login)
    token_id, secret = made["token_id"], made["hmac"]
    assert made["max_timestamp"] - made["issue_timestamp"] == 2 * HOUR_MS

    def listed() -> list[dict[str, Any]]:
        found = shell.json("tokens", "list", "--owner", "User:admin", *login)
        return [each for each in found if each["token_id"] == token_id]

    eventually(lambda: len(listed()) == 1)
    (shown,) = listed()
    assert "hmac" not in shown
    assert shown["renewers"] == ["User:bob"]
    text = shell.run_in_process("tokens", "list", *login)
    assert token_id in text.stdout
    assert secret not in text.stdout
    renewed = shell.run_in_process(
        "tokens", "renew", "--hmac-file", "-", *login, stdin=f"{secret}\n"
    )
    assert renewed.returncode == 0, renewed.stderr
    missing = shell.run_in_process("tokens", "expire", "--hmac-file", "-", *login, stdin="AAAA\n")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "DELEGATION_TOKEN_NOT_FOUND" in missing.stderr
    expired = shell.run_in_process(
        "tokens", "expire", "--hmac-file", "-", *login, stdin=f"{secret}\n"
    )
    assert expired.returncode == 0, expired.stderr
    eventually(lambda: not listed())
