"""Responses to requests that are rejected as a whole, because the client lacks a right.

Rows of `served_apis` name the functions of APIs whose error response has more than a top-level
error.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from barnabas.controller.apis import refuse_request
from barnabas.controller.result import Refusal
from barnabas.protocol.schema import Message
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.errors import ErrorCode


_ERROR_MESSAGE = "error_message"


def refuse(
    request: Message, error: ErrorCode, message: str
) -> Message | Generator[None, None, Message]:
    """Return the response to a rejected request, or a generator that creates it in steps."""
    response = refuse_request(request, Refusal(error, message))
    if isinstance(response, Message) and _ERROR_MESSAGE in _names(type(response)):
        response.error_message = message  # type: ignore[attr-defined]  # it has the field
    return response


@cache
def _names(response: type[Message]) -> frozenset[str]:
    """Return the names of the top-level fields of a response."""
    return frozenset(each.name for each in response.__fields__)


def alter_replica_log_dirs(
    request: Any, error: ErrorCode, _message: str
) -> Generator[None, None, Message]:
    from barnabas.protocol.messages.log_dirs import (
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirsResponse,
        AlterReplicaLogDirTopicResult,
    )

    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            partitions = yield from gradually(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                for index in topic.partitions
            )
            results.append(
                AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions)
            )
        yield
    return AlterReplicaLogDirsResponse(results=results)


def describe_cluster(_request: Any, error: ErrorCode, message: str) -> Message:
    from barnabas.protocol.messages.metadata import DescribeClusterResponse

    return DescribeClusterResponse(
        error_code=error, error_message=message, cluster_id="", brokers=[]
    )


def describe_client_quotas(_request: Any, error: ErrorCode, _message: str) -> Message:
    from barnabas.protocol.messages.configs import DescribeClientQuotasResponse

    return DescribeClientQuotasResponse(error_code=error, error_message=None, entries=None)


def describe_user_scram_credentials(
    request: Any, error: ErrorCode, _message: str
) -> Generator[None, None, Message]:
    from barnabas.protocol.messages.security import (
        DescribeUserScramCredentialsResponse,
        DescribeUserScramCredentialsResult,
    )

    results = yield from gradually(
        DescribeUserScramCredentialsResult(
            user="", error_code=error, error_message=None, credential_infos=[]
        )
        for _ in request.users or ()
    )
    return DescribeUserScramCredentialsResponse(
        error_code=error, error_message=None, results=results
    )
