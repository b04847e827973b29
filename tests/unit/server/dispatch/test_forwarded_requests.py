"""Requests that another node has forwarded: their client, and the sink of their response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.network.principal import Principal
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.messages.topics import DeletableTopicResult, DeleteTopicsResponse
from barnabas.runtime.loop_watch import unused_watch
from barnabas.server.dispatch.request import RequestContext, RequestDependencies
from barnabas.server.dispatch.request_statistics import ApiStatistics
from barnabas.server.dispatch.slices import SliceQueue
from steps import Loop

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.schema import Message


class Connection:
    """The connection of the node that forwards requests."""

    peer = "10.0.0.9:9092"
    principal = Principal("broker")
    login = None
    stream = "open"
    works = 0

    def begin_work(self) -> None:
        self.works += 1

    def end_work(self) -> None:
        self.works -= 1


class Client:
    """The origin of the request."""

    principal = Principal("alice")
    address = "10.0.0.1"

    def __init__(self) -> None:
        self.responses: list[Message] = []

    def respond(
        self, request: RequestContext, response: Message, throttle_ms: int, *, is_clean: bool
    ) -> None:
        assert (throttle_ms, is_clean) == (0, False)
        self.responses.append(response)


class ActiveQuotas:
    """Quotas that fail if a request is counted."""

    is_active = True


class Forwarded:
    """A forwarded DeleteTopics request."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.client = Client()
        connection: Any = Connection()
        quotas: Any = ActiveQuotas()
        unused: Any = None
        slices = SliceQueue(self.loop, self.loop, unused_watch())
        dependencies = RequestDependencies(
            "CONTROLLER", self.loop, quotas, unused_watch(), slices, unused
        )
        header = (int(ApiKey.DELETE_TOPICS), 5, 1, None, 0)
        statistics = ApiStatistics(header[0], "DeleteTopics", 6, DeleteTopicsResponse)
        envelope = RequestContext(connection, unused, header, 0, dependencies, statistics)
        self.request = envelope.forwarded(header, statistics, self.client)
        self.connection = connection

    def steps(self, count: int) -> Generator[None, None, DeleteTopicsResponse]:
        """Make an empty response in steps of a millisecond."""
        for _ in range(count):
            self.loop.now_ms += 1.0
            yield
        return DeleteTopicsResponse(responses=[])


def result(name: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, error_code=0, error_message=None)


def add_error(response: Message) -> Message:
    assert isinstance(response, DeleteTopicsResponse)
    return DeleteTopicsResponse(responses=[*response.responses, result("refused")])


def test_the_client_is_that_of_the_origin() -> None:
    request = Forwarded().request
    assert (request.user, request.address, request.host) == ("alice", "10.0.0.1", "10.0.0.1")
    assert request.is_authenticated


@pytest.mark.parametrize("steps", [1, 20], ids=["at once", "in several turns"])
def test_a_response_is_amended_once_and_counts_for_no_quota(steps: int) -> None:
    forwarded = Forwarded()
    forwarded.request.amend_with(add_error)
    forwarded.request.respond_in_slices(forwarded.steps(steps))
    while forwarded.loop.queue:
        forwarded.loop.turn()
    assert forwarded.client.responses == [DeleteTopicsResponse(responses=[result("refused")])]
    assert forwarded.connection.works == 0
