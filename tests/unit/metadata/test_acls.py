"""Access control entries in the image: the index, changes, snapshots."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from barnabas.metadata.acls import Acl, AclsImage
from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.metadata.topics import MetadataReplayError
from barnabas.protocol.records.security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str, pattern: int = LITERAL, kind: int = TOPIC, principal: str = "User:a") -> Acl:
    return Acl(kind, name, pattern, principal, "*", AclOperation.READ, AclPermission.ALLOW)


def image_of(*acls: Acl) -> AclsImage:
    return AclsImage().evolve({number.to_bytes(16): each for number, each in enumerate(acls)})


def names_applying_to(image: AclsImage, name: str, kind: int = TOPIC) -> list[tuple[int, str]]:
    return [
        (each.pattern_type, each.resource_name)
        for entries in image.applying_to(kind, name)
        for acls in entries.values()
        for each in acls
    ]


def test_literal_prefixed_and_wildcard_patterns_apply_to_a_name() -> None:
    image = image_of(
        acl("orders"), acl("orders-eu"), acl("ord", PREFIXED), acl("orders", PREFIXED), acl("*")
    )
    assert names_applying_to(image, "orders") == [
        (LITERAL, "orders"),
        (PREFIXED, "ord"),
        (PREFIXED, "orders"),
        (LITERAL, "*"),
    ]
    assert names_applying_to(image, "or") == [(LITERAL, "*")]


def test_patterns_of_another_resource_type_do_not_apply() -> None:
    image = image_of(acl("orders", kind=GROUP), acl("o", PREFIXED, GROUP), acl("*", kind=GROUP))
    assert names_applying_to(image, "orders") == []
    assert len(names_applying_to(image, "orders", GROUP)) == 3


def test_a_literal_pattern_that_is_a_prefix_of_the_name_does_not_apply() -> None:
    assert names_applying_to(image_of(acl("ord")), "orders") == []


def test_a_prefixed_star_is_a_prefix_and_not_a_wildcard() -> None:
    image = image_of(acl("*", PREFIXED))
    assert names_applying_to(image, "orders") == []
    assert names_applying_to(image, "*orders") == [(PREFIXED, "*")]


def test_the_wildcard_applies_once_to_a_resource_that_is_named_star() -> None:
    assert names_applying_to(image_of(acl("*")), "*") == [(LITERAL, "*")]


def test_two_ids_of_equal_entries_count_as_one_entry_until_both_are_removed() -> None:
    image = AclsImage().evolve({b"1" * 16: acl("t"), b"2" * 16: acl("t")})
    image = image.evolve({b"1" * 16: None})
    assert acl("t") in image
    image = image.evolve({b"2" * 16: None})
    assert acl("t") not in image
    assert names_applying_to(image, "t") == []
    assert len(image) == 0


def test_an_old_image_does_not_see_later_changes() -> None:
    first = image_of(acl("t"), acl("t", PREFIXED))
    second = first.evolve({(0).to_bytes(16): None, b"9" * 16: acl("t", principal="User:b")})
    assert acl("t") in first
    assert acl("t", principal="User:b") not in first
    assert acl("t") not in second
    assert len(first) == 2


def test_random_changes_give_the_same_index_as_a_scan() -> None:
    rng = random.Random(7)
    letters = "ab*"
    image, expected = AclsImage(), {}
    for _ in range(200):
        changes: dict[bytes, Acl | None] = {}
        for _ in range(rng.randint(1, 5)):
            acl_id = rng.randint(0, 30).to_bytes(16)
            name = "".join(rng.choices(letters, k=rng.randint(1, 4)))
            pattern = rng.choice([LITERAL, PREFIXED])
            made = acl(name, pattern, rng.choice([TOPIC, GROUP]), rng.choice(["User:a", "User:b"]))
            made = msgspec.structs.replace(made, permission=rng.choice([ALLOW, DENY]))
            changes[acl_id] = made if rng.random() < 0.6 else None
        image = image.evolve(changes)
        expected.update(changes)
        held = [each for each in expected.values() if each is not None]
        assert sorted(map(repr, dict(image).values())) == sorted(map(repr, held))
        name = "".join(rng.choices(letters, k=rng.randint(1, 5)))
        applying = {
            (each.pattern_type, each.resource_name)
            for each in held
            if each.resource_type == TOPIC
            and (
                name.startswith(each.resource_name)
                if each.pattern_type == PREFIXED
                else each.resource_name in {name, "*"}
            )
        }
        found = names_applying_to(image, name)
        assert set(found) == applying
        for permission, principal in itertools.product([ALLOW, DENY], ["User:a", "User:b"]):
            of_type = list(image.of_type(TOPIC, permission, [principal]))
            assert len(of_type) == len(set(of_type))
            assert set(of_type) == {
                each
                for each in held
                if (each.resource_type, each.permission) == (TOPIC, permission)
                and each.principal == principal
            }


def record(acl_id: bytes, name: str) -> AccessControlEntryRecord:
    return acl(name).to_record(acl_id)


def test_records_change_the_image_and_a_snapshot_restores_it() -> None:
    delta = ClusterDelta(ClusterImage())
    delta.replay(record(b"1" * 16, "one"))
    delta.replay(record(b"2" * 16, "two"))
    image = delta.apply(Provenance(1, 1, 1))
    delta = ClusterDelta(image)
    delta.replay(RemoveAccessControlEntryRecord(id=b"1" * 16))
    assert not delta.is_empty
    image = delta.apply(Provenance(2, 1, 1))
    assert dict(image.acls) == {b"2" * 16: acl("two")}

    restored = ClusterDelta(ClusterImage())
    for each, _ in image.to_records():
        restored.replay(each)
    restored.finish_snapshot()
    assert dict(restored.apply(Provenance(2, 1, 1)).acls) == dict(image.acls)


def test_a_snapshot_removes_the_entries_that_it_does_not_contain() -> None:
    delta = ClusterDelta(ClusterImage())
    delta.replay(record(b"1" * 16, "one"))
    image = delta.apply(Provenance(1, 1, 1))
    delta = ClusterDelta(image)
    delta.replay(record(b"2" * 16, "two"))
    delta.finish_snapshot()
    assert list(dict(delta.apply(Provenance(2, 1, 1)).acls)) == [b"2" * 16]


def test_the_removal_of_an_unknown_entry_contradicts_the_log() -> None:
    delta = ClusterDelta(ClusterImage())
    with pytest.raises(MetadataReplayError, match="unknown ACL"):
        delta.replay(RemoveAccessControlEntryRecord(id=b"1" * 16))


def test_an_image_without_changed_entries_shares_them_with_its_predecessor() -> None:
    delta = ClusterDelta(ClusterImage())
    delta.replay(record(b"1" * 16, "one"))
    image = delta.apply(Provenance(1, 1, 1))
    assert ClusterDelta(image).apply(Provenance(2, 1, 1)).acls is image.acls
