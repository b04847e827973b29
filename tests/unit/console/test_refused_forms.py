"""Forms on pages of the cluster: a refused one keeps its texts, with the problem at its field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

import barnabas.console
from barnabas.console.connect.addresses import connect_settings
from barnabas.console.settings import ConsoleSettings
from barnabas.serializers import SchemaRegistry
from barnabas.serializers.schema import Schema
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.registry_process import RegistryProcess
from console_in_process import ConsoleInProcess
from unit.console.connect_server import ConnectServer

TEMPLATES = Path(barnabas.console.__file__).parent / "templates"
FORM = re.compile(r'<form method="post".*?</form>', re.DOTALL)
FIELD = re.compile(r"<(?:input|textarea|select) (?:[^>{]|\{\{.*?\}\}|\{%.*?%\})*>", re.DOTALL)
# Forms that are no drafts: the response to a refused one is its page with the same texts.
SHOWN_AGAIN = {"login.html", "schema_draft.html", "connector_form.html"}
SUBJECT = "refused-value"
CONNECTOR = {"cluster": "local", "name": "orders"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleInProcess]:
    """A console of a broker with an authorizer, of a registry and of a Connect cluster."""
    directory = tmp_path_factory.mktemp("refused")
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "controller.quorum.auto.join.enable": "true",
    }
    with (
        BrokerProcess(directory, settings) as broker,
        RegistryProcess(broker.bootstrap, directory / "registry") as registry,
        ConnectServer() as connect,
    ):
        schemas = SchemaRegistry(registry.url)
        schemas.register(SUBJECT, Schema('"string"'))
        connect.add("orders", state="STOPPED", table="orders")
        made = ConsoleSettings(
            broker.bootstrap,
            {},
            interval=3600.0,
            allow_changes=True,
            registry=schemas,
            connect=connect_settings([f"local={connect.url}"], {}),
        )
        with ConsoleInProcess(made) as running:
            running.log_in()
            yield running


REFUSED = {
    "quota": ("/quotas", "/quotas/set", {"user": "eve", "default_ip": "1", "value": "many"}),
    "entry": (
        "/security",
        "/security/acls/add",
        {
            "principal": "eve",
            "permission": "DENY",
            "operation": "DESCRIBE",
            "resource_type": "GROUP",
            "resource_name": "payments",
            "pattern_type": "PREFIXED",
            "host": "10.0.0.7",
        },
    ),
    "user": ("/security", "/security/users/set", {"user": "eve", "mechanism": "SCRAM_SHA_512"}),
    "subscription": (
        "/telemetry",
        "/telemetry/save",
        {"name": "speed", "metrics": "org.example.", "interval": "soon", "match": "client_id=a"},
    ),
    "feature": ("/features", "/features/set", {"feature": "group.version", "level": "high"}),
    "producer": ("/transactions", "/transactions/fence", {"id": "no-such-transactional-id"}),
    "directory": ("/log-dirs", "/log-dirs/move", {"topic": "orders", "partition": "first"}),
    "config": (
        "/broker?id=1",
        "/broker/config",
        {"id": "1", "key": "log.retention.ms", "value": "x"},
    ),
    "subject": (
        f"/schema?subject={SUBJECT}",
        "/schemas/delete",
        {"subject": SUBJECT, "version": "", "permanent": "1", "confirm": "refused-valeu"},
    ),
    "offsets": (
        "/connect/connector?cluster=local&name=orders",
        "/connect/offsets/alter",
        {**CONNECTOR, "offsets": "[{]"},
    ),
    "connector": (
        "/connect/connector?cluster=local&name=orders",
        "/connect/delete",
        {**CONNECTOR, "confirm": "order"},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_form_is_open_and_has_what_was_typed(
    console: ConsoleInProcess, name: str
) -> None:
    page, action, fields = REFUSED[name]
    path, query = urlsplit(page).path, dict(parse_qsl(urlsplit(page).query))
    console.forms_page = page
    shown = console.change(action, **fields).text
    form = form_of(shown, action)
    for field, value in fields.items():
        assert is_kept(form, field, value), (field, value, form)
    assert "notice wrong" in shown
    # The next time, the page is as usual.
    assert " open><summary>" not in console.get(path, **query).text


def test_each_field_of_a_form_shows_again_what_was_typed() -> None:
    wrong, seen = [], 0
    for file in TEMPLATES.glob("*.html"):
        if file.name in SHOWN_AGAIN:
            continue
        for form in FORM.findall(file.read_text()):
            for field in FIELD.findall(form):
                is_typed = not any(f'type="{kind}"' in field for kind in ("hidden", "password"))
                if is_typed and "draft" not in field:
                    wrong.append((file.name, field))
            seen += form.count("inputs.")
    assert seen > 50
    assert wrong == []


def test_a_search_with_a_wrong_length_of_time_keeps_its_form(console: ConsoleInProcess) -> None:
    answer = console.get("/transactions/hanging", age="soon")
    assert answer.status == 400
    field = re.search(r'<input name="age" value="soon"[^>]*aria-invalid="true"[^>]*>', answer.text)
    assert field is not None
    assert "write a length of time such as 90s" in answer.text
    assert "Hanging transactions" in console.get("/transactions/hanging", age="1h").text


def form_of(page: str, action: str) -> str:
    """Return the form with this action; it is within no part of the page that is folded away."""
    form = rf'<form method="post" action="{action}".*?</form>'
    unfolded = rf"<details[^>]* open>(?:(?!</details>).)*?({form})"
    found = re.search(unfolded, page, re.DOTALL)
    assert found is not None, page
    return found[1]


def is_kept(form: str, field: str, value: str) -> bool:
    escaped = re.escape(value.replace("&", "&amp;"))
    return any(
        re.search(pattern, form, re.DOTALL)
        for pattern in (
            rf'<input[^>]*name="{field}"[^>]* value="{escaped}"',
            rf'<input[^>]*name="{field}"[^>]* value="{escaped}" checked',
            rf'<select name="{field}"(?:(?!</select>).)*<option value="{escaped}" selected>',
            rf'<textarea name="{field}"[^>]*>\s*{escaped}</textarea>',
        )
    )
