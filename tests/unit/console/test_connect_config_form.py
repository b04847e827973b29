"""Configs of connectors: which values are secrets, and what a form gives back."""

from __future__ import annotations

import pytest

from barnabas.console.connect.config_form import (
    MASK,
    config_changes,
    config_form,
    secret_names,
    shown_value,
    submitted_config,
)
from barnabas.console.connect.rest import CheckedConfig, Definition, Validation, Value
from barnabas.console.forms import Fields, FormError

DECLARED = secret_names([Definition("pin", "PASSWORD"), Definition("table")])


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("pin", "1234", MASK),
        ("table", "orders", "orders"),
        ("connection.password", "x", MASK),
        ("transforms.a.api.key", "x", MASK),
        ("sasl.jaas.config", "x", MASK),
        ("aws.secret.access.key", "x", MASK),
        ("ssl.keystore.passwd", "x", MASK),
        ("basic.auth.user.info", "joe:pw", MASK),
        ("pin", "${vault:pins:one}", "${vault:pins:one}"),
        ("pin", "", ""),
        ("pin", "${a:b}x", MASK),
        ("connection.url", "jdbc:db://joe:pw@host:1/d", f"jdbc:db://joe:{MASK}@host:1/d"),
        ("connection.url", "http://host/a@b:c", "http://host/a@b:c"),
        ("key.converter", "StringConverter", "StringConverter"),
        ("tokenizer", "words", "words"),
    ],
)
def test_secrets_are_masked(name: str, value: str, shown: str) -> None:
    assert shown_value(name, value, DECLARED) == shown


def test_a_form_gives_back_secrets_and_drops_empty_fields() -> None:
    present = {"pin": "1234", "url": "x://joe:pw@h"}
    form = Fields(
        [
            ("cluster", "local"),
            ("config.pin", MASK),
            ("config.table", "  orders "),
            ("config.mode", ""),
            ("configs", f"# comment\n\nurl = x://joe:{MASK}@h\na=b=c"),
        ]
    )
    found = submitted_config(form, present, DECLARED)
    assert found == {"pin": "1234", "table": "orders", "url": "x://joe:pw@h", "a": "b=c"}


@pytest.mark.parametrize(
    "field",
    [("configs", "no pair"), ("config.table", MASK), ("config.pin", f"x{MASK}"), ("configs", "=x")],
)
def test_a_malformed_form_is_refused(field: tuple[str, str]) -> None:
    with pytest.raises(FormError):
        submitted_config(Fields([field]), {"pin": "1234", "table": "orders"}, DECLARED)


def test_changes_name_what_is_new_gone_and_different() -> None:
    before = {"a": "1", "b": "2", "pin": "old", "same": "x"}
    after = {"a": "3", "c": "4", "pin": "new", "same": "x"}
    assert config_changes(before, after, DECLARED) == [
        ("a", "1", "3"),
        ("b", "2", ""),
        ("c", "", "4"),
        ("pin", MASK, f"{MASK} (changed)"),
    ]


def checked(name: str, *errors: str, visible: bool = True, **more: object) -> CheckedConfig:
    found = Definition(name, **more)  # type: ignore[arg-type] # the fields of a definition
    return CheckedConfig(found, Value(name, errors=errors, visible=visible))


def test_the_groups_of_the_plug_in_come_first_with_required_fields_in_front() -> None:
    configs = (
        checked("name"),
        checked("connector.class"),
        checked("tasks.max", group="Common", importance="HIGH"),
        checked("optional", group="Database", order_in_group=1, importance="HIGH"),
        checked("needed", group="Database", order_in_group=2, required=True),
        checked("rare", group="Database", order_in_group=3),
        checked("own"),
    )
    validation = Validation(groups=("Common", "Database"), configs=configs)
    form = config_form(validation, {"own": "1", "extra": "2"}, errors=True)
    assert [group.name for group in form.groups] == ["Database", "Plug-in", "Common"]
    database = form.groups[0]
    assert [each.definition.name for each in database.main] == ["needed", "optional"]
    assert [each.definition.name for each in database.more] == ["rare"]
    assert form.others == "extra=2"


def test_errors_of_configs_without_a_field_are_shown_above_the_form() -> None:
    validation = Validation(error_count=1, configs=(checked("hidden", "is wrong", visible=False),))
    assert config_form(validation, {}, errors=True).errors == ("hidden: is wrong",)
    assert config_form(validation, {}, errors=False).errors == ()
