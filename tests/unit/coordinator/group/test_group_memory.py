"""Memory limits for the members of classic groups, per group and for all groups."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group import group_base
from barnabas.coordinator.group.group_base import PENDING_IDS_MAX
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.members_world import DELAY_MS, SESSION_MS, MembersWorld, subscription

MEGABYTE = 1 << 20


@pytest.fixture
def world() -> MembersWorld:
    return MembersWorld()


def held(world: MembersWorld) -> int:
    return world.coordinator.memory.held_bytes


def large(megabytes: int) -> dict[str, bytes]:
    """Return protocols with subscriptions of this size (bytes)."""
    return {"range": subscription("flights")} | {
        f"p{number}": bytes(MEGABYTE) for number in range(megabytes)
    }


def test_a_group_cannot_exceed_its_memory_limit(world: MembersWorld) -> None:
    answers = [world.join(version=3, protocols=large(10)) for _ in range(10)]
    refused = [each.error for each in answers if each]
    assert refused == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 4
    assert held(world) < group_base.GROUP_BYTES_MAX
    polite = world.join(version=3)
    world.run_for(2 * DELAY_MS + 1)
    assert polite.one.error_code == ErrorCode.NONE
    assert {each.error for each in answers} == {
        ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED
    }  # fmt: skip


def test_the_overhead_of_small_protocols_is_counted(world: MembersWorld) -> None:
    protocols = {"range": b""} | {f"p{number}": b"" for number in range(499)}
    world.join(version=3, protocols=protocols)
    assert held(world) > 500 * 100


def test_a_rejoining_member_that_exceeds_the_group_limit_is_removed(
    world: MembersWorld,
) -> None:
    leader, follower = world.begin(2)
    before = held(world)
    answer = world.join(follower.member_id, protocols=large(65))
    assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert held(world) < before
    assert world.heartbeat(follower.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(leader.member_id).one.error_code == ErrorCode.NONE


def test_the_limit_of_all_groups_returns_a_retriable_error(
    world: MembersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_base, "TOTAL_BYTES_MAX", 10 * MEGABYTE)
    answers = [
        world.join(version=3, group=f"g{number}", protocols=large(3), session_ms=SESSION_MS)
        for number in range(5)
    ]
    assert [each.error for each in answers if each] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    world.run_for(DELAY_MS + SESSION_MS + 1)
    assert held(world) == 0, "their sessions are over"
    again = world.join(version=3, group="g9", protocols=large(3))
    world.run_for(DELAY_MS + 1)
    assert again.one.error_code == ErrorCode.NONE


def test_the_number_of_issued_member_ids_is_limited(world: MembersWorld) -> None:
    first = world.join().one.member_id
    for _ in range(PENDING_IDS_MAX - 1):
        last = world.join().one.member_id
    assert not world.join(first), "still known"
    for _ in range(PENDING_IDS_MAX):
        last = world.join().one.member_id
    group = world.group
    assert len(group.pending_join_members) == PENDING_IDS_MAX
    assert not world.join(last), "still known"
    world.run_for(10 * SESSION_MS)
    assert held(world) == 0


def test_memory_of_a_member_is_released_when_it_leaves(world: MembersWorld) -> None:
    leader, follower = world.begin(2)
    world.leave(leader.member_id, follower.member_id)
    assert held(world) == 0


def test_memory_of_a_group_is_counted_once_after_repeated_loads(
    world: MembersWorld,
) -> None:
    leader, follower = world.begin(2)
    world.sync(follower.member_id, 1)
    world.sync(leader.member_id, 1, assign={follower.member_id: b"all"})
    world.run_for(100)
    before = held(world)
    world.coordinator.runtime.on_resigned(0)
    assert held(world) == 0
    world.load(1)
    assert 0 < held(world) <= before


def test_the_number_of_protocols_of_a_member_is_limited(world: MembersWorld) -> None:
    def protocols(count: int) -> dict[str, bytes]:
        return {f"p{number}": subscription("flights") for number in range(count)}

    most = group_base.PROTOCOLS_MAX
    too_many = world.join(protocols=protocols(most + 1))
    assert too_many.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert held(world) == 0
    assert world.join(protocols=protocols(most)).error == ErrorCode.MEMBER_ID_REQUIRED
