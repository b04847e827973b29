"""Subscriptions and assignments in the format that members exchange."""

from __future__ import annotations

import pytest

from barnabas.client.group.assignor import Assignment, MemberSubscription
from barnabas.client.group.group_leader import (
    VERSION_MAX,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ProtocolError

OWNED = [TopicPartition("s", 0), TopicPartition("t", 1), TopicPartition("t", 2)]
FULL = MemberSubscription(["s", "t"], OWNED, b"mine", 7, "rack")


def test_a_subscription_is_decoded_as_encoded() -> None:
    read = read_subscription(write_subscription(FULL), "instance")
    assert read == FULL._replace(instance_id="instance")


@pytest.mark.parametrize(
    ("version", "read"),
    [
        (0, MemberSubscription(["s", "t"], [], b"mine")),
        (1, MemberSubscription(["s", "t"], OWNED, b"mine")),
        (2, MemberSubscription(["s", "t"], OWNED, b"mine", 7)),
        (3, FULL),
    ],
)
def test_older_versions_omit_newer_fields(version: int, read: MemberSubscription) -> None:
    assert read_subscription(write_subscription(FULL, version)) == read


def test_fields_of_later_versions_are_ignored() -> None:
    payload = write_subscription(FULL)
    later = (VERSION_MAX + 1).to_bytes(2, "big") + payload[2:] + b"more"
    assert read_subscription(later) == FULL


@pytest.mark.parametrize("version", range(VERSION_MAX + 1))
def test_an_assignment_is_decoded_as_encoded(version: int) -> None:
    assignment = Assignment(OWNED, b"yours")
    assert read_assignment(write_assignment(assignment, version)) == assignment


def test_empty_bytes_are_an_empty_assignment() -> None:
    assert read_assignment(b"") == Assignment(())


@pytest.mark.parametrize("payload", [b"\x00", b"\xff\xff", b"\x00\x00\x00\x00\x00\x09"])
def test_malformed_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_assignment(payload)
    with pytest.raises(ProtocolError):
        read_subscription(payload)
