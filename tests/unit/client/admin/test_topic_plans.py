"""Plans that create and delete topics tell the client's metadata which topics are deleted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.admin import topics as plans
from barnabas.client.admin.topics import NewTopic
from barnabas.client.connections.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
from barnabas.client.errors import broker_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from barnabas.protocol.schema import Message
from unit.client.connections.metadata_responses import ID, OTHER_ID, answer


class RespondingSender:
    """Reads one response with the call that a plan sends."""

    timeout_ms = 1_000

    def __init__(self, response: Message) -> None:
        self.cluster = SimpleNamespace(metadata=MetadataCache())
        partitions = {0: PartitionInfo(0, 1, 0)}
        self.cluster.metadata.topics["t"] = TopicInfo("t", ID, False, partitions)
        self.cluster.metadata.names[ID] = "t"
        self._response = response

    def send(self, _to: int, call: Any) -> Generator[None, None, Any]:
        yield from ()
        return call.read(self._response)


def result_of(plan: Generator[Any, Any, Any]) -> Any:
    with pytest.raises(StopIteration) as done:
        next(plan)
    return done.value.value


def created(error: int = 0) -> Message:
    topic = CreatableTopicResult(name="t", topic_id=OTHER_ID, error_code=error)
    return CreateTopicsResponse(topics=[topic])


def deleted(error: int = 0) -> Message:
    result = DeletableTopicResult(name="t", topic_id=ID, error_code=error)
    return DeleteTopicsResponse(responses=[result])


def create(sender: Any) -> Any:
    return plans.create_topics(sender, [NewTopic("t")], raise_errors=False)


def delete(sender: Any) -> Any:
    return plans.delete_topics(sender, ["t"], raise_errors=False)


def delete_by_id(sender: Any) -> Any:
    return plans.delete_topics_by_id(sender, [ID], raise_errors=False)


CHANGES = {
    "created": (create, created, "t"),
    "deleted": (delete, deleted, "t"),
    "deleted by id": (delete_by_id, deleted, ID),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_deleted_topic_does_not_return_to_the_metadata(change: str) -> None:
    plan, respond, key = CHANGES[change]
    sender = RespondingSender(respond())
    assert result_of(plan(sender)) == {key: None}
    metadata = sender.cluster.metadata
    metadata.update(answer(1, 5), ["t"])
    assert metadata.topics == {}
    metadata.update(answer(1, 5, OTHER_ID), ["t"])
    assert metadata.topic_id("t") == OTHER_ID


@pytest.mark.parametrize("change", CHANGES)
def test_a_refused_change_leaves_the_metadata(change: str) -> None:
    plan: Callable[[Any], Any]
    plan, respond, key = CHANGES[change]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    sender = RespondingSender(respond(code))
    found = result_of(plan(sender))
    assert found[key].error_code == broker_error(code, "t").error_code
    assert sender.cluster.metadata.topic_id("t") == ID


def test_a_checked_creation_deletes_nothing() -> None:
    sender: Any = RespondingSender(created())
    plan = plans.create_topics(sender, [NewTopic("t")], validate_only=True)
    assert result_of(plan) == {"t": None}
    assert sender.cluster.metadata.topic_id("t") == ID


def test_a_topic_that_was_not_requested_leaves_the_metadata() -> None:
    topic = CreatableTopicResult(name="other", topic_id=OTHER_ID, error_code=0)
    sender: Any = RespondingSender(CreateTopicsResponse(topics=[topic]))
    assert result_of(create(sender)) == {"other": None}
    assert sender.cluster.metadata.topic_id("t") == ID
