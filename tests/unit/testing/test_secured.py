"""The settings of users, and the lines of the option `kafka_users`."""

from __future__ import annotations

import pytest

from barnabas.sasl.jaas import parse_jaas
from barnabas.testing import KafkaUser
from barnabas.testing.secured import KafkaUsers, parse_user


def test_a_password_with_quotes_reaches_java_unchanged() -> None:
    user = KafkaUser("ann", 'a "quoted\\ word', "127.0.0.1:1", "/ca.pem")
    module = parse_jaas("sasl.jaas.config", user.java["sasl.jaas.config"])
    assert (module.username, module.password) == (user.name, user.password)


def test_a_line_names_rights_groups_and_a_password() -> None:
    line = "ann: produce orders, produce ledger-*, consume events, group g, password s3cret"
    assert parse_user(line) == (
        "ann",
        {
            "produce": ["orders", "ledger-*"],
            "consume": ["events"],
            "groups": ["g"],
            "password": "s3cret",
        },
    )
    assert parse_user("bob:") == ("bob", {"produce": [], "consume": []})


@pytest.mark.parametrize(
    "line", ["ann", ": produce orders", "ann: produce", "ann: produce a b", "ann: read a"]
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"missing|is not one of"):
        parse_user(line)


def test_the_error_of_an_unknown_user_names_the_option() -> None:
    ann = KafkaUser("ann", "ann-secret", "127.0.0.1:1", "/ca.pem")
    users = KafkaUsers(ann=ann)
    assert users["ann"] is ann
    with pytest.raises(KeyError, match=r"no user bob: .* kafka_users in pytest\.ini"):
        users["bob"]
