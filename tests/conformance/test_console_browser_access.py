"""Several clusters, roles, log-ins by a proxy and the audit log, as users of Chromium see them."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from barnabas.cli.common.profiles import Profiles
from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.console_user import ConsoleUser
from server_in_thread import ServerInThread
from tools.chromium import IS_INSTALLED, Chromium
from tools.console_output import READY, console_output, read_line

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC = "access-records"


class Proxy(ServerInThread):
    """A reverse proxy that sends the name and the groups of a logged-in user to the console.

    Args:
        target: The address of the console.
        user: The name.
        groups: The groups, separated by commas.
    """

    def __init__(self, target: str, user: str, groups: str = "") -> None:
        address = target.removeprefix("http://")
        headers = {"X-Forwarded-User": user, "X-Forwarded-Groups": groups}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size) if size else None
                sent = dict(self.headers.items()) | headers
                # A browser names the proxy as the origin, and the proxy keeps that.
                connection = http.client.HTTPConnection(address, timeout=60)
                connection.request(self.command, self.path, body, sent)
                found = connection.getresponse()
                data = found.read()
                self.send_response(found.status)
                for name, value in found.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                connection.close()

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as made:
        yield made


@pytest.fixture(scope="module")
def bootstrap(clients_bootstrap: str) -> str:
    with Client(clients_bootstrap) as client:
        client.create_topic(TOPIC, 1, 1)
    return clients_bootstrap


@pytest.fixture(scope="module")
def behind_proxy(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console that knows its users by the headers of a proxy, and keeps an audit log."""
    log = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    options = ["-b", bootstrap, "--user-header", "X-Forwarded-User", "--audit-log", str(log)]
    options += ["--groups-header", "X-Forwarded-Groups", "--trusted-proxy", "127.0.0.1"]
    options += ["--role", "eve=admin", "--role", "@ops=operator"]
    with console_output("--allow-changes", *options) as output:
        yield read_line(output, READY)


def test_a_proxy_logs_users_in_and_the_console_shows_their_names(
    behind_proxy: str, browser: Chromium
) -> None:
    # Without the proxy there is no user.
    ConsoleUser(browser, behind_proxy).open("/topics")
    ConsoleUser(browser, behind_proxy).sees("Log in|X-Forwarded-User")
    with Proxy(behind_proxy, "eve") as proxy:
        user = ConsoleUser(browser, proxy.url)
        user.open("/topics")
        text = user.sees("eve admin", TOPIC)
        assert "Log out" not in text


def test_a_role_decides_which_forms_a_user_sees(behind_proxy: str, browser: Chromium) -> None:
    for name, groups, role, has, lacks in (
        ("vera", "", "viewer", [], ["Create a topic", "Edit configs", "Delete the topic"]),
        ("otto", "staff,ops", "operator", ["Edit configs"], ["Delete the topic"]),
        ("eve", "", "admin", ["Edit configs", "Delete the topic"], []),
    ):
        with Proxy(behind_proxy, name, groups) as proxy:
            user = ConsoleUser(browser, proxy.url)
            user.open("/topic", name=TOPIC)
            text = user.sees(f"{name} {role}", *has)
            assert [each for each in lacks if each in text] == []
    with Proxy(behind_proxy, "otto", "ops") as proxy:
        delete_without_the_role(ConsoleUser(browser, proxy.url), TOPIC)


def delete_without_the_role(user: ConsoleUser, topic: str) -> None:
    """Send a form that no page of an operator has; the console refuses it with the missing role."""
    user.open("/topic", name=topic)
    user.finds("""
        (() => {
          const form = document.querySelector("form[action='/topic/partitions']");
          form.action = "/topic/delete";
          form.submit();
          return true;
        })()
    """)
    user.sees("otto is operator, and this change needs the role admin")


def test_the_audit_log_names_the_user_of_a_change_and_of_a_refused_one(
    behind_proxy: str, browser: Chromium
) -> None:
    with Proxy(behind_proxy, "otto", "ops") as proxy:
        user = ConsoleUser(browser, proxy.url)
        user.open("/topics/new")
        user.fill(Name="access-audited", Partitions="1", Replicas="1")
        user.press("Create")
        user.sees("created topic access-audited")
        delete_without_the_role(user, "access-audited")
    with Proxy(behind_proxy, "eve") as proxy:
        user = ConsoleUser(browser, proxy.url)
        user.open("/security")
        user.press("Audit")
        user.type("Contains", "access-audited")
        user.press("Show")
        refused, row = user.rows()
    assert row["User"].startswith("otto operator")
    assert row["Action"].startswith("topics/create")
    assert "name=access-audited" in row["Action"]
    assert row["Result"].startswith("done")
    assert refused["User"].startswith("otto operator")
    assert refused["Action"].startswith("topic/delete")
    assert "name=access-audited" in refused["Action"]
    assert refused["Result"].startswith("refused")


def test_a_profile_starts_several_clusters_and_one_that_is_down_slows_no_other(
    bootstrap: str, browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with BrokerProcess(tmp_path / "east") as east:
        with Client(east.bootstrap) as client:
            client.create_topic("access-of-east", 1, 1)
        Profiles(
            {
                "east": {"bootstrap.servers": east.bootstrap},
                "west": {"bootstrap.servers": bootstrap},
                "all": {"console.clusters": "east, west"},
            }
        ).save()
        with console_output("--profile", "all", "--allow-changes") as output:
            user = ConsoleUser(browser, read_line(output, READY))
            user.open("/")
            user.sees("east (well|active|healthy|ok)", "west (well|active|healthy|ok)")
            user.press("east")
            user.press("Topics")
            user.sees("access-of-east")
            user.click("east")
            user.press("west")
            user.press("Topics")
            user.sees(TOPIC)
            east.stop()
            user.open("/east/topics")
            # The last data, with a banner that says since when.
            user.sees("access-of-east", "No broker responds since 20", "known at 20")
            user.open("/west/topics")
            assert "No broker responds" not in user.sees(TOPIC)
            user.open("/")
            assert "no broker responds" in " ".join(user.row("east").values())
            assert "no broker responds" not in " ".join(user.row("west").values())
            east.restart()
            user.open("/east/groups")
            user.sees("No groups")
