"""Fields of forms: files, repeated names, and what a page shows of a refused form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.requests import Request

from barnabas.console.forms import FILE_BYTES_MAX, Draft, Fields, FormError, form_fields
from barnabas.console.settings import ConsoleSettings
from barnabas.runtime.loop import new_loop
from console_in_process import HOST, NO_BROKER, ConsoleInProcess

NOWHERE = "127.0.0.1:1"
BOUNDARY = "XX"


def multipart(fields: dict[str, str], name: str, file: str, content: bytes) -> bytes:
    """Return the body of a form with one file, as browsers send it."""
    lines = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'Content-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
    lines.append(f"--{BOUNDARY}\r\n{head}Content-Type: text/plain\r\n\r\n".encode())
    return b"".join(lines) + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def parsed(body: bytes, kind: str = f"multipart/form-data; boundary={BOUNDARY}") -> Fields:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", kind.encode())]
    scope = {"type": "http", "method": "POST", "headers": headers}
    loop = new_loop()
    try:
        return loop.run_until_complete(form_fields(Request(scope, receive)))
    finally:
        loop.close()


@pytest.mark.parametrize("content", [b"a\r\nb", bytes(range(256)), b"\r\n--X", b"", b"\r\n"])
def test_a_file_has_exactly_the_bytes_that_were_sent(content: bytes) -> None:
    fields = parsed(multipart({"a": "b\r\nc"}, "file", "x.bin", content))
    assert (fields.file("file") or b"") == content
    assert fields.text("a") == "b\r\nc"


def test_a_form_without_a_chosen_file_has_none() -> None:
    assert parsed(multipart({}, "file", "", b"")).file("file") is None


def test_a_file_that_is_too_large_is_refused_and_the_other_fields_stay() -> None:
    fields = parsed(multipart({"a": "b"}, "file", "x", bytes(FILE_BYTES_MAX + 1)))
    assert fields.text("a") == "b"
    with pytest.raises(FormError, match="the limit of a file is 640 KiB"):
        fields.file("file")


def test_a_form_of_parts_without_a_boundary_is_refused() -> None:
    with pytest.raises(FormError, match="boundary"):
        parsed(b"", "multipart/form-data")


def test_a_form_of_parts_has_a_limit_of_fields() -> None:
    body = multipart({str(number): "" for number in range(600)}, "file", "", b"")
    with pytest.raises(FormError, match="at most"):
        parsed(body)


def test_checked_boxes_of_one_name_are_all_kept_in_order() -> None:
    fields = parsed(b"at=1&at=2&at=1", "application/x-www-form-urlencoded")
    assert fields.texts("at") == ["1", "2"]
    assert fields.all_but("x") == [("at", "1"), ("at", "2"), ("at", "1")]


def test_a_draft_is_shown_only_by_the_form_that_it_belongs_to() -> None:
    draft = Draft("/a", Fields([("name", "x"), ("box", "1")]), "wrong", "name")
    assert draft.text("/a", "name", "default") == "x"
    assert draft.text("/b", "name", "default") == "default"
    assert draft.problem_at("/a", "name") == "wrong"
    assert draft.problem_at("/a", "box") == draft.problem_at("/b", "name") == ""
    assert draft.has("/a", "box")
    assert not draft.has("/a", "other", default=True)
    assert draft.has("/b", "other", default=True)


@pytest.fixture
def console() -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(NOWHERE, NO_BROKER, allow_changes=True, timeout=1.0)
    with ConsoleInProcess(settings) as running:
        running.log_in()
        yield running


def test_a_refused_form_keeps_what_was_typed_and_shows_the_problem_at_its_field(
    console: ConsoleInProcess,
) -> None:
    typed = '<"typed">\u202e'
    page = console.get("/produce")
    fields = {"csrf": page.csrf, "here": "/produce", "partition": "x", "value": typed}
    assert console.post("/produce", topic=typed, **fields).status == 303
    again = console.get("/produce").text
    assert "&lt;&#34;typed&#34;&gt;\u202e</textarea>" in again
    assert 'id="problem-partition">Partition must be a whole number' in again
    assert "typed" not in console.get("/produce").text


def test_a_form_with_a_file_needs_the_token_too(console: ConsoleInProcess) -> None:
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    headers = {"content-type": kind, "origin": f"http://{HOST}"}
    body = multipart({"csrf": "wrong"}, "file", "x", b"y")
    assert console.request("POST", "/produce", headers=headers, body=body).status == 403


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-31T12:00", 1_769_860_800_000),
        ("2026-01-31T13:00+01:00", 1_769_860_800_000),
        ("1500", 1500),
        ("1960-01-01", 0),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str, ms: int) -> None:
    assert Fields([("time", text)]).moment("time") == ms


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01"])
def test_a_wrong_time_is_refused_at_its_field(text: str) -> None:
    with pytest.raises(FormError) as found:
        Fields([("time", text)]).moment("time")
    assert found.value.field == "time"


@pytest.mark.parametrize(
    "text", ["٣", "７", "1_000", "1.0", "0x1", "NaN", "-1", "9" * 5_000, "--1"]
)
def test_only_whole_numbers_of_ascii_digits_are_numbers(text: str) -> None:
    with pytest.raises(FormError, match=r"^n must be a .{0,80}$"):
        Fields({"n": text}).number("n")
    assert Fields({"n": " +12 "}).number("n") == 12
