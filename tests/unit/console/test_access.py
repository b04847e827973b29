"""Roles, users that a proxy names, the audit log and the limit of costly requests."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from starlette.requests import Request

from barnabas.console.access.audit import Actor, AuditError, AuditLog, shown_fields
from barnabas.console.access.options import login_settings, read_roles
from barnabas.console.access.proxy import TrustedProxy
from barnabas.console.access.rate_limits import RateLimit, is_costly
from barnabas.console.access.sessions import Sessions, WrongPasswords
from barnabas.console.access.users import LoginSettings, Role, User
from barnabas.console.settings import ConsoleSettings
from barnabas.runtime.clock import SystemClock
from barnabas.runtime.rng import SeededRng, SystemRng
from barnabas.sim.clock import SimClock, SimScheduler
from barnabas.sim.disk import SimDisk
from console_in_process import FORM, HOST, NO_BROKER, Answer, ConsoleInProcess

NOWHERE = "127.0.0.1:1"
ROLES = {"eve": Role.ADMIN, "@ops": Role.OPERATOR}
HEADERS = LoginSettings(
    user_header="X-User", groups_header="X-Groups", trusted_proxies=("127.0.0.0/8",), roles=ROLES
)


def running(login: LoginSettings, **more: object) -> ConsoleInProcess:
    settings = ConsoleSettings(
        NOWHERE, NO_BROKER, allow_changes=True, timeout=1.0, login=login, **more
    )  # type: ignore[arg-type]  # fields by name
    return ConsoleInProcess(settings)


@pytest.fixture(scope="module")
def behind_proxy() -> Iterator[ConsoleInProcess]:
    with running(HEADERS) as console:
        yield console


def sent(console: ConsoleInProcess, path: str, user: Mapping[str, str], **form: str) -> Answer:
    """Send a request with the headers of a proxy; a form if it has fields."""
    if not form:
        return console.request("GET", path, headers=user)
    body = "&".join(f"{name}={value}" for name, value in form.items()).encode()
    headers = {"content-type": FORM, "origin": f"http://{HOST}", **user}
    return console.request("POST", path, headers=headers, body=body)


def test_a_proxy_logs_its_users_in_with_the_greatest_role_of_user_and_groups(
    behind_proxy: ConsoleInProcess,
) -> None:
    for user, groups, role in (
        ("eve", "", "admin"),
        ("bob", "x, ops", "operator"),
        ("al", "", "v"),
    ):
        page = sent(behind_proxy, "/audit", {"x-user": user, "x-groups": groups}).text
        assert f'{user} <span class="tag">{role}' in page
        assert "Log out" not in page


def test_without_the_header_of_the_proxy_nothing_is_shown(behind_proxy: ConsoleInProcess) -> None:
    for path in ("/topics", "/audit", "/doctor", "/"):
        answer = behind_proxy.get(path)
        assert answer.status == 303
        assert answer.headers["location"].startswith("/login")
    assert "X-User" in behind_proxy.get("/login").text
    # Nobody can log in by the empty password.
    assert behind_proxy.post("/login", password="").status == 400


def test_a_role_that_is_too_small_is_refused_with_the_name_of_the_missing_one(
    behind_proxy: ConsoleInProcess,
) -> None:
    bob = {"x-user": "bob", "x-groups": "ops"}
    form = sent(behind_proxy, "/produce", bob)
    answer = sent(behind_proxy, "/topic/delete", bob, csrf=form.csrf, name="a", confirm="a")
    assert answer.status == 403
    assert "bob is operator, and this change needs the role admin" in answer.text
    assert "--role bob=admin" in answer.text
    # The refusal is in the audit log.
    newest = behind_proxy.console.shared.audit.entries[0]
    assert (newest["user"], newest["result"], newest["action"]) == (
        "bob",
        "refused",
        "topic/delete",
    )


def test_only_administrators_set_quotas(behind_proxy: ConsoleInProcess) -> None:
    bob = {"x-user": "bob", "x-groups": "ops"}
    token = sent(behind_proxy, "/produce", bob).csrf
    answer = sent(behind_proxy, "/quotas/set", bob, csrf=token, value="1")
    assert answer.status == 403
    assert "needs the role admin" in answer.text


def test_the_header_of_a_client_that_is_no_proxy_is_refused() -> None:
    login = LoginSettings(user_header="X-User", trusted_proxies=("10.0.0.1",), roles=ROLES)
    with running(login) as console:
        answer = console.request("GET", "/audit", headers={"x-user": "eve"})
        assert answer.status == 403
        assert "--trusted-proxy" in answer.text


def request_of(peer: str, headers: Mapping[str, str]) -> Request:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "client": (peer, 1), "headers": pairs})


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("10.0.0.1", "1.1.1.1, 2.2.2.2", "2.2.2.2"),
        # The client of the first proxy is the second proxy.
        ("10.0.0.1", "1.1.1.1, 10.0.0.2", "1.1.1.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("::ffff:10.0.0.1", "2.2.2.2", "2.2.2.2"),
        # A client that is no proxy may write anything.
        ("3.3.3.3", "1.1.1.1", "3.3.3.3"),
    ],
)
def test_the_address_of_a_client_is_the_one_that_a_trusted_proxy_saw(
    peer: str, forwarded: str, address: str
) -> None:
    proxy = TrustedProxy("X-User", "", ["10.0.0.0/24"], {})
    headers = {"x-forwarded-for": forwarded} if forwarded else {}
    assert proxy.address(request_of(peer, headers)) == address


def test_two_headers_with_users_or_a_nameless_user_are_no_user() -> None:
    proxy = TrustedProxy("X-User", "", ["10.0.0.1"], {})
    twice = [(b"x-user", b"a"), (b"x-user", b"b")]
    scope = {"type": "http", "client": ("10.0.0.1", 1), "headers": twice}
    assert proxy.user(Request(scope)) is None
    assert proxy.user(request_of("10.0.0.1", {"x-user": " "})) is None


def test_roles_of_the_command_line_override_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "roles"
    path.write_text("# The team\nal=viewer\n@ops=operator\n\nCN=eve,O=x=ADMIN\n")
    assert read_roles(["al=admin"], str(path)) == {
        "al": Role.ADMIN, "@ops": Role.OPERATOR, "CN=eve,O=x": Role.ADMIN,
    }  # fmt: skip
    for wrong in ("al", "=admin", "al=root"):
        with pytest.raises(click.UsageError, match="viewer, operator, admin"):
            read_roles([wrong], None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"act_as_user": True},
        {"headers": (None, "X-Groups")},
        {"headers": ("X-User", None)},
        {"trusted_proxies": ["127.0.0.1"]},
        {"headers": ("X-User", None), "trusted_proxies": ["localhost"]},
    ],
)
def test_options_that_do_not_fit_together_are_refused(wrong: dict[str, object]) -> None:
    right = {
        "password_file": None, "broker_users": None, "act_as_user": False,
        "headers": (None, None), "trusted_proxies": (), "roles": {},
    }  # fmt: skip
    with pytest.raises(click.UsageError):
        login_settings(**{**right, **wrong})  # type: ignore[arg-type]  # fields by name


ACTOR = Actor("eve", "password", "admin", "127.0.0.1")


def test_an_audit_log_survives_a_restart_and_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(str(path), SystemClock())
    log.add(ACTOR, "east", "/topics/create", [("name", "a"), ("csrf", "x")], "done", text="made")
    log.close()
    with path.open("a") as file:
        file.write('{"user": "half')
    again = AuditLog(str(path), SystemClock())
    again.add(ACTOR, "east", "/topic/delete", [("name", "a")], "failed", error="no broker")
    again.close()
    lines = path.read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    assert (first["action"], first["fields"], first["text"]) == (
        "topics/create", {"name": "a"}, "made",
    )  # fmt: skip
    assert (last["result"], last["error"], last["address"]) == ("failed", "no broker", "127.0.0.1")
    assert [each["action"] for each in again.entries] == ["topic/delete", "topics/create"]


def test_an_entry_follows_one_that_a_full_disk_cut() -> None:
    clock = SimClock(SimScheduler())
    disk = SimDisk(clock, SeededRng(1))
    log = AuditLog("/audit.jsonl", clock, disk)
    disk.capacity_bytes = 40
    with pytest.raises(AuditError, match="make room"):
        log.add(ACTOR, "east", "/topic/delete", [("name", "late")], "done")
    disk.capacity_bytes = None
    log.add(ACTOR, "east", "/topic/delete", [("name", "whole\u2028\x9bname")], "done")
    log.close()
    file = disk.open("/audit.jsonl")
    lines = file.read_at(file.size(), 0).decode().splitlines()
    # The first line was cut; its entry follows as a whole, before the next one.
    assert [json.loads(each)["fields"]["name"] for each in lines[1:]] == [
        "late", "whole\u2028\x9bname",
    ]  # fmt: skip


def test_a_change_that_cannot_be_recorded_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with running(LoginSettings(password="pw"), audit_log=str(path)) as console:
        console.passwords.append("pw")
        console.log_in()
        token = console.get("/audit").csrf
        log = console.console.shared.audit
        real, log._file = log._file, FullFile()
        form = {"csrf": token, "subject": "a", "level": "FULL"}
        answer = console.post("/schemas/compatibility", **form)
        assert answer.status == 503
        assert "makes no change that it cannot record" in answer.text
        assert "No space left" in answer.text
        # Not even the page has an entry of a change that was not made.
        assert log.entries[0]["action"] == "login"
        login = console.post("/login", password="pw", next="/")
        assert (login.status, "set-cookie" in login.headers) == (503, False)
        log._file = real
        # The registry is missing, so that the change fails; its begin is recorded before.
        console.post("/schemas/compatibility", **form)
    lines = filter(None, path.read_text().splitlines())
    results = [json.loads(line)["result"] for line in lines]
    assert results[-2] == "begun"
    assert results[-1] in ("failed", "unknown")


class FullFile:
    """A file on a disk that is full."""

    def append(self, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        return


def test_an_audit_entry_has_all_fields_of_a_name_up_to_a_bound() -> None:
    form = [("at", f"0-{number}") for number in range(60)] + [("topic", "t")]
    found = shown_fields("/groups/offsets", form)
    assert found["topic"] == "t"
    assert found["at"][:2] == ["0-0", "0-1"]
    assert (len(found["at"]), found["at"][-1]) == (51, "… and 10 more")


class FaultyRegistry:
    """A registry whose client has a fault."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_a_change_with_an_unforeseen_error_is_in_the_audit_log() -> None:
    with running(LoginSettings(password="pw"), registry=FaultyRegistry()) as console:
        console.passwords.append("pw")
        console.log_in()
        token = console.get("/audit").csrf
        with pytest.raises(RuntimeError):
            console.post("/schemas/compatibility", csrf=token, subject="a", level="FULL")
        newest = console.console.shared.audit.entries[0]
        assert (newest["action"], newest["result"], newest["error"]) == (
            "schemas/compatibility", "unknown", "RuntimeError",
        )  # fmt: skip


def test_the_audit_log_shows_no_secrets_records_or_long_texts() -> None:
    assert shown_fields("/security/users/set", [("user", "al"), ("password", "pw")]) == {
        "user": "al", "password": "(hidden)",
    }  # fmt: skip
    config = [("key", "ssl.keystore.password"), ("value", "pw")]
    assert shown_fields("/broker/config", config)["value"] == "(hidden)"
    restart = [("name", "orders"), ("failed", "1")]
    assert shown_fields("/connect/restart", restart) == {"name": "orders", "failed": "1"}
    record = [("topic", "t"), ("value", "card 4111"), ("key", "k")]
    assert shown_fields("/produce", record) == {
        "topic": "t", "value": "(hidden)", "key": "(hidden)",
    }  # fmt: skip
    long = shown_fields("/topics/create", [("configs", "x" * 10_000)])["configs"]
    assert long.endswith("(10000 characters)")
    assert len(long) < 600


def test_a_login_and_a_failed_change_are_shown_by_the_audit_page() -> None:
    with running(LoginSettings(password="pw")) as console:
        assert "log in first" in console.get("/audit").text
        console.passwords.append("pw")
        console.log_in()
        console.post("/topics/create", csrf=console.get("/audit").csrf, here="/", name="orders")
        page = console.get("/audit").text
        assert "<strong>topics/create</strong>" in page
        assert "name=orders" in page
        assert page.index("topics/create") < page.index("<strong>login</strong>")
        assert "topics/create" not in console.get("/audit", q="login").text


def test_an_address_that_guesses_passwords_does_not_block_others() -> None:
    scheduler = SimScheduler()
    failures = WrongPasswords(SimClock(scheduler))
    for _ in range(10):
        failures.add("1.1.1.1")
    assert failures.is_blocked("1.1.1.1")
    assert not failures.is_blocked("2.2.2.2")
    scheduler.run_for(60_000)
    assert not failures.is_blocked("1.1.1.1")
    for number in range(100):
        failures.add(f"3.3.3.{number}")
    assert failures.is_blocked("2.2.2.2")


@pytest.mark.parametrize(
    ("path", "query", "costly"),
    [
        ("/messages", "topic=a", True),
        ("/messages/download", "", True),
        ("/doctor", "", False),
        ("/doctor", "ask=1", True),
        ("/why", "target=a&ask=1", True),
        ("/topics", "q=messages", False),
        ("/topic", "name=download", False),
    ],
)
def test_searches_downloads_and_examinations_are_costly(
    path: str, query: str, costly: bool
) -> None:
    assert is_costly(path, query) == costly


def test_a_client_gets_its_requests_back_with_time() -> None:
    scheduler = SimScheduler()
    limit = RateLimit(60, SimClock(scheduler))
    assert [limit.take("a") for _ in range(60)] == [0] * 60
    assert limit.take("a") == 1
    assert limit.take("b") == 0
    scheduler.run_for(2_000)
    assert [limit.take("a") for _ in range(3)] == [0, 0, 1]
    unlimited = RateLimit(0, SimClock(scheduler))
    assert [unlimited.take("a") for _ in range(500)] == [0] * 500


def test_too_many_costly_requests_get_429_with_the_time_to_wait() -> None:
    with running(LoginSettings(), costly_per_minute=2) as console:
        for _ in range(2):
            assert console.get("/why", target="a", ask=1).status != 429
        answer = console.get("/why", target="a", ask=1)
        assert answer.status == 429
        assert 0 < int(answer.headers["retry-after"]) <= 30
        # Other pages are shown.
        assert console.get("/why").status == 200


def test_users_of_a_proxy_keep_their_forms_however_many_they_are() -> None:
    sessions = Sessions(SimClock(SimScheduler()), SystemRng(), "pw", lambda _password: None)
    browser = sessions.log_in("pw")
    users = [User(f"user{number}", Role.VIEWER, "proxy") for number in range(2_000)]
    tokens = [sessions.of_proxy(each).csrf for each in users]
    assert len(set(tokens)) == len(users)
    assert [sessions.of_proxy(each).csrf for each in users] == tokens
    # They push out neither each other nor log-ins of other kinds.
    assert sessions.of_browser(browser) is not None
