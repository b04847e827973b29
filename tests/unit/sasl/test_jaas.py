"""JAAS configurations as users of Kafka write them."""

from __future__ import annotations

import time

import pytest

from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from barnabas.settings.key import ConfigError

KEY = "listener.name.l.plain.sasl.jaas.config"


def test_users_and_the_own_login_are_read() -> None:
    module = parse_jaas(
        KEY,
        f'{PLAIN_MODULE} required username="admin" password="p;=1" '
        "user_admin='p;=1' user_alice=secret;",
    )
    assert module.class_name == PLAIN_MODULE
    assert (module.username, module.password) == ("admin", "p;=1")
    assert module.users() == {"admin": "p;=1", "alice": "secret"}


@pytest.mark.parametrize(
    "text",
    [
        f"{SCRAM_MODULE} required;",
        f"  {SCRAM_MODULE}  REQUIRED ; ",
        f"/* a\ncomment */ {SCRAM_MODULE} sufficient // the rest\n;",
    ],
)
def test_options_may_be_missing(text: str) -> None:
    module = parse_jaas(KEY, text)
    assert (module.class_name, module.options) == (SCRAM_MODULE, {})


def test_escapes_in_quotes_are_resolved() -> None:
    module = parse_jaas(KEY, 'M required a="x\\"y\\\\z" b="line\\n";')
    assert module.options == {"a": 'x"y\\z', "b": "line\n"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "M;",
        "M required",
        "M required password=secret",
        "M maybe password=secret;",
        "M required password=;",
        "M required =secret;",
        "M required password secret;",
        "M required password=secret; M required;",
        'M required password="secret;',
        "M required password=#secret;",
    ],
)
def test_another_form_is_an_error_that_does_not_show_the_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_jaas(KEY, text)
    assert "secret" not in str(caught.value)
    assert caught.value.key == KEY


def test_a_long_text_takes_linear_time() -> None:
    began = time.process_time()
    for text in ("/*" + "*" * 100_000, '"' + "\\" * 100_001, " " * 100_000):
        with pytest.raises(ConfigError):
            parse_jaas(KEY, text)
    assert time.process_time() - began < 5.0
