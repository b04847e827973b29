"""Incremental fetch sessions (KIP-227) as the client keeps them."""

from __future__ import annotations

from barnabas.client.fetch_session import FetchPosition, FetchSession
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = b"i" * 16, b"o" * 16


def at(offset: int, topic_id: bytes = ID) -> FetchPosition:
    return FetchPosition(offset, 0, 1024, topic_id)


def established() -> FetchSession:
    session = FetchSession()
    session.build({A: at(0), B: at(0)}, uses_ids=True)
    session.on_answer(0, 77)
    return session


def test_the_first_request_names_all_and_asks_for_a_session() -> None:
    request = FetchSession().build({A: at(0)}, uses_ids=True)
    assert (request.session_id, request.session_epoch, request.is_full) == (0, 0, True)
    assert set(request.partitions) == {A}


def test_later_requests_name_only_what_moved() -> None:
    request = established().build({A: at(5), B: at(0)}, uses_ids=True)
    assert (request.session_id, request.session_epoch) == (77, 1)
    assert set(request.partitions) == {A}
    assert not request.forgotten


def test_what_is_no_longer_wanted_is_forgotten() -> None:
    request = established().build({A: at(0)}, uses_ids=True)
    assert not request.partitions
    assert set(request.forgotten) == {B}


def test_a_topic_with_a_new_id_is_forgotten_and_added() -> None:
    request = established().build({A: at(0, OTHER_ID), B: at(0)}, uses_ids=True)
    assert request.forgotten == {A: at(0)}
    assert request.partitions == {A: at(0, OTHER_ID)}


def test_an_unknown_session_is_replaced_by_a_new_one() -> None:
    session = established()
    session.on_answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    request = session.build({A: at(0)}, uses_ids=True)
    assert (request.session_id, request.session_epoch) == (0, 0)


def test_a_wrong_epoch_closes_the_session_with_a_full_request() -> None:
    session = established()
    session.on_answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    request = session.build({A: at(0)}, uses_ids=True)
    assert (request.session_id, request.session_epoch) == (77, 0)
    assert set(request.partitions) == {A}


def test_a_request_without_an_answer_is_followed_by_a_full_one() -> None:
    session = established()
    session.reset()
    assert session.build({A: at(0)}, uses_ids=True).is_full


def test_a_change_between_names_and_ids_needs_a_full_request() -> None:
    assert established().build({A: at(0, bytes(16))}, uses_ids=False).is_full


def test_a_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    session.build({A: at(0)}, uses_ids=True)
    session.on_answer(0, 0)
    assert session.build({A: at(3)}, uses_ids=True).is_full
