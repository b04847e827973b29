"""Admin calls without a broker: contents of requests and meaning of responses."""

from __future__ import annotations

import base64

import pytest

from barnabas.client.admin import cluster, credentials, groups, log_dirs, transactions
from barnabas.client.admin.cluster import UpgradeType
from barnabas.client.admin.log_dirs import LogDirectory, ReplicaDirectories, ReplicaInfo
from barnabas.client.errors import BrokerError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.nodes import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.protocol.messages.security import CreateDelegationTokenRequest
from barnabas.protocol.messages.transactions import WriteTxnMarkersRequest
from unit.client.admin.call_keeper import call_of

TP = TopicPartition("t", 3)


def test_a_password_is_salted_as_rfc_7677_does_in_its_example() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    given = credentials.ScramUpsertion(
        "user", credentials.ScramMechanism.SCRAM_SHA_256, "pencil", 4096, salt
    )
    hashed = credentials.salted_upsertion(given, b"")
    assert hashed.salted_password == base64.b64decode(
        "xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="
    )


def test_users_without_a_salt_get_different_salts() -> None:
    mechanism = credentials.ScramMechanism.SCRAM_SHA_512
    given = [credentials.ScramUpsertion(user, mechanism, "x", 4096) for user in ("a", "b")]
    first, second = [credentials.salted_upsertion(each, b"random") for each in given]
    assert first.salt != second.salt
    assert first.salted_password != second.salted_password


def test_a_token_for_another_owner_needs_a_newer_broker() -> None:
    call = call_of(credentials.create_delegation_token, owner="User:owner")
    request = call.build(3)
    assert isinstance(request, CreateDelegationTokenRequest)
    assert (request.owner_principal_type, request.owner_principal_name) == ("User", "owner")
    with pytest.raises(ProtocolError):
        call.build(2)
    assert isinstance(
        call_of(credentials.create_delegation_token).build(2), CreateDelegationTokenRequest
    )


def test_a_principal_has_a_kind() -> None:
    with pytest.raises(ValueError, match="User:NAME"):
        call_of(credentials.create_delegation_token, owner="owner").build(3)


def test_static_members_are_removed_by_their_instance_id() -> None:
    members = [groups.MemberToRemove("m-1", "i-1"), groups.MemberToRemove("m-2")]
    call = call_of(groups.remove_members, "g", members)
    request = call.build(5)
    assert isinstance(request, LeaveGroupRequest)
    assert [(each.member_id, each.group_instance_id) for each in request.members] == [
        ("", "i-1"),
        ("m-2", None),
    ]
    response = LeaveGroupResponse(
        error_code=0,
        members=[
            MemberResponse(member_id="", group_instance_id="i-1", error_code=0),
            MemberResponse(
                member_id="m-2", group_instance_id=None, error_code=ErrorCode.UNKNOWN_MEMBER_ID
            ),
        ],
    )
    found = call.read(response)
    assert found[members[0]] is None
    assert isinstance(found[members[1]], BrokerError)


def test_others_cannot_be_removed_through_an_old_broker() -> None:
    call = call_of(groups.remove_members, "g", [groups.MemberToRemove("m")])
    with pytest.raises(ProtocolError):
        call.build(2)


def test_features_of_old_brokers_are_downgraded_by_another_field() -> None:
    call = call_of(cluster.update_features, {"f": 0}, kind=UpgradeType.SAFE_DOWNGRADE)
    old, new = call.build(0), call.build(2)
    assert isinstance(old, UpdateFeaturesRequest)
    assert isinstance(new, UpdateFeaturesRequest)
    assert old.feature_updates[0].allow_downgrade
    assert new.feature_updates[0].upgrade_type == 2
    refused = UpdateFeaturesResponse(
        error_code=0,
        error_message=None,
        results=[
            UpdatableFeatureResult(
                feature="f",
                error_code=ErrorCode.FEATURE_UPDATE_FAILED,
                error_message="because",
            )
        ],
    )
    with pytest.raises(BrokerError, match="because"):
        call.read(refused)


def test_a_replica_that_moves_is_in_two_directories() -> None:
    now, later = (
        LogDirectory(path, None, 1, 1, {TP: ReplicaInfo(1, lag, is_future)})
        for path, lag, is_future in (("/1", 0, False), ("/2", 7, True))
    )
    assert log_dirs.directories_of(TP, [later, now]) == ReplicaDirectories("/1", 0, "/2", 7)


def test_the_marker_of_an_abort_contains_a_coordinator_epoch() -> None:
    given = transactions.AbortableTransaction(TP, 5, 2)
    request = call_of(transactions.abort_transaction, given).build(1)
    assert isinstance(request, WriteTxnMarkersRequest)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (5, 2, 0)
    assert marker.transaction_result is False
