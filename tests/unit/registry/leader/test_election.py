"""The group's leader names the registry's leader, in the format of other registries."""

from __future__ import annotations

import msgspec
import pytest

from barnabas.protocol.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequestAssignment,
)
from barnabas.registry.leader.election import (
    LeaderAssigner,
    LeaderAssignment,
    RegistryIdentity,
    choose_leader,
)

# As Confluent's and Karapace's registries write them.
MEMBER = b'{"host":"a.example","port":8081,"master_eligibility":true,"scheme":"http","version":1}'
ASSIGNMENT = (
    b'{"version":1,"error":0,"master":"sr-1-5f","master_identity":{"version":1,"host":"a.example",'
    b'"port":8081,"master_eligibility":true,"scheme":"http"}}'
)


def identity(port: int, *, eligible: bool = True, leader: bool = False) -> RegistryIdentity:
    return RegistryIdentity("127.0.0.1", port, eligible, leader=leader)


def test_members_of_other_registries_are_understood() -> None:
    found = msgspec.json.decode(MEMBER, type=RegistryIdentity)
    assert found == RegistryIdentity("a.example", 8081)
    assert found.url == "http://a.example:8081"
    assignment = msgspec.json.decode(ASSIGNMENT, type=LeaderAssignment)
    assert assignment == LeaderAssignment(master="sr-1-5f", master_identity=found)


def test_a_member_has_the_names_of_other_registries() -> None:
    members = msgspec.json.decode(msgspec.json.encode(identity(8081)))
    assert members.items() >= msgspec.json.decode(MEMBER).items() - {("host", "a.example")}
    chosen = msgspec.json.decode(msgspec.json.encode(choose_leader({"m": identity(8081)})))
    assert {"version", "error", "master", "master_identity"} == set(chosen)


def test_the_smallest_address_leads_a_new_group() -> None:
    members = {"a": identity(8083), "b": identity(8081), "c": identity(8082)}
    assert choose_leader(members).master == "b"


def test_the_present_leader_stays() -> None:
    members = {"a": identity(8083, leader=True), "b": identity(8081)}
    chosen = choose_leader(members)
    assert chosen.master == "a"
    assert chosen.master_identity == members["a"]


def test_two_members_that_believe_to_lead_are_elected_anew() -> None:
    members = {"a": identity(8083, leader=True), "b": identity(8082, leader=True)}
    assert choose_leader(members).master == "b"


def test_members_that_may_not_lead_are_never_chosen() -> None:
    members = {"a": identity(8081, eligible=False), "b": identity(8082)}
    assert choose_leader(members).master == "b"
    assert choose_leader({"a": members["a"]}).master is None


def test_one_address_of_several_members_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_leader({"a": identity(8081), "b": identity(8081)}).error == 1
    assert "http://127.0.0.1:8081" in caplog.text


@pytest.mark.parametrize(
    "metadata",
    [
        *(b"", b"\xff", b"[]", b'{"host":1}', b'{"host":"\xff"}', b'{"x":' + b"[" * 100_000),
        b'{"host":"","port":1}',
        b'{"host":"a","port":0}',
        b'{"host":"a","port":1,"scheme":"ftp"}',
        b'{"host":"a@b","port":1,"leader":true}',
        b'{"host":"a/b?","port":1}',
        b'{"host":"' + b"a" * 300 + b'","port":1}',
    ],
)
def test_a_member_that_is_no_registry_does_not_prevent_the_election(metadata: bytes) -> None:
    members = [
        JoinGroupResponseMember(member_id="stranger", metadata=metadata),
        JoinGroupResponseMember(member_id="registry", metadata=MEMBER),
    ]
    found: dict[str, bytes] = {}
    errors: list[BaseException | None] = []

    def on_assigned(
        assignments: list[SyncGroupRequestAssignment], error: BaseException | None
    ) -> None:
        found.update({each.member_id: each.assignment for each in assignments})
        errors.append(error)

    joined = JoinGroupResponse(
        error_code=0, protocol_name="v0", leader="registry", member_id="registry", members=members
    )
    LeaderAssigner().assign(joined, on_assigned)
    assert errors == [None]
    assert set(found) == {"stranger", "registry"}
    chosen = msgspec.json.decode(found["registry"], type=LeaderAssignment)
    assert chosen.master == "registry"
