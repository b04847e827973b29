"""The console's pages of Kafka Connect, with a small Connect cluster and without a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from barnabas.console.connect.addresses import connect_of_clusters, connect_settings
from barnabas.console.connect.config_form import MASK
from barnabas.console.settings import ConsoleSettings
from console_in_process import NO_BROKER, ConsoleInProcess, table_rows
from unit.console.connect_server import SINK, ConnectServer, task

NOWHERE = "127.0.0.1:1"
HOSTILE = '"><script>alert(1)</script>\u202e'
OF_LOCAL = {"cluster": "local", "name": "orders"}
CONFIRMED = {**OF_LOCAL, "confirm": "orders", "confirmed": "1"}
PIN = "the-pin-1234"


@pytest.fixture
def connect() -> Iterator[ConnectServer]:
    with ConnectServer() as server:
        server.add("orders", table="orders", pin=PIN)
        yield server


@pytest.fixture
def console(connect: ConnectServer) -> Iterator[ConsoleInProcess]:
    properties = {"local.basic.auth.user.info": "joe:hidden-login"}
    clusters = connect_settings([f"local={connect.url}", "gone=http://127.0.0.1:1"], properties)
    settings = ConsoleSettings(
        NOWHERE, NO_BROKER, allow_changes=True, timeout=2.0, connect=clusters, interval=3600.0
    )
    with ConsoleInProcess(settings) as running:
        running.log_in()
        # The first page needs a broker.
        running.forms_page = "/connect/form?cluster=local"
        yield running


def test_the_connectors_of_all_clusters_are_listed(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    connect.add(HOSTILE, tasks=[task(0), task(1, "java.lang.Boom: no disk\n\tat a.B.c")])
    page = console.get("/connect").text
    rows = table_rows(page)
    assert rows["orders"]["State"] == "running"
    assert rows["orders"]["Tasks that run"] == "1 of 1"
    assert "failed" in page
    assert "1 of 2" in page
    assert "<script>alert" not in page
    assert "Connect cluster gone was not reached" in page
    assert rows["local"]["Workers with tasks"] == "worker-1:8083"
    assert rows[SINK]["Type"] == "sink"


def test_the_list_is_filtered_and_sorted(console: ConsoleInProcess, connect: ConnectServer) -> None:
    connect.add("broken", state="FAILED")
    assert "orders</a>" not in console.get("/connect", q="failed").text
    assert "broken</a>" in console.get("/connect", q="failed").text
    page = console.get("/connect", sort="-name").text
    assert page.index("orders</a>") < page.index("broken</a>")


def test_a_console_without_connect_says_how_to_add_it() -> None:
    with ConsoleInProcess(ConsoleSettings(NOWHERE, NO_BROKER, timeout=1.0)) as running:
        assert "--connect" in running.get("/connect").text
        missing = running.get("/connect/connector", cluster="x", name="y")
        assert missing.status == 404


def test_a_reader_cannot_make_a_plug_in_check_a_config(connect: ConnectServer) -> None:
    clusters = connect_settings([f"local={connect.url}"], {})
    settings = ConsoleSettings(NOWHERE, NO_BROKER, timeout=1.0, connect=clusters)
    with ConsoleInProcess(settings) as running:
        assert running.get("/connect/form", **OF_LOCAL).status == 403
        assert "Edit the config" not in running.get("/connect/connector", **OF_LOCAL).text
    assert not any("validate" in each for each in connect.requests)


def test_the_page_of_a_connector_hides_secrets_and_folds_traces(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    trace = "java.lang.Boom: no disk\n\tat a.B.c"
    connect.add("orders", tasks=[task(0, trace)], pin=PIN, db_password="pw-2", url="x://u:pw-3@h/d")
    connect.connectors["orders"]["variable.password"] = "${file:/etc/secrets:password}"
    page = console.get("/connect/connector", **OF_LOCAL).text
    for secret in (PIN, "pw-2", "pw-3", "hidden-login"):
        assert secret not in page
    assert table_rows(page)["pin"]["Value"] == "secret"
    assert table_rows(page)["variable.password"]["Value"] == "${file:/etc/secrets:password}"
    assert f"x://u:{MASK}@h/d" in page
    assert "<summary>java.lang.Boom: no disk</summary>" in page
    assert "Restart what failed" in page
    assert re.search(r"<dt>State</dt><dd>\s*<span class=\"tag bad\">failed<", page)


def test_the_tasks_of_a_connector_are_sorted_and_filtered(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    tasks = [
        task(number, f"Boom{number}: no disk" if number % 4 == 3 else "") for number in range(12)
    ]
    connect.add("orders", tasks=tasks)

    def numbers(**fields: object) -> list[str]:
        page = console.get("/connect/connector", **OF_LOCAL, **fields).text
        return [name for name, row in table_rows(page).items() if "Worker" in row]

    assert numbers() == [str(number) for number in range(12)]
    assert numbers(sort="-error")[:3] == ["7", "3", "11"]
    assert numbers(q="boom11") == ["11"]


def test_the_log_in_is_sent_to_its_cluster(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    console.get("/connect")
    assert {each["Authorization"] for each in connect.headers} == {"Basic am9lOmhpZGRlbi1sb2dpbg=="}


@pytest.mark.parametrize(
    ("path", "fields", "request_line"),
    [
        ("state", {"verb": "pause"}, "PUT /connectors/orders/pause"),
        ("state", {"verb": "stop"}, "PUT /connectors/orders/stop"),
        ("restart", {"task": 3}, "POST /connectors/orders/tasks/3/restart"),
        (
            "restart",
            {"failed": 1},
            "POST /connectors/orders/restart?includeTasks=true&onlyFailed=true",
        ),
        ("restart", {}, "POST /connectors/orders/restart?includeTasks=true&onlyFailed=false"),
    ],
)
def test_a_connector_is_paused_stopped_and_restarted(
    console: ConsoleInProcess,
    connect: ConnectServer,
    path: str,
    fields: dict[str, object],
    request_line: str,
) -> None:
    assert console.change(f"/connect/{path}", **OF_LOCAL, **fields).status == 200
    assert request_line in connect.requests


def test_the_form_has_required_fields_first_and_recommended_values(
    console: ConsoleInProcess,
) -> None:
    page = console.get("/connect/form", cluster="local", plugin=SINK).text
    assert page.index('name="config.table"') < page.index('name="config.tasks.max"')
    assert '<option value="insert">' in page
    assert "About table." in page
    assert "a table is missing" not in page
    assert SINK in console.get("/connect/form", cluster="local").text


def test_errors_stand_at_the_fields_and_the_values_stay(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    fields = {"cluster": "local", "plugin": SINK, "is_new": 1, "name": "fresh"}
    given = {"config.mode": "upsert", "configs": "transforms.a.type=Rename"}
    answer = console.post("/connect/save", csrf=console.token, **fields, **given)
    assert answer.status == 200
    assert "found 2 errors" in answer.text
    assert 'id="field-mode-error">mode must be insert' in answer.text
    assert 'value="upsert"' in answer.text
    assert "transforms.a.type=Rename" in answer.text
    assert connect.bodies == []


def test_a_connector_is_created_after_a_preview(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    fields = {
        "cluster": "local", "plugin": SINK, "is_new": 1, "name": "fresh", "config.table": "t",
        "config.pin": PIN, "configs": "# a comment\ntopics=a,b",
    }  # fmt: skip
    assert "Create the connector fresh?" in console.preview("/connect/save", **fields).text
    assert "created fresh" in console.change("/connect/save", **fields, confirmed=1).text
    wanted = {"name": "fresh", "connector.class": SINK, "table": "t", "pin": PIN, "topics": "a,b"}
    assert connect.bodies == [wanted]
    assert "already" in console.change("/connect/save", **fields).text


def test_a_change_keeps_the_secrets_behind_masks(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    form = console.get("/connect/form", **OF_LOCAL).text
    assert PIN not in form
    assert f'value="{MASK}"' in form
    fields = {**OF_LOCAL, "plugin": SINK, "config.table": "other", "config.pin": MASK}
    shown = table_rows(console.preview("/connect/save", **fields).text)
    assert shown == {"table": {"Config": "table", "Now": "orders", "After": "other"}}
    console.change("/connect/save", **fields, confirmed=1)
    assert connect.bodies[-1]["pin"] == PIN
    assert connect.bodies[-1]["table"] == "other"


def test_a_new_secret_is_not_shown_in_the_preview(console: ConsoleInProcess) -> None:
    fields = {**OF_LOCAL, "plugin": SINK, "config.table": "orders", "config.pin": "new-pin"}
    shown = table_rows(console.preview("/connect/save", **fields).text)
    assert shown["pin"]["After"] == f"{MASK} (changed)"


def test_a_mask_for_a_secret_that_does_not_exist_is_refused(console: ConsoleInProcess) -> None:
    fields = {**OF_LOCAL, "plugin": SINK, "config.table": MASK}
    assert "write the whole value" in console.change("/connect/save", **fields).text


def test_a_connector_is_deleted_after_its_name_and_a_preview(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    assert "type orders" in console.change("/connect/delete", **OF_LOCAL, confirm="x").text
    assert "orders" in connect.connectors
    page = console.preview("/connect/delete", **OF_LOCAL, confirm="orders").text
    assert "Its topics, its offsets" in page
    assert "deleted orders" in console.change("/connect/delete", **CONFIRMED).text
    assert connect.connectors == {}


def test_offsets_of_a_stopped_connector_are_moved_after_a_preview(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    partition = {"kafka_topic": "orders", "kafka_partition": 0}
    connect.offsets["orders"] = [{"partition": partition, "offset": {"kafka_offset": 7}}]
    wanted = (
        '[{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, '
        '"offset": {"kafka_offset": 3}}]'
    )
    path = "/connect/offsets/alter"
    assert "stop it first" in console.change(path, **OF_LOCAL, offsets=wanted).text
    console.change("/connect/state", **OF_LOCAL, verb="stop")
    shown = console.preview(path, **OF_LOCAL, offsets=wanted).text
    [row] = table_rows(shown).values()
    assert (row["Now"], row["After"]) == (
        "{&#34;kafka_offset&#34;: 7}",
        "{&#34;kafka_offset&#34;: 3}",
    )
    assert "altered" in console.change(path, **CONFIRMED, offsets=wanted).text
    assert connect.offsets["orders"][0]["offset"] == {"kafka_offset": 3}
    assert "not JSON" in console.change(path, **CONFIRMED, offsets="nonsense").text


def test_offsets_are_removed_after_a_preview(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    connect.offsets["orders"] = [{"partition": {"file": "a"}, "offset": {"line": 7}}]
    connect.states["orders"]["connector"]["state"] = "STOPPED"
    assert "line" in console.preview("/connect/offsets/reset", **OF_LOCAL).text
    assert "reset" in console.change("/connect/offsets/reset", **CONFIRMED).text
    assert connect.offsets["orders"] == []


def test_a_refusal_of_a_worker_is_shown_on_the_page(
    console: ConsoleInProcess, connect: ConnectServer
) -> None:
    connect.refusal = (409, f"rebalance {HOSTILE}")
    page = console.get("/connect")
    assert page.status == 200
    assert "rebalances: try again" in page.text
    assert "<script>alert" not in page.text
    assert console.get("/connect/connector", **OF_LOCAL).status == 502


@pytest.mark.parametrize(
    ("given", "properties", "problem"),
    [
        (["x"], {}, "write NAME=URL"),
        (["x=ftp://h"], {}, "http://HOST:PORT"),
        (["x=http://joe:pw@h:1"], {}, "--connect-config"),
        (["x=http://h", "x=http://i"], {}, "two Connect clusters"),
        (["x=http://h"], {"y.bearer.auth.token": "t"}, "y.bearer.auth.token is unknown"),
        (["x=http://h"], {"x.basic.auth.user.info": "joe"}, "USER:PASSWORD"),
    ],
)
def test_wrong_addresses_and_log_ins_are_refused(
    given: list[str], properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        connect_settings(given, properties)


def test_connect_clusters_belong_to_the_clusters_of_a_console() -> None:
    found = connect_of_clusters(
        ["east/a=http://h:1", "west/a=http://h:2/"],
        {"west/a.bearer.auth.token": "t"},
        ["east", "west"],
    )
    assert [each.url for each in found["east"]] == ["http://h:1"]
    assert [(each.url, each.headers) for each in found["west"]] == [
        ("http://h:2", {"Authorization": "Bearer t"})
    ]
    wrong: list[tuple[list[str], dict[str, str]]] = [
        (["a=http://h:1"], {}),
        ([], {"a.bearer.auth.token": "t"}),
    ]
    for given, properties in wrong:
        with pytest.raises(ValueError, match="--cluster"):
            connect_of_clusters(given, properties, ["east"])


def test_the_audit_log_has_no_secrets_of_connectors(console: ConsoleInProcess) -> None:
    fields = {**OF_LOCAL, "plugin": SINK, "config.table": "other", "config.pin": "new-pin"}
    console.change("/connect/save", **fields, configs="db.password=hidden-value", confirmed=1)
    page = console.get("/audit").text
    assert "changed orders" in page
    assert "new-pin" not in page
    assert "hidden-value" not in page
