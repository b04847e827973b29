"""A coordinator loads a state partition with any records, and then serves its groups."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from barnabas.coordinator.runtime.shard import ShardState
from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value
from barnabas.protocol.records.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from unit.coordinator.members_world import MembersWorld
from unit.coordinator.state_records import append_record

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.one_of(st.integers(-2, 3), st.integers(-(1 << 31), (1 << 31) - 1))
INT64 = st.one_of(st.integers(-2, 3), st.integers(-(1 << 63), (1 << 63) - 1))
NAME = st.sampled_from(["", "g", "a", "b", "flights", "\N{SNOWMAN}"])

MEMBER = st.builds(
    MemberMetadata,
    member_id=NAME,
    group_instance_id=st.none() | NAME,
    client_id=NAME,
    client_host=NAME,
    rebalance_timeout=INT32,
    session_timeout=INT32,
    subscription=st.binary(max_size=12),
    assignment=st.binary(max_size=4),
)
GROUP = st.builds(
    GroupMetadataValue,
    protocol_type=NAME | st.just("consumer"),
    generation=INT32,
    protocol=st.none() | NAME,
    leader=st.none() | NAME,
    current_state_timestamp=INT64,
    members=st.lists(MEMBER, max_size=3),
)
OFFSET = st.builds(
    OffsetCommitValue,
    offset=INT64,
    leader_epoch=INT32,
    metadata=NAME,
    commit_timestamp=INT64,
    expire_timestamp=st.just(-1),
)
GROUP_KEYS = st.builds(GroupMetadataKey, group=NAME).map(encode_coordinator_key)
OFFSET_KEYS = st.builds(OffsetCommitKey, group=NAME, topic=NAME, partition=INT32).map(
    encode_coordinator_key
)
GROUP_VALUES = GROUP.map(lambda value: encode_coordinator_value(value, 3))
OFFSET_VALUES = OFFSET.map(lambda value: encode_coordinator_value(value, 3))


@st.composite
def damaged(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of `source`, cut off or with one byte changed."""
    content = bytearray(draw(source))
    if draw(st.booleans()):
        del content[draw(st.integers(0, len(content))) :]
    elif content:
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


KEYS = st.one_of(GROUP_KEYS, OFFSET_KEYS, damaged(GROUP_KEYS), damaged(OFFSET_KEYS))
VALUES = st.one_of(
    st.none(), GROUP_VALUES, OFFSET_VALUES, damaged(GROUP_VALUES), damaged(OFFSET_VALUES)
)
RECORDS = st.one_of(
    st.tuples(GROUP_KEYS, GROUP_VALUES),
    st.tuples(OFFSET_KEYS, OFFSET_VALUES),
    st.tuples(KEYS, VALUES),
)


@settings(max_examples=200)
@given(records=st.lists(RECORDS, max_size=6))
def test_groups_are_served_after_any_records_are_loaded(
    records: list[tuple[bytes, bytes | None]],
) -> None:
    world = MembersWorld()
    for key, value in records:
        append_record(world, key, value)
    world.coordinator = world.new_coordinator()
    world.load()
    driver = world.coordinator.runtime
    assert driver.state(0) is ShardState.ACTIVE
    for group_id, *_ in world.list_groups():
        world.describe(group_id)
        for each in ("", "a", "b"):
            world.heartbeat(each, 3, group_id)
            world.sync(each, 3, group=group_id)
            world.join(each, group=group_id)
            world.join(instance=each, group=group_id)
        world.leave("a", "b", group=group_id)
    # Longer than a common session, rebalance and retention check.
    world.run_for(1_000_000)
    assert world.stable(group="fresh")
    assert driver.state(0) is ShardState.ACTIVE
    world.delete(*(group_id for group_id, *_ in world.list_groups()))
