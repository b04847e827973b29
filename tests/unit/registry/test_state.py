"""The state follows the records of the topic, in any order that a topic can have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    Content,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
    StoredSchema,
)
from barnabas.registry.schemas import Reference
from barnabas.registry.state import ALL, Deleted, RegistryState
from barnabas.registry.subjects import LATEST

STRING, INT = Content("AVRO", '"string"'), Content("AVRO", '"int"')


def put(
    subject: str, version: int, number: int, content: Content = STRING, *, deleted: bool = False
) -> SchemaRecord:
    return SchemaRecord(
        subject, version, StoredSchema(subject, version, number, content, deleted=deleted)
    )


def state_of(*records: Record) -> RegistryState:
    state = RegistryState()
    for record in records:
        state.apply(record)
    return state


def numbers(versions: Sequence[StoredSchema]) -> list[int]:
    return [each.version for each in versions]


def test_versions_are_ascending_in_any_order_of_records() -> None:
    state = state_of(put("a", 3, 3), put("a", 1, 1), put("a", 2, 2), put("a", 1, 1))
    assert numbers(state.versions("a")) == [1, 2, 3]
    assert state.next_version("a") == 4
    latest = state.get("a", LATEST)
    assert latest is not None
    assert latest.version == 3


def test_the_next_id_follows_the_largest_that_was_read() -> None:
    state = state_of(put("a", 1, 9), put("a", 2, 4, INT), SchemaRecord("a", 1, None))
    assert state.last_id(".") == 9
    assert state.last_id(".staging") == 0


def test_equal_content_has_one_id_in_a_context() -> None:
    state = state_of(put("a", 1, 1), put("b", 1, 1), put(":.staging:a", 1, 5))
    assert state.id_of(".", STRING) == 1
    assert state.id_of(".staging", STRING) == 5
    assert [each.subject for each in state.uses_of(".", 1)] == ["a", "b"]


def test_a_soft_deletion_keeps_the_id() -> None:
    state = state_of(put("a", 1, 1), put("a", 2, 2, INT), DeleteSubjectRecord("a", 1))
    assert numbers(state.versions("a")) == [2]
    assert numbers(state.versions("a", ALL)) == [1, 2]
    assert numbers(state.versions("a", Deleted(only=True))) == [1]
    assert state.content_of(".", 1) == STRING
    assert state.uses_of(".", 1) == []
    assert state.next_version("a") == 3


def test_a_permanent_deletion_frees_the_id_after_its_last_use() -> None:
    state = state_of(put("a", 1, 1), put("b", 1, 1), SchemaRecord("a", 1, None))
    assert state.content_of(".", 1) == STRING
    state.apply(SchemaRecord("b", 1, None))
    assert state.content_of(".", 1) is None
    assert state.id_of(".", STRING) is None
    assert state.subjects() == []


def test_referents_are_known_until_they_are_deleted() -> None:
    content = Content("AVRO", '"x"', (Reference("x", "a", 1),))
    state = state_of(put("a", 1, 1), put("b", 1, 2, content))
    assert [each.subject for each in state.referents("a", 1)] == ["b"]
    state.apply(DeleteSubjectRecord("b", 1))
    assert state.referents("a", 1) == []


def test_references_within_a_context_stay_in_it() -> None:
    content = Content("AVRO", '"x"', (Reference("x", "a", 1),))
    state = state_of(put("a", 1, 1), put(":.s:a", 1, 1), put(":.s:b", 1, 2, content))
    assert state.referents("a", 1) == []
    assert [each.subject for each in state.referents(":.s:a", 1)] == [":.s:b"]


def test_clearing_removes_deleted_versions_only() -> None:
    state = state_of(put("a", 1, 1, deleted=True), put("a", 2, 2, INT), ClearSubjectRecord("a"))
    assert numbers(state.versions("a", ALL)) == [2]


def test_clearing_a_context_clears_its_subjects() -> None:
    state = state_of(
        put(":.s:a", 1, 1, deleted=True), put("a", 1, 1, deleted=True), ClearSubjectRecord(":.s:")
    )
    assert state.subjects(which=ALL) == ["a"]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        (":*:", [":.s:a-key", ":.s:b", "a-key", "a-value", "b"]),
        (":*:a", [":.s:a-key", "a-key", "a-value"]),
        ("", ["a-key", "a-value", "b"]),
        ("a-", ["a-key", "a-value"]),
        (":.s:", [":.s:a-key", ":.s:b"]),
        (":.s:b", [":.s:b"]),
    ],
)
def test_a_prefix_selects_subjects(prefix: str, found: list[str]) -> None:
    names = ("a-key", "a-value", "b", ":.s:a-key", ":.s:b")
    state = state_of(*(put(name, 1, 1) for name in names))
    assert state.subjects(prefix) == found


def test_settings_are_inherited_from_context_and_registry() -> None:
    state = state_of(
        ConfigRecord(None, {"compatibilityLevel": "FULL"}),
        ConfigRecord(":.s:", {"compatibilityLevel": "NONE"}),
        ConfigRecord(":.s:a", {"normalize": True}),
        ModeRecord(":.s:", "IMPORT"),
    )
    assert state.level("a") == "FULL"
    assert state.level(":.s:a") == "NONE"
    assert state.config_in_scope(":.s:a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert state.config(":.s:b") is None
    assert state.mode_in_scope(":.s:b") == "IMPORT"
    assert state.mode_in_scope("a") == "READWRITE"


def test_a_tombstone_returns_to_the_default() -> None:
    state = state_of(
        ConfigRecord(None, {"compatibilityLevel": "FULL"}),
        ConfigRecord(None, None),
        ModeRecord(None, "READONLY"),
        ModeRecord(None, None),
    )
    assert state.level("a") == "BACKWARD"
    assert state.mode_in_scope("a") == "READWRITE"


def test_readonly_override_is_stronger_than_a_subject() -> None:
    state = state_of(ModeRecord("a", "READWRITE"), ModeRecord(None, "READONLY_OVERRIDE"))
    assert state.mode("a") == "READONLY_OVERRIDE"
    assert state.mode_in_scope("a") == "READONLY_OVERRIDE"


def test_a_second_schema_with_an_id_does_not_replace_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = state_of(put("a", 1, 1, STRING), put("b", 1, 1, INT))
    assert state.content_of(".", 1) == STRING
    assert "two schemas have one id" in caplog.text
    state.apply(SchemaRecord("b", 1, None))
    state.apply(SchemaRecord("a", 1, None))
    assert state.content_of(".", 1) is None


def test_contexts_are_known_by_their_records_and_by_their_subjects() -> None:
    state = state_of(ContextRecord(".empty"), put(":.s:a", 1, 1), NoopRecord())
    assert state.contexts == [".", ".empty", ".s"]
