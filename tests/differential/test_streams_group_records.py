"""Streams groups (KIP-1071): responses and records of the same requests on both brokers.

Topic ids, hashes and times differ and are normalized.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.broker_pair import started_pair
from differential.internal_records import differing
from differential.scene import exchange
from differential.streams_members import StreamsMembers, stateless
from differential.streams_offset_stories import OFFSETS
from differential.streams_stories import STORIES
from selection import nightly_unless
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.scene import Pair

    Story = Callable[[StreamsMembers, str, str], None]

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Start separate brokers, because streams groups leave topics and groups behind."""
    with started_pair(tmp_path_factory.mktemp("streams-groups")) as made:
        yield made


@pytest.mark.parametrize(
    "story",
    nightly_unless(lambda story: story in STORIES or story is OFFSETS[0], [*STORIES, *OFFSETS]),
    ids=lambda story: story.__name__,
)
def test_responses_and_records_are_those_of_kafka(pair: Pair, story: Story) -> None:
    found = []
    for side in pair.sides():
        side.forget()
        first, second = (f"streamed-{story.__name__}-{each}" for each in "ab")
        members = StreamsMembers(side, f"streams-{story.__name__}", {first: 3, second: 1})
        story(members, first, second)
        found.append([*members.lines, *members.records()])
    assert found[0]
    assert found[0] == found[1], differing(*found)


def test_streams_version_is_lowered_and_raised(pair: Pair) -> None:
    """This test must be the last of its file: without the feature no group is served."""
    found = []
    for side in pair.sides():
        side.forget()
        members = StreamsMembers(side, "streams-lowered", {"streamed-lowered": 2})
        topology = stateless("streamed-lowered")
        members.join("m1", topology)
        for level, kind in ((2, 1), (0, 1), (0, 2), (0, 2)):
            _finalize(members, level, kind)
        # The coordinator applies the level after the response.
        eventually(partial(_is_served, members, False))
        members.heartbeat("m1", 2)
        members.join("m2", topology)
        members.heartbeat("m1", -1)
        members.describe()
        members.listed()
        _finalize(members, 1, 2)
        _finalize(members, 1, 1)
        eventually(partial(_is_served, members, True))
        members.heartbeat("m1", 2)
        members.describe()
        found.append([*members.lines, *members.records()])
    assert found[0] == found[1], differing(*found)


def _finalize(members: StreamsMembers, level: int, kind: int) -> None:
    """Request a level of streams.version; `kind` is 1 for an upgrade, 2 for a safe downgrade."""
    update = {"feature": "streams.version", "max_version_level": level, "upgrade_type": kind}
    values = {"timeout_ms": 30_000, "feature_updates": [update], "validate_only": False}
    response = exchange(members.side, ApiKey.UPDATE_FEATURES, 1, values)
    for result in response.results:
        if not result.error_code:
            # Kafka sends a message even without an error.
            result.error_message = None
    members.note(response)


def _is_served(members: StreamsMembers, expected: bool) -> bool:
    """Return whether the broker serves heartbeats, or refuses them, as expected."""
    values = {"group_id": "no-such-group", "member_id": "m", "member_epoch": 3}
    response = exchange(members.side, ApiKey.STREAMS_GROUP_HEARTBEAT, 0, values)
    return (response.error_code != ErrorCode.UNSUPPORTED_VERSION) == expected
