"""The state of share partitions: responses and records of the same requests on both brokers.

Topic ids and times differ and are normalized. All else is compared byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_table import ApiKey
from differential.broker_pair import SETTINGS
from differential.internal_records import differing
from differential.scene import Scene
from differential.share_state import (
    DELETE,
    READ,
    SUMMARY,
    TOPIC_PARTITIONS,
    WRITE,
    SharedTopic,
    share_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Pair

    Story = Callable[[SharedTopic], None]

pytestmark = pytest.mark.conformance

PARTITIONS = int(SETTINGS["share.coordinator.state.topic.num.partitions"])
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
LONGEST = (1 << 63) - 1


def missing_state(shared: SharedTopic) -> None:
    shared.compare_state()
    shared.write(start_offset=5)
    shared.delete()
    shared.compare_state(leader_epoch=3)


def repeated_initialization(shared: SharedTopic) -> None:
    for state_epoch, start_offset in (
        (1, -1),
        (1, 7),
        (0, 9),
        (5, 0),
        (4, 1),
        (-1, 3),
        (6, 1 << 40),
    ):
        shared.initialize(state_epoch, start_offset)
        shared.compare_state()
    shared.initialize(0, 0, partition=1)
    shared.initialize(0, 0, partition=2)
    shared.initialize(0, 0, partition=-1)
    shared.compare_state(partition=2)
    shared.compare_state(partition=-1)
    shared.delete(partition=2)
    shared.delete(partition=-1)


def leader_epochs(shared: SharedTopic) -> None:
    shared.initialize(1, 10)
    shared.write((10, 12, ACKNOWLEDGED, 1), state_epoch=1, leader_epoch=3)
    for leader_epoch in (3, 2, 5, 5, 4, 0, -1):
        shared.compare_state(leader_epoch)
        shared.write((13, 13, ARCHIVED, 2), state_epoch=1, leader_epoch=leader_epoch)
    # Initialization sets the leader epoch of the state back, but not the one that is checked.
    shared.initialize(2, 20)
    shared.compare_state(4)
    shared.compare_state(5)


def state_epochs(shared: SharedTopic) -> None:
    shared.initialize(3, 10)
    for state_epoch in (3, 2, 4, 0, -1, 3):
        shared.write((10, 10, ACKNOWLEDGED, 1), state_epoch=state_epoch)
        shared.compare_state()


def start_offsets_and_complete_counts(shared: SharedTopic) -> None:
    shared.initialize(0, 10)
    for start_offset, count in (
        (10, 3), (10, 1), (10, 5), (12, 1), (11, 9), (-1, 7), (13, -1), (14, 0), (9, 4), (-1, -1)
    ):  # fmt: skip
        shared.write(start_offset=start_offset, delivery_complete_count=count)
        shared.compare_state()


def overlapping_batches(shared: SharedTopic) -> None:
    shared.initialize(0, 100)
    shared.write((100, 120, AVAILABLE, 1), (105, 110, ACKNOWLEDGED, 1), start_offset=100)
    shared.compare_state()
    shared.write((108, 130, ARCHIVED, 2), (95, 101, AVAILABLE, 5))
    shared.compare_state()
    shared.write((131, 140, ARCHIVED, 2), (150, 150, AVAILABLE, 1), (149, 149, AVAILABLE, 1))
    shared.compare_state()
    shared.write((100, 160, ACKNOWLEDGED, 3), start_offset=104)
    shared.compare_state()
    # Out of order, repeated, below the start offset, and adjacent.
    shared.write(
        (170, 171, AVAILABLE, 1), (165, 169, AVAILABLE, 1), (165, 169, AVAILABLE, 1),
        (1, 50, ARCHIVED, 9), (90, 105, ARCHIVED, 4),
    )  # fmt: skip
    shared.compare_state()
    shared.write((172, 180, AVAILABLE, 1), (190, 200, AVAILABLE, 2), start_offset=171)
    shared.compare_state()


def snapshots(shared: SharedTopic) -> None:
    shared.initialize(1, 0)
    for offset in range(13):
        shared.write(
            (offset, offset, ACKNOWLEDGED if offset % 3 else ARCHIVED, 1),
            state_epoch=1,
            start_offset=offset // 4,
            delivery_complete_count=offset,
        )
    shared.compare_state()
    shared.compare_state(7)
    for offset in range(6):
        shared.write((offset, offset + 20, AVAILABLE, offset), state_epoch=1, leader_epoch=7)
    shared.initialize(2, 3)
    for _ in range(7):
        shared.write(state_epoch=2, leader_epoch=8)
    shared.compare_state(9)


def deleted_and_initialized_again(shared: SharedTopic) -> None:
    shared.initialize(5, 10)
    shared.write((10, 10, ACKNOWLEDGED, 1), state_epoch=5, leader_epoch=6)
    shared.delete()
    shared.delete()
    shared.compare_state()
    # The epochs are forgotten with the state.
    shared.initialize(1, 3)
    shared.write((4, 4, ACKNOWLEDGED, 1), state_epoch=1, leader_epoch=2)
    shared.compare_state(2)


def batches_that_end_before_they_begin(shared: SharedTopic) -> None:
    shared.initialize(0, 10)
    shared.write((20, 15, AVAILABLE, 1), (11, 12, AVAILABLE, 1))
    shared.write((16, 15, AVAILABLE, 1), (11, 12, AVAILABLE, 1))
    shared.compare_state()
    # A single batch is not checked, unless it is merged with others.
    shared.write((20, 15, AVAILABLE, 1))
    shared.compare_state()
    shared.write((21, 15, AVAILABLE, 2))
    shared.write((30, 31, AVAILABLE, 2))
    shared.compare_state()
    shared.write(start_offset=16)
    shared.compare_state()
    shared.write((30, LONGEST, AVAILABLE, 2))
    shared.write((30, LONGEST, AVAILABLE, 2), (31, 32, AVAILABLE, 3))
    shared.compare_state()


def values_out_of_range(shared: SharedTopic) -> None:
    shared.initialize(0, -5)
    shared.compare_state()
    shared.write((-3, -1, 3, -1), (0, 4, -128, 32767), start_offset=-4)
    shared.compare_state()
    shared.write((2, 3, 127, 32767), start_offset=-1, delivery_complete_count=-7)
    shared.compare_state()


def several_partitions_at_once(shared: SharedTopic) -> None:
    shared.initialize(0, 5)
    shared.initialize(0, 6, partition=1)
    change = {"state_epoch": 0, "leader_epoch": 1, "start_offset": 8, "state_batches": []}
    shared.compare(WRITE, {"partition": 0, **change}, {"partition": 1, **change})
    # The same share partition twice: the last result counts.
    shared.compare(READ, {"partition": 1, "leader_epoch": 4}, {"partition": 1, "leader_epoch": 3})
    shared.compare(SUMMARY, {"partition": 0}, {"partition": 1}, {"partition": 9})
    shared.compare(DELETE, {"partition": 0}, {"partition": 9})


STORIES = (
    missing_state,
    repeated_initialization,
    leader_epochs,
    state_epochs,
    start_offsets_and_complete_counts,
    overlapping_batches,
    snapshots,
    deleted_and_initialized_again,
    batches_that_end_before_they_begin,
    values_out_of_range,
    several_partitions_at_once,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_responses_and_records_are_equal(pair: Pair, story: Story) -> None:
    scene = Scene(pair, ApiKey.WRITE_SHARE_GROUP_STATE, f"share-state-{story.__name__}", 1)
    topic = scene.topic(TOPIC_PARTITIONS)
    # Two groups, whose states are independent.
    groups = [f"first-{topic}", f"second-{topic}"]
    for group in groups:
        story(SharedTopic(scene, group, topic))
    found = list(scene.unexpected({}, set()))
    assert not found, "\n".join(found)
    kafka, barnabas = (share_records(side, groups, PARTITIONS) for side in pair.sides())
    assert kafka == barnabas, differing(kafka, barnabas)
    assert any("type=0" in line for line in kafka) != (story is missing_state)


def test_the_state_of_deleted_topics_is_deleted(pair: Pair) -> None:
    scene = Scene(pair, ApiKey.DELETE_TOPICS, "share-state-deleted-topics", 6)
    kept, deleted = scene.topic(TOPIC_PARTITIONS), scene.topic(TOPIC_PARTITIONS)
    group = scene.name("group")
    for topic in (kept, deleted):
        SharedTopic(scene, group, topic).initialize(1, 5)
    scene.do(ApiKey.DELETE_TOPICS, 5, {"topic_names": [deleted], "timeout_ms": 10_000})
    scene.until(lambda side: "tombstone" in str(share_records(side, [group], PARTITIONS)))
    kafka, barnabas = (share_records(side, [group], PARTITIONS) for side in pair.sides())
    assert kafka == barnabas, differing(kafka, barnabas)
