"""The REST interface answers as Confluent's registry: bodies, codes and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from registry_in_memory import V1, RegistryInMemory

STRING, INT = '"string"', '"int"'
USER = '{"type":"record","name":"User","fields":[{"name":"id","type":"int"}]}'
WIDER = (
    '{"type":"record","name":"User","fields":[{"name":"id","type":"int"},'
    '{"name":"name","type":"string","default":""}]}'
)
NARROW = (
    '{"type":"record","name":"User","fields":[{"name":"id","type":"int"},'
    '{"name":"name","type":"string"}]}'
)
OWNER = '{"type":"record","name":"Owner","fields":[{"name":"user","type":"User"}]}'
TO_USER = [{"name": "User", "subject": "user", "version": 1}]


@pytest.fixture
def registry() -> Iterator[RegistryInMemory]:
    with RegistryInMemory() as made:
        yield made


def test_a_schema_is_registered_once(registry: RegistryInMemory) -> None:
    assert registry.register("a", ' "string" ') == 1
    assert registry.register("a", STRING) == 1
    assert registry.register("b", STRING) == 1
    assert registry.request("GET", "/subjects/a/versions").json == [1]
    assert registry.request("GET", "/subjects").json == ["a", "b"]


def test_a_version_has_its_schema_and_id(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    found = registry.request("GET", "/subjects/a/versions/latest")
    assert found.json == {"subject": "a", "version": 1, "id": 1, "schema": USER}
    assert found.headers["content-type"] == V1
    assert registry.request("GET", "/subjects/a/versions/1/schema").body.decode() == USER
    assert registry.request("GET", "/schemas/ids/1").json == {"schema": USER}
    assert registry.request("GET", "/schemas/ids/1?fetchMaxId=true").json["maxId"] == 1
    assert registry.request("GET", "/schemas/ids/1/schema").body.decode() == USER
    assert registry.request("GET", "/schemas/ids/1/subjects").json == ["a"]
    assert registry.request("GET", "/schemas/ids/1/versions").json == [
        {"subject": "a", "version": 1}
    ]


def test_a_lookup_returns_the_version(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    found = registry.request("POST", "/subjects/a", {"schema": USER})
    assert found.json == {"subject": "a", "version": 1, "id": 1, "schema": USER}
    assert registry.request("POST", "/subjects/a", {"schema": INT}).error == (404, 40403)
    assert registry.request("POST", "/subjects/b", {"schema": INT}).error == (404, 40401)


def test_an_incompatible_schema_is_refused_with_the_reason(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    refused = registry.request("POST", "/subjects/a/versions", {"schema": NARROW})
    assert refused.error == (409, 409)
    assert (
        'incompatible with an earlier schema for subject "a", details: [' in refused.json["message"]
    )
    assert "compatibility: 'BACKWARD'}]" in refused.json["message"]
    assert registry.register("a", WIDER) == 2


def test_a_check_says_why_when_it_is_verbose(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    path = "/compatibility/subjects/a/versions"
    assert registry.request("POST", path, {"schema": WIDER}).json == {"is_compatible": True}
    plain = registry.request("POST", f"{path}/latest", {"schema": NARROW}).json
    assert plain == {"is_compatible": False}
    verbose = registry.request("POST", f"{path}/1?verbose=true", {"schema": NARROW}).json
    assert verbose["is_compatible"] is False
    assert len(verbose["messages"]) >= 2
    wider = registry.request("POST", f"{path}?verbose=true", {"schema": WIDER}).json
    assert wider == {"is_compatible": True, "messages": []}


def test_a_check_needs_the_version(registry: RegistryInMemory) -> None:
    path = "/compatibility/subjects/a/versions"
    assert registry.request("POST", f"{path}/latest", {"schema": INT}).json["is_compatible"]
    assert registry.request("POST", path, {"schema": INT}).json["is_compatible"]
    assert registry.request("POST", f"{path}/1", {"schema": INT}).error == (404, 40402)
    registry.register("a", INT)
    assert registry.request("POST", f"{path}/2", {"schema": INT}).error == (404, 40402)


def test_a_soft_deleted_subject_can_be_deleted_permanently(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    registry.register("a", WIDER)
    registry.request("PUT", "/config/a", {"compatibility": "FULL"})
    assert registry.request("DELETE", "/subjects/a?permanent=true").error == (404, 40405)
    assert registry.request("DELETE", "/subjects/a").json == [1, 2]
    assert registry.request("DELETE", "/subjects/a").error == (404, 40404)
    assert registry.request("GET", "/subjects").json == []
    assert registry.request("GET", "/subjects?deleted=true").json == ["a"]
    assert registry.request("GET", "/subjects?deletedOnly=true").json == ["a"]
    assert registry.request("GET", "/subjects/a/versions").error == (404, 40401)
    assert registry.request("GET", "/subjects/a/versions?deleted=true").json == [1, 2]
    assert registry.request("GET", "/subjects/a/versions?deletedOnly=true").json == [1, 2]
    assert registry.request("GET", "/subjects/a/versions/1?deleted=true").json["id"] == 1
    assert registry.request("GET", "/schemas/ids/1").status == 200
    assert registry.request("GET", "/config/a").error == (404, 40408)
    assert registry.request("DELETE", "/subjects/a?permanent=true").json == [1, 2]
    assert registry.request("GET", "/schemas/ids/1").error == (404, 40403)
    assert registry.request("DELETE", "/subjects/a").error == (404, 40401)


def test_a_version_is_deleted_in_two_steps(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    registry.register("a", WIDER)
    path = "/subjects/a/versions/1"
    assert registry.request("DELETE", f"{path}?permanent=true").error == (404, 40407)
    assert registry.request("DELETE", path).json == 1
    assert registry.request("DELETE", path).error == (404, 40406)
    assert registry.request("GET", path).error == (404, 40402)
    assert registry.request("DELETE", f"{path}?permanent=true").json == 1
    assert registry.request("DELETE", "/subjects/a/versions/latest").json == 2
    assert registry.request("DELETE", "/subjects/a/versions/9").error == (404, 40402)
    assert registry.request("DELETE", "/subjects/none/versions/1").error == (404, 40401)


def test_a_deleted_schema_keeps_its_id_when_it_is_registered_again(
    registry: RegistryInMemory,
) -> None:
    registry.register("a", USER)
    registry.request("DELETE", "/subjects/a")
    assert registry.register("a", USER) == 1
    assert registry.request("GET", "/subjects/a/versions?deleted=true").json == [2]


def test_references_bind_versions(registry: RegistryInMemory) -> None:
    registry.register("user", USER)
    number = registry.register("owner", OWNER, references=TO_USER)
    found = registry.request("GET", f"/schemas/ids/{number}").json
    assert found["references"] == TO_USER
    assert registry.request("GET", "/subjects/user/versions/1/referencedby").json == [number]
    refused = registry.request("DELETE", "/subjects/user")
    assert refused.error == (422, 42206)
    assert "subject=user,version=1" in refused.json["message"]
    registry.request("DELETE", "/subjects/owner")
    assert registry.request("DELETE", "/subjects/user").json == [1]


def test_a_missing_reference_is_an_invalid_schema(registry: RegistryInMemory) -> None:
    body = {"schema": OWNER, "references": TO_USER}
    refused = registry.request("POST", "/subjects/owner/versions", body)
    assert refused.error == (422, 42201)
    assert 'No schema reference found for subject "user" and version 1' in refused.json["message"]


def test_levels_of_compatibility(registry: RegistryInMemory) -> None:
    assert registry.request("GET", "/config").json == {"compatibilityLevel": "BACKWARD"}
    assert registry.request("GET", "/config/a").error == (404, 40408)
    assert registry.request("GET", "/config/a?defaultToGlobal=true").json == {
        "compatibilityLevel": "BACKWARD"
    }
    assert registry.request("PUT", "/config/a", {"compatibility": "none"}).json == {
        "compatibility": "NONE"
    }
    assert registry.request("GET", "/config/a").json == {"compatibilityLevel": "NONE"}
    registry.register("a", USER)
    assert registry.register("a", NARROW) == 2
    assert registry.request("DELETE", "/config/a").json == {"compatibilityLevel": "NONE"}
    assert registry.request("DELETE", "/config/a").error == (404, 40401)
    assert registry.request("PUT", "/config", {"compatibility": "FULL"}).status == 200
    assert registry.request("DELETE", "/config").json == {"compatibilityLevel": "FULL"}
    assert registry.request("GET", "/config").json == {"compatibilityLevel": "BACKWARD"}


@pytest.mark.parametrize("body", [{"compatibility": "SOMETIMES"}, {}])
def test_an_unknown_level_is_refused(registry: RegistryInMemory, body: object) -> None:
    assert registry.request("PUT", "/config", body).error == (422, 42203)


def test_modes_restrict_changes(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    assert registry.request("GET", "/mode").json == {"mode": "READWRITE"}
    assert registry.request("GET", "/mode/a").error == (404, 40409)
    assert registry.request("PUT", "/mode/a", {"mode": "READONLY"}).json == {"mode": "READONLY"}
    refused = registry.request("POST", "/subjects/a/versions", {"schema": WIDER})
    assert refused.error == (422, 42205)
    assert refused.json["message"] == "Subject a is in read-only mode"
    assert registry.request("DELETE", "/subjects/a").error == (422, 42205)
    assert registry.request("PUT", "/config/a", {"compatibility": "FULL"}).error == (422, 42205)
    assert registry.register("a", USER) == 1
    assert registry.request("DELETE", "/mode/a").json == {"mode": "READONLY"}
    assert registry.register("a", WIDER) == 2
    assert registry.request("PUT", "/mode", {"mode": "SOMETIMES"}).error == (422, 42204)


def test_an_import_keeps_ids_and_versions(registry: RegistryInMemory) -> None:
    imported = {"schema": USER, "id": 77, "version": 5}
    path = "/subjects/a/versions"
    assert registry.request("POST", path, imported).error == (422, 42205)
    assert registry.request("PUT", "/mode/a", {"mode": "IMPORT"}).status == 200
    assert registry.request("POST", path, {"schema": USER}).error == (422, 42205)
    assert registry.request("POST", path, imported).json == {"id": 77}
    assert registry.request("GET", path).json == [5]
    other = {"schema": INT, "id": 77, "version": 6}
    assert registry.request("POST", path, other).error == (422, 42205)
    assert registry.request("POST", path, {**imported, "id": 78, "version": 6}).error == (
        422,
        42207,
    )
    registry.request("DELETE", "/mode/a")
    assert registry.register("b", INT) == 78


def test_import_mode_needs_an_empty_subject_or_force(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    assert registry.request("PUT", "/mode", {"mode": "IMPORT"}).error == (422, 42205)
    assert registry.request("PUT", "/mode?force=true", {"mode": "IMPORT"}).status == 200
    assert registry.request("GET", "/mode/a?defaultToGlobal=true").json == {"mode": "IMPORT"}


def test_contexts_are_separate(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    assert registry.register(":.staging:a", STRING) == 1
    assert registry.request("GET", "/contexts").json == [".", ".staging"]
    assert registry.request("GET", "/subjects").json == [":.staging:a", "a"]
    inside = registry.request("GET", "/contexts/.staging/subjects/a/versions/1").json
    assert inside == {"subject": ":.staging:a", "version": 1, "id": 1, "schema": STRING}
    assert registry.request("GET", "/contexts/.staging/subjects").json == [":.staging:a"]
    assert registry.request("GET", "/contexts/.staging/schemas/ids/1").json == {"schema": STRING}
    assert registry.request("GET", "/schemas/ids/1?subject=%3A.staging%3Aa").json == {
        "schema": STRING
    }
    assert registry.request("GET", "/subjects/%3A.%3Aa/versions/1").json["subject"] == "a"


def test_an_id_is_found_by_a_subject_of_another_context(registry: RegistryInMemory) -> None:
    registry.register(":.staging:a", STRING)
    assert registry.request("GET", "/schemas/ids/1").error == (404, 40403)
    assert registry.request("GET", "/schemas/ids/1?subject=a").json == {"schema": STRING}
    assert registry.request("GET", "/schemas/ids/1?subject=b").error == (404, 40403)


def test_a_context_is_not_a_subject_that_can_be_deleted(registry: RegistryInMemory) -> None:
    registry.register(":.s:a", STRING)
    registry.register("a", STRING)
    for name in ("%3A.s%3A", "%3A.%3A", "%3A."):
        assert registry.request("DELETE", f"/subjects/{name}").error == (404, 40401)
        assert registry.request("DELETE", f"/subjects/{name}?permanent=true").error == (404, 40401)
    assert registry.request("GET", "/subjects").json == [":.s:a", "a"]


def test_settings_of_a_context(registry: RegistryInMemory) -> None:
    registry.request("PUT", "/contexts/.s/config", {"compatibility": "NONE"})
    assert registry.request("GET", "/config/%3A.s%3A").json == {"compatibilityLevel": "NONE"}
    assert registry.state.level(":.s:a") == "NONE"
    assert registry.state.level("a") == "BACKWARD"


def test_lists_have_pages(registry: RegistryInMemory) -> None:
    for name in ("a", "b", "c"):
        registry.register(name, STRING)
    assert registry.request("GET", "/subjects?offset=1&limit=1").json == ["b"]
    assert registry.request("GET", "/subjects?subjectPrefix=c").json == ["c"]
    found = registry.request("GET", "/schemas?offset=2").json
    assert [each["subject"] for each in found] == ["c"]
    assert registry.request("GET", "/subjects?limit=many").error == (404, 404)


def test_all_schemas_or_only_the_latest(registry: RegistryInMemory) -> None:
    registry.register("a", USER)
    registry.register("a", WIDER)
    assert [each["version"] for each in registry.request("GET", "/schemas").json] == [1, 2]
    latest = registry.request("GET", "/schemas?latestOnly=true&subjectPrefix=a").json
    assert [each["version"] for each in latest] == [2]
    registry.request("DELETE", "/subjects/a/versions/2")
    latest = registry.request("GET", "/schemas?latestOnly=true").json
    assert [each["version"] for each in latest] == [1]
    assert len(registry.request("GET", "/schemas?deleted=true").json) == 2


def test_metadata_and_rules_are_kept(registry: RegistryInMemory) -> None:
    metadata = {"properties": {"owner": "ana"}}
    first = registry.register("a", USER)
    second = registry.register("b", USER, metadata=metadata)
    assert first != second
    assert registry.request("GET", f"/schemas/ids/{second}").json["metadata"] == metadata
    assert registry.request("GET", "/subjects/b/versions/1").json["metadata"] == metadata


def test_the_process_names_itself(registry: RegistryInMemory) -> None:
    assert registry.request("GET", "/").json == {}
    assert registry.request("GET", "/schemas/types").json == ["AVRO", "JSON", "PROTOBUF"]
    assert registry.request("GET", "/v1/metadata/id").json["scope"]["clusters"] == {
        "kafka-cluster": "cluster",
        "schema-registry-cluster": "group",
    }
    assert registry.request("GET", "/v1/metadata/version").json["version"]


def test_a_subject_may_contain_a_slash(registry: RegistryInMemory) -> None:
    registry.register("a/b c", STRING)
    assert registry.request("GET", "/subjects/a%2Fb%20c/versions").json == [1]


@pytest.mark.parametrize("version", ["0", "-2", "one", "2147483648", "1.5", "9" * 5000])
def test_an_invalid_version_is_refused(registry: RegistryInMemory, version: str) -> None:
    registry.register("a", STRING)
    assert registry.request("GET", f"/subjects/a/versions/{version}").error == (422, 42202)


@pytest.mark.parametrize("version", ["latest", "LATEST", "-1", "1", "%201"])
def test_a_version_has_several_spellings(registry: RegistryInMemory, version: str) -> None:
    registry.register("a", STRING)
    assert registry.request("GET", f"/subjects/a/versions/{version}").json["version"] == 1


@pytest.mark.parametrize("name", ["a%01", "%20%09", "__GLOBAL", "%3A.ctx%3A", "%7F"])
def test_an_invalid_subject_is_refused(registry: RegistryInMemory, name: str) -> None:
    answer = registry.request("POST", f"/subjects/{name}/versions", {"schema": STRING})
    assert answer.error == (422, 42208)


@pytest.mark.parametrize("path", ["/config/a%01", "/mode/%3A*%3Aa"])
def test_settings_need_a_valid_name(registry: RegistryInMemory, path: str) -> None:
    body = {"compatibility": "NONE"} if path.startswith("/config") else {"mode": "READONLY"}
    assert registry.request("PUT", path, body).error == (422, 42208)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", (422, 422)),
        (b"null", (422, 422)),
        (b"{", (400, 400)),
        (b"\xff", (400, 400)),
        (b"[]", (400, 400)),
        (b"[" * 100_000, (400, 400)),
        ({"schema": {"type": "int"}}, (400, 400)),
        ({"schema": STRING, "schemaType": []}, (400, 400)),
        ({"schema": STRING, "references": {}}, (400, 400)),
        ({"schema": STRING, "references": ["x"]}, (400, 400)),
        ({"schema": STRING, "references": [{"name": "x"}]}, (422, 422)),
        ({"schema": STRING, "version": "one"}, (400, 400)),
        ({"schema": STRING, "id": 2**40}, (400, 400)),
        ({"schema": STRING, "metadata": "x"}, (400, 400)),
        ({}, (422, 42201)),
        ({"schema": ""}, (422, 42201)),
        ({"schema": "{"}, (422, 42201)),
        ({"schema": STRING, "schemaType": "XML"}, (422, 42201)),
        ({"schema": '"unknown"'}, (422, 42201)),
    ],
    ids=lambda value: (json.dumps(value) if isinstance(value, dict) else repr(value))[:40],
)
def test_a_malformed_body_is_refused(
    registry: RegistryInMemory, body: Any, error: tuple[int, int]
) -> None:
    assert registry.request("POST", "/subjects/a/versions", body).error == error
    assert registry.store.records == []


@pytest.mark.parametrize("body", [b"{", b"", {"mode": ["READONLY"]}, {"modes": "READONLY"}])
def test_a_malformed_mode_is_refused(registry: RegistryInMemory, body: Any) -> None:
    assert registry.request("PUT", "/mode", body).status in (400, 422)
    assert registry.store.records == []


def test_a_body_that_is_too_large_is_not_read(registry: RegistryInMemory) -> None:
    headers = {"content-length": "99999999999999999999999999"}
    path = "/subjects/a/versions"
    assert registry.request("POST", path, {"schema": STRING}, headers).error == (413, 413)
    assert registry.request("POST", path, b" " * (3 << 20)).error == (413, 413)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("*/*", V1),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{V1}; q=0.9, application/json; q=0.5", V1),
        ("application/json, text/html", "application/json"),
        ("text/html, application/*;q=0.1", V1),
    ],
)
def test_the_media_type_is_that_of_accept(
    registry: RegistryInMemory, accept: str, media_type: str
) -> None:
    answer = registry.request("GET", "/subjects", headers={"accept": accept})
    assert (answer.status, answer.headers["content-type"]) == (200, media_type)


@pytest.mark.parametrize(
    "content_type",
    [
        V1,
        "application/vnd.schemaregistry+json",
        "application/json; charset=utf-8",
        "application/octet-stream",
        "",
    ],
)
def test_these_media_types_of_bodies_are_accepted(
    registry: RegistryInMemory, content_type: str
) -> None:
    headers = {"content-type": content_type}
    body = {"schema": STRING}
    assert registry.request("POST", "/subjects/a/versions", body, headers).status == 200


@pytest.mark.parametrize(
    ("method", "path", "headers", "error"),
    [
        ("GET", "/subjects", {"accept": "text/html"}, (406, 406)),
        ("POST", "/subjects/a", {"content-type": "text/plain"}, (415, 415)),
        ("GET", "/nothing", {}, (404, 404)),
        ("GET", "/subjects/a/versions/1/x", {}, (404, 404)),
        ("GET", "/schemas/ids/one", {}, (404, 404)),
        ("GET", "/schemas/ids/99", {}, (404, 40403)),
        ("PUT", "/subjects", {}, (405, 405)),
        ("PATCH", "/config", {}, (405, 405)),
    ],
)
def test_requests_that_do_not_fit_are_refused(
    registry: RegistryInMemory,
    method: str,
    path: str,
    headers: dict[str, str],
    error: tuple[int, int],
) -> None:
    assert registry.request(method, path, headers=headers).error == error


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example", "host": "127.0.0.1:8081"},
        {"origin": "null", "host": "127.0.0.1:8081"},
        {"origin": "http://[", "host": "127.0.0.1:8081"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_pages_of_other_sites_are_refused(
    registry: RegistryInMemory, headers: dict[str, str]
) -> None:
    path, body = "/subjects/a/versions", {"schema": STRING}
    assert registry.request("POST", path, body, headers).error == (403, 40301)
    own = {"origin": "http://127.0.0.1:8081", "host": "127.0.0.1:8081"}
    assert registry.request("POST", path, body, own).status == 200


def test_head_has_no_body(registry: RegistryInMemory) -> None:
    registry.register("a", STRING)
    answer = registry.request("HEAD", "/subjects/a/versions/1")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


def test_a_starting_registry_answers_with_an_error(registry: RegistryInMemory) -> None:
    registry.application.routes = None
    assert registry.request("GET", "/subjects").error == (500, 50001)


def test_members_of_bodies_without_a_meaning_are_ignored(registry: RegistryInMemory) -> None:
    body = {"schema": STRING, "colour": "red"}
    assert registry.request("POST", "/subjects/a/versions", body).status == 200
    assert registry.request("PUT", "/mode/a", {"mode": "READONLY", "colour": 1}).status == 200
    body = {"compatibility": "FULL", "colour": 1, "alias": None}
    assert registry.request("PUT", "/config/b", body).status == 200


@pytest.mark.parametrize("name", ["alias", "compatibilityPolicy", "validateFields"])
def test_settings_that_would_have_no_effect_are_refused(
    registry: RegistryInMemory, name: str
) -> None:
    body = {"compatibility": "FULL", name: "x"}
    assert registry.request("PUT", "/config/a", body).error == (422, 422)
