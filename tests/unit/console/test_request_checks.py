"""Requests that the console refuses, and the headers of all responses. No broker is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.console.request_checks import BODY_BYTES_MAX, host_name
from barnabas.console.settings import ConsoleSettings
from console_in_process import FORM, HOST, NO_BROKER, ConsoleInProcess

NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(NOWHERE, NO_BROKER, allow_changes=True, timeout=1.0)
    with ConsoleInProcess(settings) as running:
        yield running


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9", "localhost:8080", "[::1]:8080", "LOCALHOST"]
)
def test_loopback_names_are_accepted(console: ConsoleInProcess, host: str) -> None:
    assert console.request("GET", "/login", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8080", "", "[", "localhost@evil.example"]
)
def test_other_host_names_are_refused(console: ConsoleInProcess, host: str) -> None:
    """A name that points at this machine makes a browser send its requests here (DNS rebinding)."""
    answer = console.request("GET", "/login", headers={"host": host})
    assert answer.status == 421
    assert "--allowed-host" in answer.text


def test_the_name_in_a_host_header_is_found_without_its_port() -> None:
    assert [host_name(each) for each in ("a:1", "[::1]:2", "B", "", "[")] == [
        "a", "::1", "b", "", "",
    ]  # fmt: skip


def test_an_allowed_host_is_accepted() -> None:
    settings = ConsoleSettings(NOWHERE, NO_BROKER, allowed_hosts=("kafka.example",), timeout=1.0)
    with ConsoleInProcess(settings) as running:
        assert running.request("GET", "/login", headers={"host": "kafka.example"}).status == 200


@pytest.mark.parametrize("path", ["/login", "/absent", "/static/console.css", "/topic"])
def test_every_response_has_the_security_headers(console: ConsoleInProcess, path: str) -> None:
    headers = console.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "cache-control" in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": FORM, "origin": "http://evil.example"},
        {"content-type": FORM, "origin": "null"},
        {"content-type": FORM, "sec-fetch-site": "cross-site"},
        {"content-type": "text/plain"},
        {"content-type": "multipart/form-data", "origin": "http://evil.example"},
        {"content-type": "application/json"},
    ],
)
def test_a_form_of_another_site_is_refused(
    console: ConsoleInProcess, headers: dict[str, str]
) -> None:
    body = f"password={console.passwords[-1]}".encode()
    answer = console.request("POST", "/login", headers=headers, body=body)
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("site", "mode", "target", "status"),
    [
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403),
    ],
)
def test_other_sites_may_link_to_pages_but_not_load_them(
    console: ConsoleInProcess, site: str, mode: str, target: str, status: int
) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": target}
    assert console.request("GET", "/login", headers=headers).status == status


@pytest.mark.parametrize(
    "name",
    [
        "../settings.py",
        "..%2fsettings.py",
        "%2e%2e/settings.py",
        "....//settings.py",
        "/etc/passwd",
        "..\\settings.py",
        "console.css/../../settings.py",
        "console.css\0.svg",
        "__init__.py",
        "",
    ],
)
def test_only_known_assets_are_sent(console: ConsoleInProcess, name: str) -> None:
    answer = console.request("GET", f"/static/{name}")
    assert answer.status == 404
    assert "SearchLimits" not in answer.text


def test_a_body_beyond_the_limit_is_refused(console: ConsoleInProcess) -> None:
    headers = {"content-type": FORM, "content-length": str(BODY_BYTES_MAX + 1)}
    assert console.request("POST", "/login", headers=headers).status == 413
    chunked = {"content-type": FORM, "transfer-encoding": "chunked"}
    assert console.request("POST", "/login", headers=chunked).status == 413


def test_a_long_address_and_a_form_with_many_fields_are_refused(console: ConsoleInProcess) -> None:
    assert console.get("/topics", filter="x" * 9000).status == 414
    body = b"&".join(b"a%d=1" % number for number in range(501))
    headers = {"content-type": FORM, "origin": f"http://{HOST}"}
    assert console.request("POST", "/login", headers=headers, body=body).status == 400


def test_a_console_that_others_can_reach_needs_a_login_to_read() -> None:
    settings = ConsoleSettings(NOWHERE, NO_BROKER, host="0.0.0.0", timeout=1.0)
    with ConsoleInProcess(settings) as running:
        answer = running.get("/topic", name="a")
        assert answer.status == 303
        assert answer.headers["location"] == "/login?next=%2Ftopic%3Fname%3Da"
        assert running.get("/static/console.css").status == 200
        running.log_in()
        assert running.get("/produce").status == 200


def test_without_a_broker_a_page_says_so(console: ConsoleInProcess) -> None:
    answer = console.get("/topics")
    assert answer.status in (503, 504)
    assert "Doctor" in answer.text
