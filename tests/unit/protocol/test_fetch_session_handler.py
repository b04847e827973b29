"""The client's side of incremental fetch sessions (KIP-227), for followers and consumers."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import NO_TOPIC_ID, FetchSessionHandler

OLD, NEW = b"o" * 16, b"n" * 16


class Partition(NamedTuple):
    topic: str
    number: int


class Parameters(NamedTuple):
    offset: int
    topic_id: bytes = OLD


Handler = FetchSessionHandler[Partition, Parameters]
A, B = Partition("t", 0), Partition("t", 1)


def established() -> Handler:
    """Return a session with two partitions that the broker caches."""
    session = Handler()
    session.build({A: Parameters(0), B: Parameters(0)})
    assert session.on_response(ErrorCode.NONE, 9, [A, B])
    return session


def test_the_first_request_names_all_partitions_and_requests_a_session() -> None:
    request = Handler().build_all({A: Parameters(0)})
    assert (request.session_id, request.session_epoch, request.is_full) == (0, 0, True)
    assert request.to_send == {A: Parameters(0)}


def test_later_requests_name_only_changed_partitions() -> None:
    request = established().build({A: Parameters(0), B: Parameters(5)})
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert request.to_send == {B: Parameters(5)}
    assert request.partitions == {A: Parameters(0), B: Parameters(5)}
    assert not request.to_forget


def test_partitions_without_a_reported_change_stay_in_the_session() -> None:
    request = established().build({})
    assert request.partitions.keys() == {A, B}
    assert not request.to_send
    assert not request.is_empty


def test_a_removed_partition_is_forgotten() -> None:
    session = established()
    request = session.build({A: None, B: None})
    assert request.to_forget == {A: OLD, B: OLD}
    assert not request.is_empty
    session.on_response(ErrorCode.NONE, 9, [])
    assert session.build({}).is_empty


def test_build_all_forgets_the_partitions_that_are_not_requested() -> None:
    request = established().build_all({A: Parameters(0)})
    assert not request.to_send
    assert request.to_forget == {B: OLD}


def test_a_partition_whose_topic_id_changes_is_forgotten_and_sent_again() -> None:
    for request in (
        established().build({A: Parameters(0, NEW)}),
        established().build_all({A: Parameters(0, NEW), B: Parameters(0)}),
    ):
        assert request.to_forget == {A: OLD}
        assert request.to_send == {A: Parameters(0, NEW)}


def test_a_topic_without_an_id_starts_a_new_session_by_topic_names() -> None:
    session = established()
    changes = {A: Parameters(0, NO_TOPIC_ID), B: Parameters(0)}
    assert session.needs_all(changes)
    request = session.build(changes)
    assert (request.session_epoch, request.uses_topic_ids) == (0, False)
    assert request.to_send.keys() == {A, B}


def test_an_unknown_session_is_replaced_by_a_new_one() -> None:
    session = established()
    assert not session.on_response(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    request = session.build_all({A: Parameters(0)})
    assert (request.session_id, request.session_epoch) == (0, 0)


def test_after_a_wrong_epoch_a_full_request_closes_the_session() -> None:
    session = established()
    assert not session.on_response(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    request = session.build_all({A: Parameters(0)})
    assert (request.session_id, request.session_epoch) == (9, 0)
    assert request.to_send == {A: Parameters(0)}


def test_a_request_without_a_response_is_followed_by_a_full_request() -> None:
    session = established()
    session.reset()
    assert session.build_all({A: Parameters(0)}).is_full


def test_a_broker_without_space_for_sessions_gets_full_requests() -> None:
    session = Handler()
    session.build({A: Parameters(0), B: Parameters(0)})
    assert session.on_response(ErrorCode.NONE, 0, [A, B])
    assert session.needs_all({})
    assert session.build({A: Parameters(0), B: Parameters(3)}).to_send.keys() == {A, B}


def test_a_partial_response_to_a_full_request_starts_no_session() -> None:
    """The broker does not cache the partitions that it left out."""
    session = Handler()
    session.build({A: Parameters(0), B: Parameters(0)})
    assert not session.on_response(ErrorCode.NONE, 9, [A])
    request = session.build({A: Parameters(0), B: Parameters(0)})
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.to_send.keys() == {A, B}


def test_a_response_with_an_unrequested_partition_ends_the_session() -> None:
    session = established()
    session.build({})
    assert not session.on_response(ErrorCode.NONE, 9, [A, Partition("t", 2)])
    request = session.build({A: Parameters(0), B: Parameters(0)})
    assert (request.session_id, request.session_epoch) == (9, 0)


def test_partitions_are_not_checked_if_the_caller_checks_them() -> None:
    session = established()
    session.build({})
    assert session.on_response(ErrorCode.NONE, 9)
    assert session.build({}).session_epoch == 2


def test_the_final_request_closes_the_session() -> None:
    request = established().build_final()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (9, -1)
    assert (request.to_send, request.to_forget) == ({}, {})
    assert Handler().build_final() is None


@pytest.mark.parametrize("builds_all", [True, False])
def test_a_topic_added_to_a_session_is_known_by_its_id(builds_all: bool) -> None:
    """Responses name topics by id."""
    session = established()
    assert session.topic_name(NEW) is None
    added = {Partition("added", 0): Parameters(0, NEW)}
    if builds_all:
        session.build_all({A: Parameters(0), **added})
    else:
        session.build(added)
    assert session.topic_name(NEW) == "added"
    assert session.topic_name(OLD) == "t"
