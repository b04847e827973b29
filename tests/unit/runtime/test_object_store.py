"""Object stores: calls, errors by the answers of a server, options, and credentials."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.runtime.object_store import (
    OBJECT_STORE_SCHEMES,
    ObjectStore,
    StoreTimeouts,
    memory_store,
    open_object_store,
    option_names,
)
from barnabas.runtime.object_store_errors import (
    ObjectStoreError,
    StoreOptionsError,
    StoreProblem,
)
from unit.runtime.answering_server import (
    KEYS,
    Answer,
    AnsweringServer,
    Request,
    answering_server,
    failure,
)
from waiting import eventually

SKEW = (
    "<RequestTime>20261201T023000Z</RequestTime><ServerTime>2026-12-01T02:14:00Z</ServerTime>"
    "<MaxAllowedSkewMilliseconds>900000</MaxAllowedSkewMilliseconds>"
)


@pytest.fixture(scope="module")
def running() -> Iterator[AnsweringServer]:
    with answering_server() as made:
        yield made


@pytest.fixture
def server(running: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> AnsweringServer:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    running.objects.clear()
    running.requests.clear()
    running.answer = lambda _: None
    return running


def test_objects_are_stored_read_and_deleted(server: AnsweringServer) -> None:
    store = server.store()
    store.put("a/b", b"0123456789")
    assert server.objects == {"/bucket/a/b": b"0123456789"}
    assert bytes(store.get("a/b", 2, 5)) == b"234"
    assert store.head("a/b") == 10
    assert store.head("a/c") is None
    store.delete(["a/b", "a/b", "a/c"])
    assert server.objects == {}
    with pytest.raises(ObjectStoreError, match=r"s3://bucket/a/b: 404 Not Found NoSuchKey") as got:
        store.get("a/b", 0, 1)
    assert got.value.problem is StoreProblem.MISSING


@pytest.mark.parametrize("kind", ["memory", "server"])
def test_a_range_that_the_object_does_not_have_is_shorter(
    kind: str, server: AnsweringServer
) -> None:
    store = memory_store() if kind == "memory" else server.store()
    store.put("a", b"0123456789")
    assert bytes(store.get("a", 8, 20)) == b"89"
    assert bytes(store.get("a", 10, 20)) == b""
    assert bytes(store.get("a", 50, 60)) == b""


def test_deletes_of_missing_objects_are_no_error_on_stores_that_report_them(
    server: AnsweringServer,
) -> None:
    server.answer = lambda request: failure(404, "NoSuchKey")
    server.store().delete(["a", "b"])
    assert [request.path for request in server.requests] == ["/bucket/a", "/bucket/b"]


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (503, "SlowDown", StoreProblem.UNAVAILABLE),
        (500, "InternalError", StoreProblem.UNAVAILABLE),
        (429, "TooManyRequests", StoreProblem.UNAVAILABLE),
        (400, "RequestTimeout", StoreProblem.UNAVAILABLE),
        (400, "BadDigest", StoreProblem.UNAVAILABLE),
        (403, "AccessDenied", StoreProblem.REFUSED),
        (403, "SignatureDoesNotMatch", StoreProblem.REFUSED),
        (400, "ExpiredToken", StoreProblem.REFUSED),
        (400, "InvalidArgument", StoreProblem.REFUSED),
        (401, "Unauthorized", StoreProblem.REFUSED),
        (404, "NoSuchBucket", StoreProblem.REFUSED),
        (507, "InsufficientStorage", StoreProblem.FULL),
        (507, "AnyOther", StoreProblem.FULL),
        (403, "QuotaExceeded", StoreProblem.FULL),
        (400, "XMinioStorageFull", StoreProblem.FULL),
    ],
)
def test_an_answer_has_its_meaning(
    server: AnsweringServer, status: int, code: str, problem: StoreProblem
) -> None:
    server.answer = lambda request: failure(status, code)
    store = server.store()
    for call in (lambda: store.put("a/b", b"x"), lambda: store.get("a/b", 0, 1)):
        with pytest.raises(ObjectStoreError, match=code) as raised:
            call()
        assert raised.value.problem is problem
        message = str(raised.value)
        assert message.startswith(f"s3://bucket/a/b: {status} ")
        assert "it failed" in message
        assert "\n" not in message
        assert len(message) < 400


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (403, StoreProblem.REFUSED),
        (401, StoreProblem.REFUSED),
        (503, StoreProblem.UNAVAILABLE),
        (507, StoreProblem.FULL),
        (400, StoreProblem.REFUSED),
    ],
)
def test_an_answer_without_a_body_has_its_meaning(
    server: AnsweringServer, status: int, problem: StoreProblem
) -> None:
    server.answer = lambda request: Answer(status)
    with pytest.raises(ObjectStoreError) as raised:
        server.store().head("a")
    assert raised.value.problem is problem


def test_a_clock_that_is_wrong_is_named_with_its_difference(server: AnsweringServer) -> None:
    server.answer = lambda request: failure(403, "RequestTimeTooSkewed", SKEW)
    with pytest.raises(ObjectStoreError, match="is 960 s ahead of that of the store: set") as got:
        server.store().put("a", b"x")
    assert got.value.problem is StoreProblem.REFUSED


@pytest.mark.parametrize("more", ["", "<RequestTime>a</RequestTime><ServerTime>b</ServerTime>"])
def test_a_clock_that_is_wrong_is_named_without_times_too(
    server: AnsweringServer, more: str
) -> None:
    server.answer = lambda request: failure(403, "RequestTimeTooSkewed", more)
    with pytest.raises(ObjectStoreError, match="set the clock of this machine"):
        server.store().put("a", b"x")


def test_a_server_that_does_not_exist_is_unavailable(server: AnsweringServer) -> None:
    # The address of a server that has ended.
    with answering_server() as gone:
        url = gone.url
    store = server.store(endpoint=url)
    with pytest.raises(ObjectStoreError, match="s3://bucket/a: ") as raised:
        store.head("a")
    assert raised.value.problem is StoreProblem.UNAVAILABLE


def test_requests_are_repeated_within_their_time(server: AnsweringServer) -> None:
    answers = [failure(503, "SlowDown"), failure(500, "InternalError")]
    server.answer = lambda request: answers.pop() if answers else None
    server.store(retry_ms=60_000).put("a", b"x")
    assert [request.method for request in server.requests] == ["PUT"] * 3


def test_a_body_that_ends_early_is_an_error_or_repeated(server: AnsweringServer) -> None:
    """A part of the range would be taken for the end of the object."""
    server.objects["/bucket/a"] = b"0123456789"

    def cut(request: Request) -> Answer | None:
        # Claims the whole range, and sends less.
        return Answer(206, b"01", (("Content-Range", "bytes 0-9/10"), ("ETag", '"1"')))

    server.answer = cut
    try:
        found = bytes(server.store().get("a", 0, 10))
    except ObjectStoreError:
        return
    assert found == b"01"


def test_a_file_is_sent_in_parts_and_whole(tmp_path: Path) -> None:
    store = memory_store()
    content = bytes(range(256)) * 4096 * 20
    file = tmp_path / "00.log"
    file.write_bytes(content)
    store.put_file("log", str(file), len(content))
    assert bytes(store.get("log", 0, len(content) + 1)) == content
    assert store.head("log") == len(content)


@pytest.mark.parametrize("size", [1, 1000, 9 << 20])
def test_only_the_beginning_of_a_longer_file_is_sent(tmp_path: Path, size: int) -> None:
    store = memory_store()
    content = bytes(range(256)) * 4096 * 10
    file = tmp_path / "00.log"
    file.write_bytes(content)
    store.put_file("log", str(file), size)
    assert bytes(store.get("log", 0, size + 1)) == content[:size]


def test_a_file_that_is_shorter_or_missing_is_not_sent(tmp_path: Path) -> None:
    store = memory_store()
    file = tmp_path / "00.log"
    with pytest.raises(FileNotFoundError):
        store.put_file("log", str(file), 1)
    file.write_bytes(b"abc")
    with pytest.raises(EOFError, match="3 bytes instead of 4"):
        store.put_file("log", str(file), 4)
    assert store.head("log") is None


def test_large_files_are_sent_in_parts_of_a_multipart_upload(
    server: AnsweringServer, tmp_path: Path
) -> None:
    parts: dict[str, int] = {}

    def answer(request: Request) -> Answer | None:
        if request.method == "POST" and request.query == "uploads=":
            text = "<InitiateMultipartUploadResult><UploadId>7</UploadId>"
            return Answer(200, f"{text}</InitiateMultipartUploadResult>".encode())
        if request.method == "PUT":
            parts[request.query] = len(request.body)
            return Answer(200, b"", (("ETag", '"p"'),))
        text = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
        return Answer(200, text.encode())

    server.answer = answer
    file = tmp_path / "00.log"
    file.write_bytes(bytes(20 << 20))
    server.store().put_file("log", str(file), 20 << 20)
    assert sorted(parts.values()) == [4 << 20, 8 << 20, 8 << 20]
    assert server.requests[-1].method == "POST"


def test_an_upload_does_not_hold_the_interpreter_lock(
    server: AnsweringServer, tmp_path: Path
) -> None:
    """A thread makes progress while the server does not answer a put."""
    is_released = threading.Event()

    def hold(request: Request) -> Answer | None:
        assert is_released.wait(60)
        return None

    server.answer = hold
    file = tmp_path / "00.log"
    file.write_bytes(bytes(1 << 20))
    store = server.store()
    upload = threading.Thread(target=store.put_file, args=("log", str(file), 1 << 20))
    upload.start()
    # This thread would not come here if the lock were held.
    is_released.set()
    upload.join(60)
    assert not upload.is_alive()
    assert len(server.objects["/bucket/log"]) == 1 << 20


def test_a_listing_has_pages_an_order_and_a_start(server: AnsweringServer) -> None:
    store = memory_store()
    names = [
        f"root/{topic}/0/{number:05}.log" for topic in ("a", "a-b", "b") for number in range(900)
    ]
    for name in reversed(names):
        store.put(name, b"12")
    before = int(time.time() * 1000) - 60_000
    found = list(store.list("root", ""))
    assert [each.name for each in found] == sorted(names)
    assert {each.size for each in found} == {2}
    assert min(each.modified_ms for each in found) >= before
    middle = sorted(names)[1234]
    assert [each.name for each in store.list("root", middle)] == sorted(names)[1235:]
    assert list(store.list("root/no", "")) == []
    assert sorted(store.directories("root")) == ["a", "a-b", "b"]
    assert store.directories("") == ["root"]


def test_a_listing_fails_with_an_error_of_the_store(server: AnsweringServer) -> None:
    server.answer = lambda request: failure(403, "AccessDenied")
    for call in (
        lambda: list(server.store().list("a", "")),
        lambda: server.store().directories(""),
    ):
        with pytest.raises(ObjectStoreError, match="AccessDenied") as raised:
            call()
        assert raised.value.problem is StoreProblem.REFUSED


def test_calls_after_the_end_fail(server: AnsweringServer) -> None:
    store = server.store()
    store.close()
    with pytest.raises(ObjectStoreError, match="closed"):
        store.head("a")
    assert server.requests == []


# --- options


@pytest.mark.parametrize("scheme", OBJECT_STORE_SCHEMES)
def test_an_unknown_option_is_refused_with_those_that_exist(scheme: str) -> None:
    with pytest.raises(StoreOptionsError) as raised:
        open_object_store(f"{scheme}://bucket", {"end_point": "x"}, "", StoreTimeouts())
    message = str(raised.value)
    assert "end_point" in message
    assert all(name in message for name in option_names(scheme))


@pytest.mark.parametrize(
    ("bucket", "kept"),
    [
        ("s3://bucket", {**KEYS}),
        ("gs://bucket", {}),
        ("az://bucket", {"account_name": "a", "account_key": "c2VjcmV0"}),
    ],
)
def test_obstore_knows_every_option(bucket: str, kept: dict[str, str], tmp_path: Path) -> None:
    """Each name alone is accepted, or its value is what is refused."""
    values = {
        "root_certificate": None,
        "proxy_ca_certificate": None,
        "checksum_algorithm": "CRC64NVME",
        "server_side_encryption": "AES256",
        "pool_idle_timeout": "10s",
        "proxy_url": "http://127.0.0.1:1",
        "request_payer": "true",
        "service_account": None,
        "service_account_key": None,
        "application_credentials": None,
        "credential_type": None,
        "sse_customer_key_base64": None,
        "encryption_key": None,
        # These need names of buckets and hosts of their own kind.
        "s3_express": None,
        "use_fabric_endpoint": None,
        "sas_key": "sv=1&sig=abc",
    }
    for name in option_names(bucket.partition("://")[0]):
        value = values.get(name, "https://127.0.0.1:1" if "endpoint" in name else "true")
        if value is not None:
            made = open_object_store(bucket, {**kept, name: value}, "", StoreTimeouts())
            made.close()


def test_a_value_that_is_not_allowed_is_not_shown(server: AnsweringServer) -> None:
    with pytest.raises(StoreOptionsError, match="checksum_algorithm") as raised:
        server.store(checksum_algorithm="s3cr3t-algorithm")
    assert "s3cr3t" not in str(raised.value)


def test_options_reach_the_requests(server: AnsweringServer) -> None:
    store = server.store(server_side_encryption="aws:kms", sse_kms_key_id="key-7")
    store.put("a", b"x")
    (request,) = server.requests
    assert request.headers["x-amz-server-side-encryption"] == "aws:kms"
    assert request.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-7"
    assert "/eu-west-1/s3/" in request.headers["authorization"]
    assert request.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


def test_environment_variables_give_credentials_and_options_go_before_them(
    server: AnsweringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    given = {"endpoint": server.url, "allow_http": "true"}
    timeouts = StoreTimeouts(10_000, 0)
    open_object_store("s3://bucket", given, "", timeouts).put("a", b"x")
    open_object_store("s3a://bucket", {**given, **KEYS}, "", timeouts).put("a", b"x")
    assert [request.key_id for request in server.requests] == ["ENVIRONMENT", "FIRST"]


def test_a_certificate_that_cannot_be_read_is_named(server: AnsweringServer) -> None:
    with pytest.raises(StoreOptionsError, match="root_certificate: /no/file: No such file"):
        server.store(root_certificate="/no/file")


# --- credentials


def write_aws(path: Path, key_id: str, more: str = "") -> None:
    path.write_text(
        f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = sec%ret\n{more}"
    )


def test_a_file_gives_credentials_that_are_not_mixed_with_the_environment(
    server: AnsweringServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-environment")
    write_aws(tmp_path / "keys", "FILE")
    server.store(str(tmp_path / "keys")).put("a", b"x")
    write_aws(tmp_path / "keys", "FILE2", "aws_session_token = token\n")
    server.store(str(tmp_path / "keys")).put("a", b"x")
    first, second = server.requests
    assert (first.key_id, first.headers.get("x-amz-security-token")) == ("FILE", None)
    assert (second.key_id, second.headers.get("x-amz-security-token")) == ("FILE2", "token")


def test_rotated_credentials_cost_no_failed_call(server: AnsweringServer, tmp_path: Path) -> None:
    """The old key ends as soon as the file has the new one."""
    allowed = {"OLD"}
    server.answer = lambda request: (
        None if request.key_id in allowed else failure(403, "InvalidAccessKeyId")
    )
    file = tmp_path / "keys"
    write_aws(file, "OLD")
    store = server.store(str(file))
    errors: list[Exception] = []
    is_over = threading.Event()

    def load(name: str, store: ObjectStore = store) -> None:
        while not is_over.is_set():
            try:
                store.put(name, b"x")
                assert store.head(name) == 1
            except (ObjectStoreError, AssertionError) as error:
                errors.append(error)
                return

    def served(method: str, key_id: str) -> bool:
        return any((each.method, each.key_id) == (method, key_id) for each in server.requests)

    threads = [threading.Thread(target=load, args=(f"object-{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    try:
        for key_id in ("NEW", "NEWER", "NEWEST"):
            write_aws(tmp_path / "next", key_id)
            allowed.add(key_id)
            (tmp_path / "next").rename(file)
            allowed &= {key_id}
            eventually(partial(served, "HEAD", key_id))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_a_half_written_file_keeps_the_credentials(server: AnsweringServer, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    write_aws(file, "OLD")
    store = server.store(str(file))
    file.write_text("[default]\naws_access_key_id = NE")
    server.answer = lambda request: failure(403, "AccessDenied")
    with pytest.raises(ObjectStoreError, match="AccessDenied"):
        store.put("a", b"x")
    server.answer = lambda _: None
    store.put("a", b"x")
    assert {request.key_id for request in server.requests} == {"OLD"}


# --- processes

_IN_FLIGHT = """
import threading, time
from barnabas.runtime.object_store import StoreTimeouts, open_object_store
options = dict(endpoint="{url}", allow_http="true", access_key_id="a",
               secret_access_key="b", region="r")
store = open_object_store("s3://bucket", options, "", StoreTimeouts(60_000, 60_000))
threads = [threading.Thread(target=store.head, args=("a",), daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
while input() != "end":
    pass
store.close()
"""


def test_a_process_can_end_while_requests_are_in_flight(server: AnsweringServer) -> None:
    is_over = threading.Event()

    def hold(request: Request) -> Answer | None:
        is_over.wait(60)
        return None

    server.answer = hold
    program = subprocess.Popen(
        [sys.executable, "-c", _IN_FLIGHT.format(url=server.url)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: len(server.requests) >= 4 or program.poll() is not None)
        _, errors = program.communicate("end\n", timeout=60)
    finally:
        is_over.set()
        program.kill()
    assert (program.returncode, errors) == (0, "")


def test_obstore_is_not_imported_before_a_store_is_opened() -> None:
    """A node forks its processes, and threads do not survive a fork."""
    text = (
        "import sys, barnabas.storage.remote.opening, barnabas.server.process.tiered_storage;"
        "assert not [name for name in sys.modules if name.startswith('obstore')]"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300)
