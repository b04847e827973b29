"""Subscriptions that members of classic groups write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.group.classic.classic_member import decode_subscription, subscribed_topics
from barnabas.coordinator.group.group_base import TOPIC_NAMES_MAX
from barnabas.protocol.errors import ProtocolError
from unit.coordinator.members_world import subscription

if TYPE_CHECKING:
    from collections.abc import Callable


PLAIN = subscription("a", "b")


@pytest.mark.parametrize("version", [b"\0\0", b"\0\1", b"\0\x63", b"\xff\xff"])
def test_topics_are_read_whatever_version_the_member_writes(version: bytes) -> None:
    assert subscribed_topics(version + PLAIN[2:]) == ["a", "b"]


def test_the_other_fields_are_read_by_the_version() -> None:
    assert decode_subscription(PLAIN).topics == ["a", "b"]
    with pytest.raises(ProtocolError):
        decode_subscription(b"\0\1" + PLAIN[2:])


@pytest.mark.parametrize("read", [subscribed_topics, decode_subscription])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        PLAIN[:-4],
        subscription(*map(str, range(TOPIC_NAMES_MAX + 1))),
        PLAIN + bytes(4 << 20),
    ],
    ids=["empty", "half a version", "no user data", "many topics", "many bytes"],
)
def test_damaged_and_large_subscriptions_are_refused(
    read: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(ProtocolError):
        read(data)


def test_a_subscription_at_the_limit_is_read() -> None:
    data = subscription(*map(str, range(TOPIC_NAMES_MAX)))
    assert len(subscribed_topics(data)) == TOPIC_NAMES_MAX
