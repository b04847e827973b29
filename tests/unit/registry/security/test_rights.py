"""Responses to a principal with rights on the subjects that begin with `mine` only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from barnabas.registry.errors import forbidden
from barnabas.registry.records import Content, SchemaRecord, StoredSchema
from barnabas.registry.security.access import Caller, Right
from registry_in_memory import RegistryInMemory

SECRET = '{"type":"record","name":"Secret","fields":[{"name":"salary","type":"int"}]}'
FORBIDDEN = (403, 40301)


class MineOnly:
    """Allows everything with subjects that begin with `mine`."""

    async def check(self, _caller: Caller, _right: Right, subject: str | None) -> None:
        if subject is None or not await self.readable(_caller, [subject]):
            raise forbidden("denied")

    async def readable(self, _caller: Caller, subjects: Sequence[str]) -> list[str]:
        return [each for each in subjects if each.removeprefix(":.mine:").startswith("mine")]


@pytest.fixture
def registry() -> Iterator[RegistryInMemory]:
    with RegistryInMemory(MineOnly()) as registry:
        for subject in ("secret", ":.hidden:secret", ":.mine:mine"):
            schema = StoredSchema(subject, 1, 1, Content("AVRO", SECRET))
            registry.state.apply(SchemaRecord(subject, 1, schema))
        yield registry


@pytest.mark.parametrize("subject", ["secret", ":.hidden:secret", "missing"])
@pytest.mark.parametrize(
    "path", ["/subjects/mine/versions", "/subjects/mine", "/compatibility/subjects/mine/versions"]
)
def test_a_schema_cannot_refer_to_a_subject_that_its_sender_may_not_read(
    registry: RegistryInMemory, path: str, subject: str
) -> None:
    reference = {"name": "Secret", "subject": subject, "version": 1}
    body = {"schema": '"Secret"', "references": [reference]}
    assert registry.request("POST", path, body).error == FORBIDDEN


def test_contexts_without_a_readable_subject_are_not_listed(registry: RegistryInMemory) -> None:
    assert registry.request("GET", "/contexts").json == [".", ".mine"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/subjects/secret/versions"),
        ("GET", "/subjects/secret/versions/1"),
        ("GET", "/subjects/secret/versions/9"),
        ("GET", "/subjects/secret/versions/1/schema"),
        ("GET", "/subjects/secret/versions/1/referencedby"),
        ("GET", "/contexts/.hidden/subjects/secret/versions/1"),
        ("GET", "/config"),
        ("GET", "/config/secret?defaultToGlobal=true"),
        ("GET", "/mode"),
        ("GET", "/mode/secret?defaultToGlobal=true"),
        ("DELETE", "/subjects/secret"),
        ("DELETE", "/subjects/missing"),
        ("DELETE", "/subjects/secret/versions/1"),
        ("DELETE", "/config/secret"),
        ("DELETE", "/mode/secret"),
    ],
)
def test_a_foreign_subject_is_refused(registry: RegistryInMemory, method: str, path: str) -> None:
    assert registry.request(method, path).error == FORBIDDEN


@pytest.mark.parametrize("ending", ["", "/schema", "/subjects", "/versions"])
@pytest.mark.parametrize("subject", ["", "?subject=secret", "?subject=%3A.hidden%3A"])
def test_an_id_of_foreign_subjects_is_unknown(
    registry: RegistryInMemory, ending: str, subject: str
) -> None:
    found = registry.request("GET", f"/schemas/ids/1{ending}{subject}")
    assert found.error == (404, 40403)


@pytest.mark.parametrize("path", ["/subjects", "/schemas", "/schemas?subjectPrefix=secret"])
def test_lists_have_no_foreign_subjects(registry: RegistryInMemory, path: str) -> None:
    assert "secret" not in registry.request("GET", path).body.decode()
