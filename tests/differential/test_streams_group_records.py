"""Streams groups (KIP-1071): the same requests on both brokers, their responses and records.

Topic ids, hashes and times differ and are made alike.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.internal_records import differing
from differential.scene import ask
from differential.started import started_pair
from differential.streams_members import StreamsMembers, stateless
from differential.streams_offset_stories import OFFSETS
from differential.streams_stories import STORIES
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.scene import Pair

    Story = Callable[[StreamsMembers, str, str], None]

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Brokers of their own: streams groups leave topics and groups behind."""
    with started_pair(tmp_path_factory.mktemp("streams-groups")) as made:
        yield made


@pytest.mark.parametrize("story", [*STORIES, *OFFSETS], ids=lambda story: story.__name__)
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
    """The last test of this file: without the feature no group is served."""
    found = []
    for side in pair.sides():
        side.forget()
        members = StreamsMembers(side, "streams-lowered", {"streamed-lowered": 2})
        topology = stateless("streamed-lowered")
        members.join("m1", topology)
        for level, kind in ((2, 1), (0, 1), (0, 2), (0, 2)):
            _finalize(members, level, kind)
        # The coordinator learns of the level after the response.
        eventually(partial(_is_served, members, False))
        members.beat("m1", 2)
        members.join("m2", topology)
        members.beat("m1", -1)
        members.describe()
        members.listed()
        _finalize(members, 1, 2)
        _finalize(members, 1, 1)
        eventually(partial(_is_served, members, True))
        members.beat("m1", 2)
        members.describe()
        found.append([*members.lines, *members.records()])
    assert found[0] == found[1], differing(*found)


def _finalize(members: StreamsMembers, level: int, kind: int) -> None:
    """Ask for a level of streams.version; 1 raises it, and 2 lowers it without loss."""
    update = {"feature": "streams.version", "max_version_level": level, "upgrade_type": kind}
    values = {"timeout_ms": 30_000, "feature_updates": [update], "validate_only": False}
    answer = ask(members.side, ApiKey.UPDATE_FEATURES, 1, values)
    for result in answer.results:
        if not result.error_code:
            # Kafka has a message even then.
            result.error_message = None
    members.note(answer)


def _is_served(members: StreamsMembers, wanted: bool) -> bool:
    """Return whether a heartbeat is refused for its API, or not, as wanted."""
    values = {"group_id": "no-such-group", "member_id": "m", "member_epoch": 3}
    answer = ask(members.side, ApiKey.STREAMS_GROUP_HEARTBEAT, 0, values)
    return (answer.error_code != ErrorCode.UNSUPPORTED_VERSION) == wanted
