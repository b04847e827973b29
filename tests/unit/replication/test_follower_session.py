"""Content of a follower's requests in a fetch session (KIP-227)."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import ReplicationConfig
from barnabas.replication.fetcher.follower_session import (
    NO_TOPIC_ID,
    AskedPartition,
    FollowerSession,
)
from barnabas.replication.fetcher.leader_endpoint import LeaderEndpoint
from barnabas.replication.fetcher_settings import FetcherSettings
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.following_broker import ScriptedChannel

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = b"o" * 16, b"n" * 16


def asked(offset: int, topic_id: bytes = OLD) -> AskedPartition:
    return AskedPartition(topic_id, offset, 0, 0, -1)


def begun() -> FollowerSession:
    """A session with two partitions that the leader has."""
    session = FollowerSession()
    session.build({A: asked(0), B: asked(0)})
    assert session.take_answer(ErrorCode.NONE, 9, [A, B])
    return session


def test_only_what_has_changed_is_named() -> None:
    session = begun()
    request = session.build({A: asked(0), B: asked(5)})
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert request.to_send == {B: asked(5)}
    assert request.partitions == {A: asked(0), B: asked(5)}
    assert not request.to_forget


def test_who_is_not_looked_at_stays_as_it_is() -> None:
    request = begun().build({})
    assert request.partitions.keys() == {A, B}
    assert not request.to_send
    assert not request.is_empty


def test_a_topic_with_another_id_is_forgotten_and_named_anew() -> None:
    request = begun().build({A: asked(0, NEW)})
    assert request.to_forget == {A: OLD}
    assert request.to_send == {A: asked(0, NEW)}


def test_who_is_not_wanted_is_forgotten_even_if_nothing_else_is_to_be_said() -> None:
    session = begun()
    request = session.build({A: None, B: None})
    assert request.to_forget == {A: OLD, B: OLD}
    assert not request.is_empty
    session.take_answer(ErrorCode.NONE, 9, [])
    assert session.build({}).is_empty


def test_a_topic_without_an_id_makes_a_new_session_by_names() -> None:
    session = begun()
    looked_at = {A: asked(0, NO_TOPIC_ID), B: asked(0)}
    assert session.needs_all(looked_at)
    request = session.build(looked_at)
    assert (request.session_epoch, request.uses_topic_ids) == (0, False)
    assert request.to_send.keys() == {A, B}
    channel = ScriptedChannel(2, "follower")
    settings = FetcherSettings(1, lambda: 1, lambda: 18, ReplicationConfig())
    LeaderEndpoint(2, channel, settings).fetch(request, lambda *_: None)
    assert channel.version == 12


def test_a_full_request_that_is_answered_in_part_begins_no_session() -> None:
    """The leader would not know of the partitions that it left out."""
    session = FollowerSession()
    session.build({A: asked(0), B: asked(0)})
    assert not session.take_answer(ErrorCode.NONE, 9, [A])
    request = session.build({A: asked(0), B: asked(0)})
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.to_send.keys() == {A, B}


def test_an_answer_with_what_was_not_asked_for_ends_the_session() -> None:
    session = begun()
    session.build({})
    assert not session.take_answer(ErrorCode.NONE, 9, [A, TopicPartition("t", 2)])
    request = session.build({A: asked(0), B: asked(0)})
    assert (request.session_id, request.session_epoch) == (9, 0)


def test_a_leader_without_room_for_a_session_is_asked_for_all_again() -> None:
    session = FollowerSession()
    session.build({A: asked(0), B: asked(0)})
    assert session.take_answer(ErrorCode.NONE, 0, [A, B])
    assert session.needs_all({})
    assert session.build({A: asked(0), B: asked(3)}).to_send.keys() == {A, B}


def test_a_topic_that_is_added_to_a_session_is_known_by_its_id() -> None:
    """Answers name topics by id."""
    session = begun()
    assert session.topic_name(NEW) is None
    session.build({TopicPartition("added", 0): asked(0, NEW)})
    assert session.topic_name(NEW) == "added"
    assert session.topic_name(OLD) == "t"
