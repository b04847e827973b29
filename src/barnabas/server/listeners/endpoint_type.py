"""Endpoint types of DescribeCluster requests (KIP-919)."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2

_NAMES = {BROKERS: "a broker", CONTROLLERS: "a controller"}


def refuse_endpoint_type(asked: int, served: int) -> DescribeClusterResponse:
    """Return the error response for a request of type `asked` on a listener of type `served`."""
    error, words = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "There is no such endpoint type."
    if asked in _NAMES:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        words = f"This listener belongs to {_NAMES[served]}, not to {_NAMES[asked]}."
    return DescribeClusterResponse(
        error_code=error,
        error_message=words,
        endpoint_type=served,
        cluster_id="",
        brokers=[],
    )
