"""`barnabas start --registry` with TLS, logins and rights: each refusal, and what is allowed.

The keys are those of docs/security.md, with other stores and mechanisms.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema as ConfluentSchema, SchemaRegistryClient

from barnabas.cli.group import group
from barnabas.client.admin.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.client.admin.admin import Admin
from barnabas.sasl.jaas import PLAIN_MODULE
from barnabas.serializers import SchemaRegistry
from barnabas.testing.free_ports import HOST, free_ports
from certificates import shared_authority
from conformance.sasl_brokers import LISTENER, SaslBarnabas
from registry_requests import QUICK_GROUPS, exchange
from waiting import eventually

STRING = {"schema": '"string"'}
PREFIX = "barnabas.registry"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
REGISTRY_LOGIN = f'{PLAIN_MODULE} required username="admin" password="admin-secret";'


class SecuredRegistry(SaslBarnabas):
    """A broker with ACLs and its registry, whose clients log in over TLS."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"https://{HOST}:{port}"
        authority = shared_authority()
        self._key_store = authority.issue("CN=registry").write_pem(directory / "registry.pem")
        self._trust = ssl.create_default_context(cadata=authority.pem)
        super().__init__(directory, {**QUICK_GROUPS, **AUTHORIZER})

    def prepare(self) -> None:
        """Write server.properties with the keys of the registry."""
        super().prepare()
        client = f"{PREFIX}.kafkastore"
        lines = [
            f"{PREFIX}.listener={self.url}",
            f"{PREFIX}.ssl.keystore.type=PEM",
            f"{PREFIX}.ssl.keystore.location={self._key_store}",
            f"{client}.bootstrap.servers={self.sasl_bootstrap}",
            f"{client}.security.protocol={LISTENER}",
            f"{client}.sasl.mechanism=PLAIN",
            f"{client}.sasl.jaas.config={REGISTRY_LOGIN}",
        ]
        with self._properties.open("a") as file:
            file.write("\n".join(lines) + "\n")

    def _read_after_ready(self, deadline: float) -> None:
        assert self._read_line(deadline) == f"registry {self.url}/"

    def request(
        self, method: str, path: str, body: object = None, authorization: str | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        headers = {"Content-Type": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        return exchange(method, self.url + path, body, headers, self._trust)

    def as_user(self, user: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        status, answer, _ = self.request(method, path, body, basic(user, f"{user}-secret"))
        return status, answer


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRegistry]:
    with SecuredRegistry(tmp_path_factory.mktemp("secured")) as registry:
        yield registry


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Basic",
        "Basic ???",
        basic("", ""),
        basic("alice", "wrong"),
        basic("unknown", "alice-secret"),
        "Bearer not-a-token",
        "Digest x",
    ],
)
def test_a_client_without_a_valid_login_is_refused(
    secured: SecuredRegistry, authorization: str | None
) -> None:
    status, answer, headers = secured.request("GET", "/subjects", authorization=authorization)
    assert (status, answer) == (401, {"error_code": 40101, "message": "Unauthorized"})
    assert headers["www-authenticate"] == 'Basic realm="schema registry"'


def test_a_user_without_rights_sees_and_changes_nothing(secured: SecuredRegistry) -> None:
    registered = secured.as_user("admin", "POST", "/subjects/secret-value/versions", STRING)
    assert registered[0] == 200
    number = registered[1]["id"]
    assert secured.as_user("bob", "GET", "/subjects") == (200, [])
    assert secured.as_user("bob", "GET", "/schemas") == (200, [])
    status, answer = secured.as_user("bob", "GET", f"/schemas/ids/{number}")
    assert (status, answer["error_code"]) == (404, 40403)
    for method, path, body in (
        ("GET", "/subjects/secret-value/versions", None),
        ("GET", "/subjects/secret-value/versions/1", None),
        ("POST", "/subjects/secret-value", STRING),
        ("POST", "/subjects/secret-value/versions", STRING),
        ("POST", "/compatibility/subjects/secret-value/versions", STRING),
        ("DELETE", "/subjects/secret-value", None),
        ("DELETE", "/subjects/secret-value/versions/1", None),
        ("GET", "/config/secret-value", None),
        ("PUT", "/config/secret-value", {"compatibility": "NONE"}),
        ("DELETE", "/config/secret-value", None),
        ("PUT", "/config", {"compatibility": "NONE"}),
        ("GET", "/mode/secret-value", None),
        ("PUT", "/mode", {"mode": "READONLY"}),
        ("DELETE", "/mode/secret-value", None),
    ):
        status, answer = secured.as_user("bob", method, path, body)
        assert (status, answer["error_code"]) == (403, 40301), (method, path)


def test_entries_for_a_topic_cover_its_subjects(secured: SecuredRegistry) -> None:
    with Admin(secured.bootstrap) as admin:
        admin.create_acls([
            Acl(
                AclResourceType.TOPIC,
                "orders",
                "User:alice",
                operation,
                AclPermission.ALLOW,
                pattern_type=PatternType.PREFIXED,
            )
            for operation in (AclOperation.READ, AclOperation.WRITE)
        ])  # fmt: skip

    def registered() -> bool:
        path = "/subjects/orders-value/versions"
        return secured.as_user("alice", "POST", path, STRING)[0] == 200

    eventually(registered)
    assert secured.as_user("alice", "GET", "/subjects") == (200, ["orders-value"])
    status, answer = secured.as_user("alice", "GET", "/subjects/orders-value/versions/latest")
    assert (status, answer["schema"]) == (200, '"string"')
    number = answer["id"]
    assert secured.as_user("alice", "GET", f"/schemas/ids/{number}")[0] == 200
    for method, path in (
        ("DELETE", "/subjects/orders-value"),
        ("GET", "/config/orders-value"),
        ("GET", "/subjects/other-value/versions"),
        ("GET", "/config"),
    ):
        status, answer = secured.as_user("alice", method, path)
        assert (status, answer["error_code"]) == (403, 40301), path


def test_clients_log_in_with_their_usual_settings(secured: SecuredRegistry, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text(shared_authority().pem)
    theirs = SchemaRegistryClient(
        {
            "url": secured.url,
            "ssl.ca.location": str(ca_file),
            "basic.auth.user.info": "admin:admin-secret",
        }
    )
    number = theirs.register_schema("settings-value", ConfluentSchema('"string"', "AVRO"))
    ours = SchemaRegistry(secured.url, user_info="admin:admin-secret", ca_file=str(ca_file))
    assert ours.latest("settings-value").schema_id == number
    words = ["schemas", "get", "settings-value", "--registry", secured.url]
    words += ["-X", f"schema.registry.ssl.ca.location={ca_file}"]
    login = "schema.registry.basic.auth.user.info=admin:{}"
    done = CliRunner().invoke(group, [*words, "-X", login.format("admin-secret")])
    assert done.stdout == '"string"\n', done.output
    done = CliRunner().invoke(group, [*words, "-X", login.format("wrong")])
    assert done.exit_code == 1
    assert "status 401: Unauthorized. Check the user and the password" in done.output
