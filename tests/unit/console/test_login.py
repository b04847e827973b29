"""Log-in, sessions, and the token in every form. No broker is needed."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from starlette.routing import Route

from barnabas.console import command
from barnabas.console.access.sessions import Sessions
from barnabas.console.access.users import LoginSettings
from barnabas.console.settings import ConsoleSettings
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import SimClock, SimScheduler
from console_in_process import NO_BROKER, ConsoleInProcess

NOWHERE = "127.0.0.1:1"
# Forms that change nothing in a cluster; the check of a draft is a read with a long text.
NO_CHANGES = ("/login", "/logout", "/schemas/check")
HOUR_MS = 3_600_000


@pytest.fixture
def console() -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(NOWHERE, NO_BROKER, allow_changes=True, timeout=1.0)
    with ConsoleInProcess(settings) as running:
        yield running


def change_paths(console: ConsoleInProcess) -> list[str]:
    routes = console._application.routes
    paths = [
        each.path for each in routes if isinstance(each, Route) and "POST" in (each.methods or ())
    ]
    return [path for path in paths if path not in NO_CHANGES]


def test_a_one_time_password_is_valid_once_and_the_next_one_is_announced(
    console: ConsoleInProcess,
) -> None:
    [first] = console.passwords
    console.log_in()
    assert len(console.passwords) == 2
    assert console.post("/login", password=first, next="/").status == 403
    assert console.post("/login", password=console.passwords[-1], next="/").status == 303


def test_the_cookie_of_a_session_is_hidden_from_scripts_and_other_sites(
    console: ConsoleInProcess,
) -> None:
    cookie = console.post("/login", password=console.passwords[-1]).headers["set-cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= parts


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "", "\\\\x", "/a\nb"]
)
def test_a_login_never_leads_to_another_site(console: ConsoleInProcess, target: str) -> None:
    answer = console.post("/login", password=console.passwords[-1], next=target)
    assert answer.headers["location"] == "/"


def test_wrong_passwords_block_the_login_for_a_while(console: ConsoleInProcess) -> None:
    for _ in range(10):
        assert console.post("/login", password="guess").status == 403
    answer = console.post("/login", password=console.passwords[-1])
    assert answer.status == 429
    assert "set-cookie" not in answer.headers


def test_every_change_is_refused_without_a_login_and_without_the_token(
    console: ConsoleInProcess,
) -> None:
    paths = change_paths(console)
    assert len(paths) > 10
    for path in paths:
        assert console.post(path, csrf="").status == 403, path
    console.log_in()
    for path in paths:
        assert console.post(path).status == 403, path
        assert console.post(path, csrf="x" * 32).status == 403, path


def test_every_change_is_refused_by_a_read_only_console() -> None:
    with ConsoleInProcess(ConsoleSettings(NOWHERE, NO_BROKER, timeout=1.0)) as running:
        paths = change_paths(running)
        assert len(paths) > 10
        for path in paths:
            answer = running.post(path, name="a", csrf="")
            assert answer.status == 403
            assert "--allow-changes" in answer.text
        assert running.passwords == []
        assert "read-only" in running.get("/produce").text


def test_a_logout_ends_the_session(console: ConsoleInProcess) -> None:
    console.log_in()
    token = console.get("/produce").csrf
    assert console.post("/logout", csrf=token).status == 303
    assert console.post("/produce", csrf=token).status == 403


def test_a_password_of_a_file_stays_valid() -> None:
    settings = ConsoleSettings(
        NOWHERE, NO_BROKER, allow_changes=True, login=LoginSettings(password="pw"), timeout=1.0
    )
    with ConsoleInProcess(settings) as running:
        assert [running.post("/login", password="pw").status for _ in range(2)] == [303, 303]
        assert running.passwords == []


def test_a_session_ends_after_eight_hours_and_old_ones_make_room() -> None:
    scheduler = SimScheduler()
    sessions = Sessions(SimClock(scheduler), SeededRng(1), "pw", lambda _: None)
    first = sessions.log_in("pw")
    assert sessions.of_browser(first) is not None
    scheduler.run_for(8 * HOUR_MS)
    assert sessions.of_browser(first) is None
    ids = [sessions.log_in("pw") for _ in range(101)]
    assert sessions.of_browser(ids[0]) is None
    assert sessions.of_browser(ids[-1]) is not None


class GoneTerminal(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_console_whose_terminal_is_gone_still_accepts_its_last_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", GoneTerminal())
    settings = ConsoleSettings(NOWHERE, NO_BROKER, allow_changes=True, timeout=1.0)
    with ConsoleInProcess(settings, command._announce_password) as console:
        password = console.console.sessions._password
        assert console.post("/login", password=password, next="/").status == 303
        assert console.post("/login", password=password, next="/").status == 403
