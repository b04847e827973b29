"""Checks of requests to the share coordinator, which only brokers may send."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.share.state_api import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    StateApi,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.server.security.authorizer.checks.check import CLUSTER_ACTION

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _check(api: StateApi, rights: Rights, request: Any) -> Verdict | Generator[None, None, Verdict]:
    """Refuse all partitions, unless the client is a broker."""
    if rights.allows_on_cluster(CLUSTER_ACTION):
        return None
    return _refuse(api, request)


def _refuse(api: StateApi, request: Any) -> Generator[None, None, Verdict]:
    topics: list[tuple[bytes, list[Any]]] = []
    for topic in request.topics:
        results: list[Any] = []
        topics.append((topic.topic_id, results))
        yield
        for each in topic.partitions:
            results.append(api.refuse(each.partition, _REFUSED))
            yield
    return api.make_response(topics)


check_initialize = partial(_check, INITIALIZE)
check_read = partial(_check, READ)
check_write = partial(_check, WRITE)
check_delete = partial(_check, DELETE)
check_read_summary = partial(_check, READ_SUMMARY)
