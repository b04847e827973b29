"""The client of a schema registry: cache, several URLs, credentials, and broken answers."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from barnabas.runtime import web
from barnabas.serializers import (
    AvroSerializer,
    RegistryError,
    Schema,
    SchemaError,
    SchemaReference,
    SchemaRegistry,
    UnknownSchemaError,
)
from certificates import Authority
from unit.serializers.registry_server import RegistryServer

UNREACHABLE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "pause", lambda _seconds: None)


def test_schemas_and_ids_are_asked_for_once(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    before = len(server.requests)
    for _ in range(3):
        number = registry.register("cached", Schema('"string"'))
        assert registry.schema(number).text == '"string"'
        assert registry.latest("cached").schema_id == number
    assert len(server.requests) - before == 3


def test_a_cache_has_a_limit(server: RegistryServer) -> None:
    numbers = [
        server.add(f'{{"type": "fixed", "name": "F{size}", "size": {size}}}') for size in (1, 2, 3)
    ]
    registry = SchemaRegistry(server.url, cache_size=2)
    for number in numbers:
        registry.schema(number)
    before = len(server.requests)
    registry.schema(numbers[2])
    assert len(server.requests) == before
    registry.schema(numbers[0])
    assert len(server.requests) == before + 1


def test_an_unknown_id_is_an_error_of_the_record(registry: SchemaRegistry) -> None:
    with pytest.raises(UnknownSchemaError, match="no schema with id 999") as raised:
        registry.schema(999)
    assert raised.value.schema_id == 999


def test_another_url_answers_when_the_first_does_not(server: RegistryServer) -> None:
    number = server.add('"long"')
    assert SchemaRegistry([UNREACHABLE, server.url]).schema(number).text == '"long"'
    assert SchemaRegistry(f"{UNREACHABLE}, {server.url}/").schema(number).text == '"long"'


def test_an_error_of_the_server_is_retried() -> None:
    tries: list[str] = []

    def busy(method: str, path: str, headers: Any) -> tuple[int, bytes] | None:
        tries.append(path)
        return (503, b"busy") if len(tries) < 3 else None

    with RegistryServer(busy) as server:
        server.add('"int"')
        assert SchemaRegistry(server.url).schema(1).text == '"int"'
    assert len(tries) == 3


def test_an_unreachable_registry_is_reported_with_its_address() -> None:
    with pytest.raises(
        RegistryError, match=r"not reached: http://127.0.0.1:1/.*Check its URL"
    ) as e:
        SchemaRegistry(UNREACHABLE).subjects()
    assert e.value.status == 0
    assert e.value.retriable


@pytest.mark.parametrize(
    "body",
    [
        b"<html>a proxy</html>",
        b"[]",
        b'{"schema": 3}',
        b'{"schema": "x", "schemaType": "XML"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": "' + b"x" * (1 << 20) + b'"}',
    ],
    ids=["html", "list", "number", "type", "bytes", "nested", "large"],
)
def test_a_wrong_answer_is_an_error_of_the_registry(body: bytes) -> None:
    with RegistryServer(lambda *_: (200, body)) as server, pytest.raises(RegistryError):
        SchemaRegistry(server.url).schema(1)


@pytest.mark.parametrize("number", [-1, 1 << 31, 1 << 64])
def test_an_id_that_no_record_can_have_is_an_error_of_the_registry(number: int) -> None:
    body = json.dumps({"id": number}).encode()
    with RegistryServer(lambda *_: (200, body)) as server:
        serializer = AvroSerializer(SchemaRegistry(server.url), '"string"')
        with pytest.raises(RegistryError, match="something else than a schema registry"):
            serializer.serialize("orders", "value")


def test_credentials_are_sent_and_never_shown() -> None:
    seen: list[str] = []

    def check(method: str, path: str, headers: Any) -> tuple[int, bytes] | None:
        seen.append(headers["Authorization"])
        return 401, b'{"error_code": 401, "message": "Unauthorized"}'

    with RegistryServer(check) as server:
        address = server.url.removeprefix("http://")
        for registry in (
            SchemaRegistry(server.url, user_info="ana:pass word"),
            SchemaRegistry(f"http://ana:pass%20word@{address}"),
            SchemaRegistry(server.url, token="t0ken"),
        ):
            with pytest.raises(RegistryError, match="Check the user and the password") as raised:
                registry.subjects()
            assert "pass" not in str(raised.value).replace("password", "")
            assert "pass" not in registry.url
    assert seen == ["Basic YW5hOnBhc3Mgd29yZA=="] * 2 + ["Bearer t0ken"]


def test_tls_uses_the_given_authority_or_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    certificate = authority.issue("CN=registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.write_pem(tmp_path / "server.pem"))
    with RegistryServer(tls=context) as server:
        assert SchemaRegistry(server.url, ca_file=str(tmp_path / "ca.pem")).subjects() == []
        with pytest.raises(RegistryError, match="certificate verify failed"):
            SchemaRegistry(server.url).subjects()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert SchemaRegistry(server.url).subjects() == []


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("localhost:8081", {}),
        ("ftp://host", {}),
        ("", {}),
        ("http://host", {"user_info": "ana"}),
        ("http://host", {"user_info": "a:b", "token": "t"}),
        ("http://host", {"usr": "a"}),
        ({"url": "http://host"}, {}),
    ],
)
def test_a_wrong_option_is_refused(url: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="registry"):
        SchemaRegistry(url, **options)


def test_a_circle_of_references_ends() -> None:
    def circle(method: str, path: str, headers: Any) -> tuple[int, bytes]:
        number = int(path.rsplit("/", 1)[1])
        reference = {"name": f"r{number + 1}", "subject": "s", "version": number + 1}
        body = {"subject": "s", "version": number, "id": number, "schema": '"int"'}
        return 200, json.dumps({**body, "references": [reference]}).encode()

    with RegistryServer(circle) as server:
        schema = Schema('"int"', references=(SchemaReference("r1", "s", 1),))
        with pytest.raises(SchemaError, match="nested over 20 deep"):
            SchemaRegistry(server.url).referenced(schema)


def test_the_newest_versions_are_read_in_parts(server: RegistryServer) -> None:
    total = 1_200

    def listed(_method: str, path: str, _headers: Any) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(path).query)
        offset, limit = int(query["offset"][0]), int(query["limit"][0])
        numbers = range(offset, min(total, offset + limit))
        found = [{"subject": f"s-{n}", "version": n, "id": n, "schema": "x"} for n in numbers]
        return 200, json.dumps(found).encode()

    server.override = listed
    found = SchemaRegistry(server.url).latest_versions()
    assert found is not None
    assert [each.subject for each in found] == [f"s-{n}" for n in range(total)]
    assert found[-1].version == total - 1


def test_a_list_without_subjects_is_reported(server: RegistryServer) -> None:
    server.override = lambda *_: (200, b'[{"schema": "x"}]')
    assert SchemaRegistry(server.url).latest_versions() is None
