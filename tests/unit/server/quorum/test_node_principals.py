"""The principals of nodes at each other's listeners, and whether they are super users."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.server.configs.configuration import Configuration, read_configuration
from barnabas.server.quorum.node_principals import refusal_reason, refused_principals

OPEN = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@h1:9094,2@h2:9094,3@h3:9094",
    "controller.listener.names": "CONTROLLER",
    "listeners": "INTERNAL://127.0.0.1:9093,CONTROLLER://127.0.0.1:9094",
    "inter.broker.listener.name": "INTERNAL",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:node",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def configuration(internal: str, controller: str, **more: str) -> Configuration:
    protocols = f"INTERNAL:{internal},CONTROLLER:{controller}"
    return read_configuration(
        {
            **OPEN,
            "listener.security.protocol.map": protocols,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
    )


def sasl(user: str) -> dict[str, str]:
    text = f'{PLAIN} username="{user}" password="p" user_{user}="p";'
    return {
        "sasl__enabled__mechanisms": "PLAIN",
        "sasl__mechanism__inter__broker__protocol": "PLAIN",
        "sasl__mechanism__controller__protocol": "PLAIN",
        "listener__name__internal__plain__sasl__jaas__config": text,
        "listener__name__controller__plain__sasl__jaas__config": text,
    }


def found(made: Configuration) -> list[tuple[str, str, bool]]:
    return [
        (each.listener, each.principal, each.is_controller) for each in refused_principals(made)
    ]


def test_nodes_without_authentication_are_anonymous() -> None:
    assert found(configuration("PLAINTEXT", "PLAINTEXT")) == [
        ("CONTROLLER", "User:ANONYMOUS", True),
        ("INTERNAL", "User:ANONYMOUS", False),
    ]


def test_nodes_that_are_super_users_are_not_refused() -> None:
    super_users = {"super__users": "User:admin;User:ANONYMOUS"}
    assert found(configuration("PLAINTEXT", "PLAINTEXT", **super_users)) == []
    assert found(configuration("SASL_PLAINTEXT", "SASL_PLAINTEXT", **sasl("node"))) == []


def test_a_user_that_is_no_super_user_is_named() -> None:
    assert found(configuration("SASL_PLAINTEXT", "SASL_PLAINTEXT", **sasl("other"))) == [
        ("CONTROLLER", "User:other", True),
        ("INTERNAL", "User:other", False),
    ]


def test_without_an_authorizer_or_other_nodes_nothing_is_refused() -> None:
    assert found(configuration("PLAINTEXT", "PLAINTEXT", authorizer__class__name="")) == []
    alone = {
        key: value for key, value in OPEN.items() if key.startswith(("authorizer", "super", "node"))
    }
    assert found(read_configuration(alone)) == []


@pytest.mark.parametrize(
    "error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_refusal_names_the_principal_and_the_remedy(error: ErrorCode) -> None:
    text = refusal_reason(configuration("PLAINTEXT", "PLAINTEXT"), error)
    assert error.name in text
    assert "At their listener CONTROLLER (PLAINTEXT) this node is the principal User:ANON" in text
    assert "it must be in super.users of all nodes" in text


def test_other_errors_are_no_refusals() -> None:
    made = configuration("PLAINTEXT", "PLAINTEXT")
    assert refusal_reason(made, ErrorCode.NONE) == ""
    assert refusal_reason(made, ErrorCode.NOT_CONTROLLER) == ""
    # Super users need no access control entries, so that this error has another reason.
    known = configuration("PLAINTEXT", "PLAINTEXT", super__users="User:ANONYMOUS")
    assert refusal_reason(known, ErrorCode.UNKNOWN_SERVER_ERROR) == ""
