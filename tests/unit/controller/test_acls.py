"""Validation of access control entries, and their creation and deletion."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.controller import acls as module
from barnabas.controller.acls import AclControl
from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType
from barnabas.runtime.rng import SeededRng
from steps import counted, finish
from unit.controller.parts import applied, view_of

_FIELDS = {
    "resource_type": AclResourceType.TOPIC,
    "resource_name": "t",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:a",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermission.ALLOW,
}
_ANYTHING = {
    "resource_type_filter": AclResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}


def entry(**changes: object) -> AclCreation:
    return AclCreation(**{**_FIELDS, **changes})


def wanted(**changes: object) -> DeleteAclsFilter:
    return DeleteAclsFilter(**{**_ANYTHING, **changes})


def control(*, has_authorizer: bool = True) -> AclControl:
    return AclControl(SeededRng(1), has_authorizer=has_authorizer)


def image_at(metadata_version: int = 33) -> ClusterImage:
    delta = ClusterDelta(ClusterImage())
    delta.replay(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
    return delta.apply(Provenance(0, 1, 0))


def create(image: ClusterImage, *entries: AclCreation) -> tuple[ClusterImage, list[Any]]:
    result = finish(control().create(view_of(image), CreateAclsRequest(creations=list(entries))))
    return applied(image, result.records), result.response.results


def delete(image: ClusterImage, *filters: DeleteAclsFilter) -> tuple[ClusterImage, list[Any]]:
    result = finish(control().delete(view_of(image), DeleteAclsRequest(filters=list(filters))))
    return applied(image, result.records), result.response.filter_results


def names(image: ClusterImage) -> list[str]:
    return sorted(acl.resource_name for _, acl in image.acls)


def test_each_new_entry_gets_an_id_of_its_own() -> None:
    image, results = create(image_at(), entry(), entry(resource_name="u"))
    assert [each.error_code for each in results] == [ErrorCode.NONE] * 2
    assert names(image) == ["t", "u"]
    assert len(dict(image.acls)) == 2


def test_an_entry_that_exists_is_created_with_success_and_without_a_record() -> None:
    image, _ = create(image_at(), entry())
    request = CreateAclsRequest(
        creations=[entry(), entry(resource_name="u"), entry(resource_name="u")]
    )
    result = finish(control().create(view_of(image), request))
    assert [each.error_code for each in result.response.results] == [ErrorCode.NONE] * 3
    assert len(result.records) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": AclResourceType.ANY},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_pattern_type": PatternType.MATCH},
        {"resource_pattern_type": 99},
        {"operation": AclOperation.ANY},
        {"operation": 99},
        {"permission_type": AclPermission.ANY},
        {"permission_type": 99},
        {"principal": "mary"},
        {"host": ""},
        {"host": "10.0.0.0/99"},
        {"host": "1:2/x"},
        {"resource_type": AclResourceType.CLUSTER, "resource_name": "my-cluster"},
    ],
)
def test_an_invalid_entry_is_refused_and_the_others_are_created(changes: dict[str, object]) -> None:
    image, results = create(image_at(), entry(**changes), entry(resource_name="valid"))
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert results[0].error_message
    assert names(image) == ["valid"]


def test_a_range_of_hosts_needs_a_recent_metadata_version() -> None:
    _, results = create(image_at(31), entry(host="10.0.0.0/8"))
    assert results[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    image, results = create(image_at(32), entry(host="10.0.0.0/8"))
    assert results[0].error_code == ErrorCode.NONE
    assert names(image) == ["t"]


def test_without_an_authorizer_every_entry_and_filter_is_refused() -> None:
    view, unarmed = view_of(image_at()), control(has_authorizer=False)
    created = finish(unarmed.create(view, CreateAclsRequest(creations=[entry(), entry()])))
    deleted = finish(unarmed.delete(view, DeleteAclsRequest(filters=[wanted()])))
    assert not created.records
    assert not deleted.records
    disabled = ErrorCode.SECURITY_DISABLED
    assert [each.error_code for each in created.response.results] == [disabled] * 2
    assert [each.error_code for each in deleted.response.filter_results] == [disabled]


def image_with_names(*resource_names: str) -> ClusterImage:
    return create(image_at(), *(entry(resource_name=name) for name in resource_names))[0]


def test_a_filter_deletes_and_returns_the_matching_entries() -> None:
    image, results = delete(image_with_names("t", "u"), wanted(resource_name_filter="t"))
    assert names(image) == ["u"]
    assert [each.resource_name for each in results[0].matching_acls] == ["t"]


def test_two_filters_may_match_the_same_entry() -> None:
    image, results = delete(image_with_names("t"), wanted(), wanted())
    assert names(image) == []
    assert [len(each.matching_acls) for each in results] == [1, 1]


def test_a_filter_by_match_selects_all_patterns_that_apply_to_a_name() -> None:
    image, _ = create(
        image_at(),
        entry(resource_name="orders"),
        entry(resource_name="ord", resource_pattern_type=PatternType.PREFIXED),
        entry(resource_name="*"),
        entry(resource_name="ord"),
        entry(resource_name="other"),
    )
    _, results = delete(
        image, wanted(resource_name_filter="orders", pattern_type_filter=PatternType.MATCH)
    )
    found = {(each.pattern_type, each.resource_name) for each in results[0].matching_acls}
    assert found == {
        (PatternType.LITERAL, "orders"),
        (PatternType.PREFIXED, "ord"),
        (PatternType.LITERAL, "*"),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type_filter": 99},
        {"pattern_type_filter": 99},
        {"operation": 99},
        {"permission_type": 99},
    ],
)
def test_a_filter_with_an_unknown_number_deletes_nothing(changes: dict[str, object]) -> None:
    image, results = delete(image_with_names("t"), wanted(**changes))
    assert results[0].error_code == ErrorCode.INVALID_REQUEST
    assert names(image) == ["t"]


def test_more_entries_than_kafka_deletes_at_once_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DELETED_MAX", 2)
    image, results = delete(image_with_names("t", "u", "v"), wanted())
    assert results[0].error_code == ErrorCode.INVALID_REQUEST
    assert len(names(image)) == 3


def test_a_request_that_compares_too_much_is_refused_before_the_first_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "COMPARED_MAX", 5)
    image = image_with_names("t", "u", "v")
    request = DeleteAclsRequest(filters=[wanted(), wanted()])
    result, steps = counted(control().delete(view_of(image), request))
    assert not result.records
    assert {each.error_code for each in result.response.filter_results} == {
        ErrorCode.INVALID_REQUEST
    }
    assert steps <= 3


def test_a_comparison_with_many_entries_takes_several_steps() -> None:
    image = image_with_names(*(f"topic-{number}" for number in range(500)))
    request = DeleteAclsRequest(filters=[wanted(resource_name_filter="none")])
    assert counted(control().delete(view_of(image), request))[1] >= 5
