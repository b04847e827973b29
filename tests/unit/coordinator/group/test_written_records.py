"""Records that are replayed when they are written, without decoding them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barnabas.coordinator.group.group_shard import GroupShard
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value
from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.shares_world import SharesWorld
from unit.coordinator.streams_world import StreamsWorld, topology

NAMES = ("a", "b", "c")


def consumers(chance: random.Random) -> None:
    world = ConsumersWorld()
    for name in NAMES:
        world.create_topic(name, 3)
    world.subscribe("static", "a", instance_id="i", rack_id="r", server_assignor="range")
    epoch = world.subscribe("regex", subscribed_topic_regex="a|b").member_epoch
    world.replicas.world.run_for(100)
    for step in range(30):
        member = f"m{step % 4}"
        world.beat("regex", epoch)
        world.subscribe(member, *chance.sample(NAMES, chance.randint(1, 3)))
        if chance.random() < 0.3:
            world.beat(member, -1)
    world.beat("static", -2, instance_id="i")
    world.subscribe("again", "b", instance_id="i")
    world.beat("regex", -1)


def shares(chance: random.Random) -> None:
    world = SharesWorld()
    for name in NAMES:
        world.create_topic(name, 3)
    for step in range(30):
        member = f"m{step % 4}"
        world.share_beat(member, 0, *chance.sample(NAMES, chance.randint(1, 3)), rack="r")
        if chance.random() < 0.3:
            world.share_beat(member, -1)
    world.delete_topic("a")
    world.coordinator.on_topics_deleted({"a": world.id_of("a")})
    world.replicas.world.run_for(100)


def streams(chance: random.Random) -> None:
    world = StreamsWorld()
    world.create_topic("a", 3)
    world.create_topic("log", 3)
    given = topology("a", changelog="log")
    for step in range(30):
        member = f"m{step % 4}"
        fields: dict[str, object] = {"endpoint": "host", "tags": {"zone": "z"}}
        world.beat_streams(member, 0, given, **(fields if step % 2 else {}))
        if chance.random() < 0.3:
            world.beat_streams(member, -1)
    world.beat_streams("static", 0, given, instance="i")
    world.beat_streams("static", -2, instance="i")


@pytest.mark.parametrize(("play", "types"), [(consumers, 6), (shares, 6), (streams, 6)])
def test_a_written_record_is_decoded_to_the_messages_that_it_was_encoded_from(
    play: Callable[[random.Random], None], types: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a broker that loads the log has the state of the broker that wrote it."""
    real, seen = GroupShard.replay_written, set()

    def check(self: GroupShard, offset: int, record: CoordinatorRecord, *rest: int) -> None:
        key, value = record.key_message, record.value_message
        assert decode_coordinator_key(type(key), record.key) == key
        assert (record.value is None) == (value is None)
        if value is not None and record.value is not None:
            assert decode_coordinator_value(type(value), record.value) == value
        seen.add((type(key), value is None))
        real(self, offset, record, *rest)

    monkeypatch.setattr(GroupShard, "replay_written", check)
    play(random.Random(5))
    assert sum(not is_tombstone for _, is_tombstone in seen) == types
    assert any(is_tombstone for _, is_tombstone in seen)
